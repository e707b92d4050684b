// Cumulative sums of rows of 64, one invocation a row.
@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let start = id.x * 64u;
    if (start >= arrayLength(&rows)) {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < 64u; i++) {
        sum += rows[start + i];
        sums[start + i] = sum;
    }
}
