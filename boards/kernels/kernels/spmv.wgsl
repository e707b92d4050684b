@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> columns: array<u32>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let row = id.x;
    if (row >= arrayLength(&y)) {
        return;
    }
    var sum = 0.0;
    for (var k = starts[row]; k < starts[row + 1u]; k++) {
        sum += values[k] * x[columns[k]];
    }
    y[row] = sum;
}
