// The median of each 3 x 3 window, by sorting half of it.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 2048u;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    var window: array<f32, 9>;
    for (var i = 0u; i < 9u; i++) {
        let x = clamp(i32(id.x) + i32(i % 3u) - 1, 0, i32(N) - 1);
        let y = clamp(i32(id.y) + i32(i / 3u) - 1, 0, i32(N) - 1);
        window[i] = input[u32(y) * N + u32(x)];
    }
    for (var i = 0u; i < 5u; i++) {
        for (var j = i + 1u; j < 9u; j++) {
            if (window[j] < window[i]) {
                let t = window[i];
                window[i] = window[j];
                window[j] = t;
            }
        }
    }
    output[id.y * N + id.x] = window[4];
}
