// Counts in 256 bins; what is counted first does not matter.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>, 256>;

@compute @workgroup_size(32)
fn histogram(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    atomicAdd(&counts[u32(clamp(a[id.x], 0.0, 0.999) * 256.0)], 1u);
}
