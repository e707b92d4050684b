@group(0) @binding(0) var<storage, read> cells: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>;

override N: u32 = 2048u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    var count = 0u;
    for (var dy = 0u; dy < 3u; dy++) {
        for (var dx = 0u; dx < 3u; dx++) {
            let x = (id.x + dx + N - 1u) % N;
            let y = (id.y + dy + N - 1u) % N;
            count += cells[y * N + x];
        }
    }
    let alive = cells[id.y * N + id.x];
    count -= alive;
    next[id.y * N + id.x] = select(0u, 1u, count == 3u || (count == 2u && alive == 1u));
}
