// Much arithmetic on each number.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn polynomial(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    var x = a[id.x];
    for (var i = 0u; i < 64u; i++) {
        x = fma(x, 0.999, 0.001);
    }
    out[id.x] = x;
}
