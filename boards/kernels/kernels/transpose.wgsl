@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 4096u;
var<workgroup> tile: array<array<f32, 33>, 32>;

@compute @workgroup_size(32, 8)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let x = group.x * 32u + lid.x;
    let y = group.y * 32u + lid.y;
    for (var j = 0u; j < 32u; j += 8u) {
        tile[lid.y + j][lid.x] = input[(y + j) * N + x];
    }
    workgroupBarrier();
    let tx = group.y * 32u + lid.x;
    let ty = group.x * 32u + lid.y;
    for (var j = 0u; j < 32u; j += 8u) {
        output[(ty + j) * N + tx] = tile[lid.x][lid.y + j];
    }
}
