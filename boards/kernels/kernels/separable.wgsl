@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> weights: array<f32, 17>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

override N: u32 = 2048u;

var<workgroup> tile: array<array<f32, 160>, 4>;

@compute @workgroup_size(16, 4)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let first = group.x * 128u;
    let row = (group.y * 4u + lid.y) * N;
    for (var i = 0u; i < 10u; i++) {
        let x = first + i * 16u + lid.x;
        var value = 0.0;
        if (x >= 16u && x < N + 16u) {
            value = input[row + x - 16u];
        }
        tile[lid.y][i * 16u + lid.x] = value;
    }
    workgroupBarrier();
    for (var i = 1u; i < 9u; i++) {
        var sum = 0.0;
        for (var j = 0u; j < 17u; j++) {
            sum += weights[j] * tile[lid.y][i * 16u + lid.x + j - 8u];
        }
        output[row + first + (i - 1u) * 16u + lid.x] = sum;
    }
}
