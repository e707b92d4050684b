// Each invocation adds up a row of its own, far from its neighbours'.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const columns = 256u;

@compute @workgroup_size(64)
fn row_sums(@builtin(global_invocation_id) id: vec3<u32>) {
    let rows = arrayLength(&a) / columns;
    if id.x >= rows {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < columns; i++) {
        sum += a[id.x * columns + i];
    }
    out[id.x] = sum;
}
