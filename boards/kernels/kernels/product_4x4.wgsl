// A product of matrices by tiles of 64 x 64: four rows of vec4 for each invocation.
@group(0) @binding(0) var<storage, read> a: array<vec4f>;
@group(0) @binding(1) var<storage, read> b: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4f>;

override N: u32 = 1024u;
var<workgroup> tile_a: array<array<f32, 64>, 16>;
var<workgroup> tile_b: array<array<vec4f, 16>, 16>;

@compute @workgroup_size(16, 16)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u, @builtin(local_invocation_index) index: u32) {
    var sums: array<vec4f, 4>;
    let row = index / 4u;
    let quarter = index % 4u;
    for (var k = 0u; k < N; k += 16u) {
        let quad = a[((group.y * 64u + row) * N + k) / 4u + quarter];
        tile_a[quarter * 4u][row] = quad.x;
        tile_a[quarter * 4u + 1u][row] = quad.y;
        tile_a[quarter * 4u + 2u][row] = quad.z;
        tile_a[quarter * 4u + 3u][row] = quad.w;
        tile_b[lid.y][lid.x] = b[((k + lid.y) * N + group.x * 64u) / 4u + lid.x];
        workgroupBarrier();
        for (var i = 0u; i < 16u; i++) {
            let right = tile_b[i][lid.x];
            for (var j = 0u; j < 4u; j++) {
                sums[j] += tile_a[i][lid.y * 4u + j] * right;
            }
        }
        workgroupBarrier();
    }
    for (var j = 0u; j < 4u; j++) {
        c[((group.y * 64u + lid.y * 4u + j) * N + group.x * 64u) / 4u + lid.x] = sums[j];
    }
}
