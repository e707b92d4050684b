@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32, 5>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

override N: u32 = 128u;

var<workgroup> tile: array<array<f32, 40>, 16>;

@compute @workgroup_size(32, 8)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let plane = N * N;
    let at = id.y * N + id.x;
    let inside = id.x >= 4u && id.y >= 4u && id.x + 4u < N && id.y + 4u < N;
    var behind: array<f32, 4>;
    var ahead: array<f32, 4>;
    var now = input[4u * plane + at];
    for (var i = 0u; i < 4u; i++) {
        behind[i] = input[(3u - i) * plane + at];
        ahead[i] = input[(5u + i) * plane + at];
    }
    for (var z = 4u; z + 4u < N; z++) {
        workgroupBarrier();
        tile[lid.y + 4u][lid.x + 4u] = now;
        if (lid.y < 4u) {
            tile[lid.y][lid.x + 4u] = input[z * plane + max(id.y, 4u) * N - 4u * N + id.x];
            tile[lid.y + 12u][lid.x + 4u] = input[z * plane + min(id.y + 8u, N - 1u) * N + id.x];
        }
        if (lid.x < 4u) {
            tile[lid.y + 4u][lid.x] = input[z * plane + id.y * N + max(id.x, 4u) - 4u];
            tile[lid.y + 4u][lid.x + 36u] = input[z * plane + id.y * N + min(id.x + 32u, N - 1u)];
        }
        workgroupBarrier();
        var value = weights[0] * now;
        for (var i = 1u; i <= 4u; i++) {
            value += weights[i] * (behind[i - 1u] + ahead[i - 1u] + tile[lid.y + 4u - i][lid.x + 4u]
                + tile[lid.y + 4u + i][lid.x + 4u] + tile[lid.y + 4u][lid.x + 4u - i] + tile[lid.y + 4u][lid.x + 4u + i]);
        }
        if (inside) {
            output[z * plane + at] = value;
        }
        for (var i = 3u; i > 0u; i--) {
            behind[i] = behind[i - 1u];
        }
        behind[0] = now;
        now = ahead[0];
        for (var i = 0u; i < 3u; i++) {
            ahead[i] = ahead[i + 1u];
        }
        if (z + 5u < N) {
            ahead[3] = input[(z + 5u) * plane + at];
        }
    }
}
