// Transposes a square matrix by tiles of 8 × 8; the shared tile has a padding column.
const edge = 8u;

@group(0) @binding(0) var<uniform> size: u32;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

var<workgroup> tile: array<array<f32, edge + 1>, edge>;

@compute @workgroup_size(edge, edge)
fn transpose(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let source_at = group.xy * edge + local.xy;
    if all(source_at < vec2<u32>(size)) {
        tile[local.y][local.x] = source[source_at.y * size + source_at.x];
    }
    workgroupBarrier();
    let result_at = group.yx * edge + local.xy;
    if all(result_at < vec2<u32>(size)) {
        result[result_at.y * size + result_at.x] = tile[local.x][local.y];
    }
}
