// LU of a 6x6 matrix for each invocation, without pivots.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let start = id.x * 36u;
    if (start >= arrayLength(&input)) {
        return;
    }
    var m: array<array<f32, 6>, 6>;
    for (var i = 0u; i < 6u; i++) {
        for (var j = 0u; j < 6u; j++) {
            m[i][j] = input[start + i * 6u + j] + select(0.0, 4.0, i == j);
        }
    }
    for (var k = 0u; k < 6u; k++) {
        for (var i = k + 1u; i < 6u; i++) {
            m[i][k] /= m[k][k];
            for (var j = k + 1u; j < 6u; j++) {
                m[i][j] -= m[i][k] * m[k][j];
            }
        }
    }
    for (var i = 0u; i < 6u; i++) {
        for (var j = 0u; j < 6u; j++) {
            output[start + i * 6u + j] = m[i][j];
        }
    }
}
