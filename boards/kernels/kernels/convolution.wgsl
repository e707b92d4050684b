@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32, 25>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

override N: u32 = 2048u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < 2u || id.y < 2u || id.x + 2u >= N || id.y + 2u >= N) {
        return;
    }
    var sum = 0.0;
    for (var dy = 0u; dy < 5u; dy++) {
        for (var dx = 0u; dx < 5u; dx++) {
            sum += weights[dy * 5u + dx] * input[(id.y + dy - 2u) * N + id.x + dx - 2u];
        }
    }
    output[id.y * N + id.x] = sum;
}
