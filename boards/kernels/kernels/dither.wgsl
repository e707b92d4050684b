// Ordered dithering of a grey image to four levels, with a matrix of thresholds.
@group(0) @binding(0) var<storage, read> image: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

override N: u32 = 2048u;
const bayer = array<u32, 16>(0u, 8u, 2u, 10u, 12u, 4u, 14u, 6u, 3u, 11u, 1u, 9u, 15u, 7u, 13u, 5u);

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let value = image[id.y * N + id.x];
    let threshold = (f32(bayer[(id.y % 4u) * 4u + id.x % 4u]) + 0.5) / 16.0 - 0.5;
    let level = floor(value * 3.0 + threshold + 0.5);
    output[id.y * N + id.x] = u32(clamp(level, 0.0, 3.0));
}
