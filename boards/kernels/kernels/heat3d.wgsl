@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 128u;

@compute @workgroup_size(32, 4, 2)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N || id.z >= N) {
        return;
    }
    let at = (id.z * N + id.y) * N + id.x;
    let now = input[at];
    if (id.x == 0u || id.y == 0u || id.z == 0u || id.x == N - 1u || id.y == N - 1u || id.z == N - 1u) {
        output[at] = now;
        return;
    }
    let around = input[at - 1u] + input[at + 1u] + input[at - N] + input[at + N] + input[at - N * N] + input[at + N * N];
    output[at] = now + 0.1 * (around - 6.0 * now);
}
