// A sparse matrix of 24 entries a row, column by column, times a vector.
@group(0) @binding(0) var<storage, read> columns: array<i32>;
@group(0) @binding(1) var<storage, read> entries: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let rows = arrayLength(&y);
    if (id.x >= rows) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < 24u; k++) {
        let column = columns[k * rows + id.x];
        if (column >= 0) {
            sum += entries[k * rows + id.x] * x[column];
        }
    }
    y[id.x] = sum;
}
