// The factor of a symmetric matrix of 8 x 8 for each invocation, in a private array.
@group(0) @binding(0) var<storage, read> matrices: array<f32>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let base = id.x * 64u;
    if (base >= arrayLength(&matrices)) {
        return;
    }
    var l: array<array<f32, 8>, 8>;
    for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j <= i; j++) {
            l[i][j] = matrices[base + i * 8u + j] + select(0.0, 8.0, i == j);
        }
    }
    for (var j = 0u; j < 8u; j++) {
        var d = l[j][j];
        for (var k = 0u; k < j; k++) {
            d -= l[j][k] * l[j][k];
        }
        let root = sqrt(d);
        l[j][j] = root;
        for (var i = j + 1u; i < 8u; i++) {
            var s = l[i][j];
            for (var k = 0u; k < j; k++) {
                s -= l[i][k] * l[j][k];
            }
            l[i][j] = s / root;
        }
    }
    for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < 8u; j++) {
            factors[base + i * 8u + j] = l[i][j];
        }
    }
}
