// Sines and exponentials.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(256)
fn waves(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    let x = a[id.x];
    out[id.x] = sin(6.0 * x) * exp(-x) + sqrt(abs(x));
}
