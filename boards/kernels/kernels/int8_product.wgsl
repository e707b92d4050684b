// A product of matrices of bytes, four to a word, scaled by row and column.
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> bt: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

override N: u32 = 512u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let row = id.y;
    let column = id.x;
    if (row >= N || column >= N) {
        return;
    }
    let words = N / 4u;
    var sum = 0;
    for (var k = 0u; k < words; k++) {
        sum += dot4I8Packed(a[row * words + k], bt[column * words + k]);
    }
    c[row * N + column] = f32(sum) * scales[row] * scales[column];
}
