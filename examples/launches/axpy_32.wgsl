// Two numbers in, one out, in workgroups of 32.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(32)
fn axpy_32(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    out[id.x] = 1.5 * a[id.x] + b[id.x];
}
