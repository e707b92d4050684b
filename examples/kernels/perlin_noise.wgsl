// Gradient noise on a square, with a hash instead of a table of permutations.
@group(0) @binding(0) var<uniform> width: u32;
@group(0) @binding(1) var<storage, read_write> noise: array<f32>;

fn hash(p: vec2<i32>) -> u32 {
    var h = bitcast<u32>(p.x) * 374761393u + bitcast<u32>(p.y) * 668265263u;
    h = (h ^ (h >> 13u)) * 1274126177u;
    return h ^ (h >> 16u);
}

fn gradient(corner: vec2<i32>, offset: vec2<f32>) -> f32 {
    switch hash(corner) & 3u {
        case 0u: { return offset.x + offset.y; }
        case 1u: { return offset.x - offset.y; }
        case 2u: { return -offset.x + offset.y; }
        default: { return -offset.x - offset.y; }
    }
}

@compute @workgroup_size(8, 8)
fn perlin_noise(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= vec2<u32>(width)) {
        return;
    }
    let p = vec2<f32>(id.xy) * 0.125;
    let cell = floor(p);
    let f = p - cell;
    let corner = vec2<i32>(cell);
    let fade = f * f * f * (f * (f * 6.0 - 15.0) + 10.0);
    let top = mix(gradient(corner, f), gradient(corner + vec2(1, 0), f - vec2(1.0, 0.0)), fade.x);
    let bottom = mix(gradient(corner + vec2(0, 1), f - vec2(0.0, 1.0)), gradient(corner + vec2(1, 1), f - 1.0), fade.x);
    noise[id.y * width + id.x] = mix(top, bottom, fade.y);
}
