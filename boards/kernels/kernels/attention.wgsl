// One query of attention over 256 keys of 64 numbers, a workgroup for each head.
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read_write> o: array<f32>;

const D = 64u;
const T = 256u;

var<workgroup> query: array<f32, D>;
var<workgroup> scores: array<f32, T>;
var<workgroup> scratch: array<f32, T>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) head: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let t = lid.x;
    if (t < D) {
        query[t] = q[head.x * D + t];
    }
    workgroupBarrier();
    var score = 0.0;
    for (var i = 0u; i < D; i++) {
        score += query[i] * k[(head.x * T + t) * D + i];
    }
    score *= 0.125;
    scratch[t] = score;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s >>= 1u) {
        if (t < s) {
            scratch[t] = max(scratch[t], scratch[t + s]);
        }
        workgroupBarrier();
    }
    let highest = workgroupUniformLoad(&scratch[0]);
    let e = exp(score - highest);
    scores[t] = e;
    scratch[t] = e;
    workgroupBarrier();
    for (var s = 128u; s > 0u; s >>= 1u) {
        if (t < s) {
            scratch[t] += scratch[t + s];
        }
        workgroupBarrier();
    }
    let total = workgroupUniformLoad(&scratch[0]);
    if (t < D) {
        var sum = 0.0;
        for (var j = 0u; j < T; j++) {
            sum += scores[j] * v[(head.x * T + j) * D + t];
        }
        o[head.x * D + t] = sum / total;
    }
}
