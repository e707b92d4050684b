// Four steps of relaxation on tiles with a border in workgroup memory.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

override N: u32 = 2048u;
var<workgroup> tile: array<array<f32, 34>, 10>;

@compute @workgroup_size(32, 8)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let at = id.y * N + id.x;
    let x = lid.x + 1u;
    let y = lid.y + 1u;
    tile[y][x] = input[at];
    if (lid.x == 0u && id.x > 0u) {
        tile[y][0] = input[at - 1u];
    }
    if (lid.x == 31u && id.x + 1u < N) {
        tile[y][33] = input[at + 1u];
    }
    if (lid.y == 0u && id.y > 0u) {
        tile[0][x] = input[at - N];
    }
    if (lid.y == 7u && id.y + 1u < N) {
        tile[9][x] = input[at + N];
    }
    workgroupBarrier();
    let force = source[at];
    for (var round = 0u; round < 4u; round++) {
        let next = 0.25 * (tile[y][x - 1u] + tile[y][x + 1u] + tile[y - 1u][x] + tile[y + 1u][x] - force);
        workgroupBarrier();
        tile[y][x] = next;
        workgroupBarrier();
    }
    output[at] = tile[y][x];
}
