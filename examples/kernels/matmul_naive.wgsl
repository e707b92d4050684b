// c = a · b for row-major matrices, one output an invocation.
struct Sizes {
    rows: u32,
    inner: u32,
    columns: u32,
}

@group(0) @binding(0) var<uniform> sizes: Sizes;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(8, 8)
fn matmul_naive(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.y;
    let column = id.x;
    if row >= sizes.rows || column >= sizes.columns {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < sizes.inner; k++) {
        sum += a[row * sizes.inner + k] * b[k * sizes.columns + column];
    }
    c[row * sizes.columns + column] = sum;
}
