// Neighbours have different amounts of work.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(1024)
fn uneven(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    var x = a[id.x];
    let rounds = (id.x * 2654435761u) >> 25u;
    for (var i = 0u; i < rounds; i++) {
        x = fma(x, 0.99, 0.01);
    }
    out[id.x] = x;
}
