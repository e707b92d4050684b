@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 4096u;

@compute @workgroup_size(32, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let x = id.x;
    let y = id.y;
    if (x == 0u || y == 0u || x >= N - 1u || y >= N - 1u) {
        return;
    }
    let i = y * N + x;
    output[i] = 0.2 * (input[i] + input[i - 1u] + input[i + 1u] + input[i - N] + input[i + N]);
}
