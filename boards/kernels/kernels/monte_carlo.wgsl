// The mean of 256 draws of a call's value for each invocation.
@group(0) @binding(0) var<storage, read_write> means: array<f32>;

fn next(state: ptr<function, u32>) -> f32 {
    var x = *state;
    x ^= x << 13u;
    x ^= x >> 17u;
    x ^= x << 5u;
    *state = x;
    return f32(x >> 8u) * (1.0 / 16777216.0) + 1e-8;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&means)) {
        return;
    }
    var state = id.x * 747796405u + 2891336453u;
    var sum = 0.0;
    for (var i = 0; i < 128; i++) {
        let r = sqrt(-2.0 * log(next(&state)));
        let angle = 6.2831853 * next(&state);
        sum += max(100.0 * exp(0.2 * r * cos(angle)) - 105.0, 0.0);
        sum += max(100.0 * exp(0.2 * r * sin(angle)) - 105.0, 0.0);
    }
    means[id.x] = sum / 256.0;
}
