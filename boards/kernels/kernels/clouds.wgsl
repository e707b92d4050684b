// Gradient noise of five octaves.
@group(0) @binding(0) var<storage, read_write> image: array<f32>;

override N: u32 = 1024u;

fn hash(p: vec2i) -> u32 {
    var h = u32(p.x) * 0x27d4eb2du ^ u32(p.y) * 0x165667b1u;
    h = (h ^ (h >> 15u)) * 0x85ebca6bu;
    return h ^ (h >> 13u);
}

fn gradient(p: vec2i, d: vec2f) -> f32 {
    let h = hash(p) & 7u;
    let u = select(d.y, d.x, h < 4u);
    let v = select(d.x, d.y, h < 4u);
    return select(u, -u, (h & 1u) != 0u) + 2.0 * select(v, -v, (h & 2u) != 0u);
}

fn noise(p: vec2f) -> f32 {
    let cell = vec2i(floor(p));
    let d = fract(p);
    let s = d * d * d * (d * (d * 6.0 - 15.0) + 10.0);
    let low = mix(gradient(cell, d), gradient(cell + vec2i(1, 0), d - vec2f(1.0, 0.0)), s.x);
    let high = mix(gradient(cell + vec2i(0, 1), d - vec2f(0.0, 1.0)), gradient(cell + vec2i(1, 1), d - vec2f(1.0, 1.0)), s.x);
    return mix(low, high, s.y);
}

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    var p = vec2f(id.xy) / 64.0;
    var sum = 0.0;
    var part = 0.5;
    for (var octave = 0; octave < 5; octave++) {
        sum += part * noise(p);
        p *= 2.03;
        part *= 0.5;
    }
    image[id.y * N + id.x] = 0.5 + 0.5 * sum;
}
