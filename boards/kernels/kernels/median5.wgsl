// The median of 5 x 5 pixels, by insertion into a sorted private array; edges are repeated.
@group(0) @binding(0) var<storage, read> src: array<f32>;
@group(0) @binding(1) var<storage, read_write> dst: array<f32>;

override N: i32 = 512;

@compute @workgroup_size(16, 16, 1)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = i32(id.x);
    let y = i32(id.y);
    if (x >= N || y >= N) {
        return;
    }
    var window: array<f32, 25>;
    var count = 0;
    for (var dy = -2; dy <= 2; dy++) {
        for (var dx = -2; dx <= 2; dx++) {
            let value = src[clamp(y + dy, 0, N - 1) * N + clamp(x + dx, 0, N - 1)];
            var k = count;
            while (k > 0 && window[k - 1] > value) {
                window[k] = window[k - 1];
                k--;
            }
            window[k] = value;
            count++;
        }
    }
    dst[y * N + x] = window[12];
}
