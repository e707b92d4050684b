// Sums of all before, of each 1024, up and down a tree.
@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

var<workgroup> tile: array<u32, 1024>;

@compute @workgroup_size(512)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let start = group.x * 1024u;
    let t = lid.x;
    tile[2u * t] = input[start + 2u * t];
    tile[2u * t + 1u] = input[start + 2u * t + 1u];
    var offset = 1u;
    for (var d = 512u; d > 0u; d >>= 1u) {
        workgroupBarrier();
        if (t < d) {
            let i = offset * (2u * t + 1u) - 1u;
            let j = offset * (2u * t + 2u) - 1u;
            tile[j] += tile[i];
        }
        offset *= 2u;
    }
    if (t == 0u) {
        tile[1023] = 0u;
    }
    for (var d = 1u; d < 1024u; d *= 2u) {
        offset >>= 1u;
        workgroupBarrier();
        if (t < d) {
            let i = offset * (2u * t + 1u) - 1u;
            let j = offset * (2u * t + 2u) - 1u;
            let held = tile[i];
            tile[i] = tile[j];
            tile[j] += held;
        }
    }
    workgroupBarrier();
    output[start + 2u * t] = tile[2u * t];
    output[start + 2u * t + 1u] = tile[2u * t + 1u];
}
