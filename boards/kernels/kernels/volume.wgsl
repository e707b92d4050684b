// 3 x 3 x 3 filter of a volume, with weights from a buffer.
override N: u32 = 64;
@group(0) @binding(0) var<storage, read> before: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32, 27>;
@group(0) @binding(2) var<storage, read_write> after: array<f32>;

@compute @workgroup_size(8, 8, 4)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x == 0u || id.y == 0u || id.z == 0u || id.x >= N - 1u || id.y >= N - 1u || id.z >= N - 1u) {
        return;
    }
    var sum = 0.0;
    for (var z = 0u; z < 3u; z++) {
        for (var y = 0u; y < 3u; y++) {
            for (var x = 0u; x < 3u; x++) {
                sum += weights[(z * 3u + y) * 3u + x] * before[((id.z + z - 1u) * N + id.y + y - 1u) * N + id.x + x - 1u];
            }
        }
    }
    after[(id.z * N + id.y) * N + id.x] = sum;
}
