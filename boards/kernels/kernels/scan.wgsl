@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

var<workgroup> tile: array<u32, 512>;

@compute @workgroup_size(512)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    tile[lid.x] = input[id.x];
    workgroupBarrier();
    for (var step = 1u; step < 512u; step <<= 1u) {
        var left = 0u;
        if (lid.x >= step) {
            left = tile[lid.x - step];
        }
        workgroupBarrier();
        tile[lid.x] += left;
        workgroupBarrier();
    }
    output[id.x] = tile[lid.x];
}
