@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 1024u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < 2u || id.y < 2u || id.x + 2u >= N || id.y + 2u >= N) {
        return;
    }
    let centre = input[id.y * N + id.x];
    var sum = 0.0;
    var weight = 0.0;
    for (var dy = -2; dy <= 2; dy++) {
        for (var dx = -2; dx <= 2; dx++) {
            let value = input[u32(i32(id.y) + dy) * N + u32(i32(id.x) + dx)];
            let d = value - centre;
            let w = exp(-f32(dx * dx + dy * dy) * 0.2 - d * d * 8.0);
            sum += w * value;
            weight += w;
        }
    }
    output[id.y * N + id.x] = sum / weight;
}
