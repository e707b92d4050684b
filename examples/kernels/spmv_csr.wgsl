// y = A · x for a sparse matrix in compressed rows.
@group(0) @binding(0) var<storage, read> row_starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn spmv_csr(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x;
    if row + 1u >= arrayLength(&row_starts) {
        return;
    }
    var sum = 0.0;
    for (var k = row_starts[row]; k < row_starts[row + 1u]; k++) {
        sum = fma(values[k], x[columns[k]], sum);
    }
    y[row] = sum;
}
