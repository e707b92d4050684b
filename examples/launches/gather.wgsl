// Reads from all over the input.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(32)
fn gather(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    out[id.x] = a[id.x * 7919u % arrayLength(&a)];
}
