// Layer normalisation of rows of 1024, one workgroup each.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;

var<workgroup> partial: array<f32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let start = group.x * 1024u;
    var sum = 0.0;
    for (var i = lid.x; i < 1024u; i += 128u) {
        sum += input[start + i];
    }
    partial[lid.x] = sum;
    workgroupBarrier();
    for (var s = 64u; s > 0u; s >>= 1u) {
        if (lid.x < s) {
            partial[lid.x] += partial[lid.x + s];
        }
        workgroupBarrier();
    }
    let mean = partial[0] / 1024.0;
    workgroupBarrier();
    var squares = 0.0;
    for (var i = lid.x; i < 1024u; i += 128u) {
        let d = input[start + i] - mean;
        squares += d * d;
    }
    partial[lid.x] = squares;
    workgroupBarrier();
    for (var s = 64u; s > 0u; s >>= 1u) {
        if (lid.x < s) {
            partial[lid.x] += partial[lid.x + s];
        }
        workgroupBarrier();
    }
    let scale = inverseSqrt(partial[0] / 1024.0 + 1e-5);
    for (var i = lid.x; i < 1024u; i += 128u) {
        output[start + i] = (input[start + i] - mean) * scale * weight[i] + bias[i];
    }
}
