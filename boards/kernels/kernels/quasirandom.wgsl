@group(0) @binding(0) var<storage, read> directions: array<u32, 32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

// Moro's inverse of the cumulative normal distribution.
fn inverse_normal(p: f32) -> f32 {
    let y = p - 0.5;
    if (abs(y) < 0.42) {
        let z = y * y;
        return y * (((-25.44106049637 * z + 41.39119773534) * z - 18.61500062529) * z + 2.50662823884)
            / ((((3.13082909833 * z - 21.06224101826) * z + 23.08336743743) * z - 8.47351093090) * z + 1.0);
    }
    let r = log(-log(select(p, 1.0 - p, y > 0.0)));
    let z = 0.3374754822726147 + r * (0.9761690190917186 + r * (0.1607979714918209 + r * (0.0276438810333863
        + r * (0.0038405729373609 + r * (0.0003951896511919 + r * (0.0000321767881768 + r * (0.0000002888167364
        + r * 0.0000003960315187)))))));
    return select(-z, z, y > 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    if (i >= arrayLength(&output)) {
        return;
    }
    let gray = i ^ (i >> 1u);
    var bits = 0u;
    for (var k = 0u; k < 32u; k++) {
        if ((gray & (1u << k)) != 0u) {
            bits ^= directions[k];
        }
    }
    output[i] = inverse_normal((f32(bits >> 8u) + 0.5) * 5.9604645e-8);
}
