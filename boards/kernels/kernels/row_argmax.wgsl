// Where the greatest of each row of 256 is, one invocation a row.
@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let row = id.x;
    if (row >= arrayLength(&found)) {
        return;
    }
    var best = rows[row * 256u];
    var at = 0u;
    for (var i = 1u; i < 256u; i++) {
        let value = rows[row * 256u + i];
        if (value > best) {
            best = value;
            at = i;
        }
    }
    found[row] = at;
}
