@group(0) @binding(0) var<storage, read_write> image: array<f32>;

override N: u32 = 1024u;

fn scene(p: vec3f) -> f32 {
    let ball = length(p - vec3f(0.0, 0.2, 0.0)) - 0.7;
    let q = abs(p - vec3f(0.9, -0.1, 0.4)) - vec3f(0.35);
    let box = length(max(q, vec3f(0.0))) + min(max(q.x, max(q.y, q.z)), 0.0);
    return min(min(ball, box), p.y + 0.5);
}

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let u = 2.0 * f32(id.x) / f32(N) - 1.0;
    let v = 1.0 - 2.0 * f32(id.y) / f32(N);
    let direction = normalize(vec3f(u, v, 1.5));
    var t = 0.0;
    for (var i = 0; i < 64; i++) {
        let d = scene(vec3f(0.0, 0.3, -3.0) + direction * t);
        if (d < 0.001 || t > 20.0) {
            break;
        }
        t += d;
    }
    image[id.y * N + id.x] = exp(-0.2 * t);
}
