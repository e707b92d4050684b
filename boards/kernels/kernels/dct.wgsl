@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 1024u;

var<workgroup> tile: array<array<f32, 8>, 8>;
var<workgroup> rows: array<array<f32, 8>, 8>;

fn basis(u: u32, x: u32) -> f32 {
    let scale = select(0.5, 0.35355339, u == 0u);
    return scale * cos(f32((2u * x + 1u) * u) * 0.19634954);
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    tile[lid.y][lid.x] = input[id.y * N + id.x] - 0.5;
    workgroupBarrier();
    var sum = 0.0;
    for (var x = 0u; x < 8u; x++) {
        sum += tile[lid.y][x] * basis(lid.x, x);
    }
    rows[lid.y][lid.x] = sum;
    workgroupBarrier();
    sum = 0.0;
    for (var y = 0u; y < 8u; y++) {
        sum += rows[y][lid.x] * basis(lid.y, y);
    }
    output[id.y * N + id.x] = sum;
}
