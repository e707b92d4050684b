@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> taps: array<f32, 31>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let n = arrayLength(&output);
    if (id.x + 31u > n) {
        return;
    }
    var sum = 0.0;
    for (var k = 0u; k < 31u; k++) {
        sum += taps[k] * input[id.x + k];
    }
    output[id.x] = sum;
}
