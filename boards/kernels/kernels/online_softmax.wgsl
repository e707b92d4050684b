// A softmax of rows of 1024 in one pass over memory: greatest and sum together.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

var<workgroup> greatest: array<f32, 128>;
var<workgroup> sums: array<f32, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let row = group.x * 1024u;
    var m = -1e30;
    var s = 0.0;
    for (var i = lid.x; i < 1024u; i += 128u) {
        let x = input[row + i];
        let most = max(m, x);
        s = s * exp(m - most) + exp(x - most);
        m = most;
    }
    greatest[lid.x] = m;
    sums[lid.x] = s;
    workgroupBarrier();
    for (var step = 64u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            let most = max(greatest[lid.x], greatest[lid.x + step]);
            sums[lid.x] = sums[lid.x] * exp(greatest[lid.x] - most) + sums[lid.x + step] * exp(greatest[lid.x + step] - most);
            greatest[lid.x] = most;
        }
        workgroupBarrier();
    }
    for (var i = lid.x; i < 1024u; i += 128u) {
        output[row + i] = exp(input[row + i] - greatest[0]) / sums[0];
    }
}
