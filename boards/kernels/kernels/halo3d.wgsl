// Seven points in space with a tile of the workgroup and its border in workgroup memory.
@group(0) @binding(0) var<storage, read> u0: array<f32>;
@group(0) @binding(1) var<storage, read_write> u1: array<f32>;

override N: i32 = 128;

const BX = 8;
const BY = 8;
const BZ = 4;

var<workgroup> tile: array<array<array<f32, BX + 2>, BY + 2>, BZ + 2>;

@compute @workgroup_size(8, 8, 4)
fn main(@builtin(global_invocation_id) gid: vec3u,
        @builtin(local_invocation_id) lid: vec3u,
        @builtin(local_invocation_index) index: u32,
        @builtin(workgroup_id) wid: vec3u) {
    let corner = vec3i(wid) * vec3i(BX, BY, BZ) - 1;
    for (var i = i32(index); i < (BX + 2) * (BY + 2) * (BZ + 2); i += BX * BY * BZ) {
        let tx = i % (BX + 2);
        let ty = (i / (BX + 2)) % (BY + 2);
        let tz = i / ((BX + 2) * (BY + 2));
        let p = clamp(corner + vec3i(tx, ty, tz), vec3i(0), vec3i(N - 1));
        tile[tz][ty][tx] = u0[(p.z * N + p.y) * N + p.x];
    }
    workgroupBarrier();
    let x = lid.x + 1u;
    let y = lid.y + 1u;
    let z = lid.z + 1u;
    let centre = tile[z][y][x];
    let around = tile[z][y][x - 1u] + tile[z][y][x + 1u] + tile[z][y - 1u][x] + tile[z][y + 1u][x]
        + tile[z - 1u][y][x] + tile[z + 1u][y][x];
    let g = vec3i(gid);
    u1[(g.z * N + g.y) * N + g.x] = centre + 0.1 * (around - 6.0 * centre);
}
