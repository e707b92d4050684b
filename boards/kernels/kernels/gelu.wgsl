@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x < arrayLength(&x)) {
        let v = 6.0 * x[id.x] - 3.0;
        y[id.x] = 0.5 * v * (1.0 + tanh(0.79788456 * (v + 0.044715 * v * v * v)));
    }
}
