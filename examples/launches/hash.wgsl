// Integers only.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(32)
fn hash(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    var h = bitcast<u32>(a[id.x]) + id.x;
    for (var i = 0u; i < 8u; i++) {
        h = (h ^ (h >> 15u)) * 0x2c1b3c6du;
    }
    out[id.x] = f32(h);
}
