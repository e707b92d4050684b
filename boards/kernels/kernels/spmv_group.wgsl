// A sparse matrix in compressed rows times a vector, a workgroup of 64 for each row.
@group(0) @binding(0) var<storage, read> row_ptr: array<u32>;
@group(0) @binding(1) var<storage, read> col_idx: array<u32>;
@group(0) @binding(2) var<storage, read> vals: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> shared_sums: array<f32, 64>;

@compute @workgroup_size(64, 1, 1)
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let row: u32 = wg.x;
    let start: u32 = row_ptr[row];
    let end: u32 = row_ptr[row + 1u];
    var sum: f32 = 0.0;
    var j: u32 = start + lid.x;
    loop {
        if (j >= end) { break; }
        sum = sum + vals[j] * x[col_idx[j]];
        j = j + 64u;
    }
    shared_sums[lid.x] = sum;
    workgroupBarrier();
    var stride: u32 = 32u;
    while (stride > 0u) {
        if (lid.x < stride) {
            shared_sums[lid.x] = shared_sums[lid.x] + shared_sums[lid.x + stride];
        }
        stride = stride / 2u;
        workgroupBarrier();
    }
    if (lid.x == 0u) {
        y[row] = shared_sums[0];
    }
}
