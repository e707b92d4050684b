@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

var<workgroup> keys: array<u32, 512>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let start = group.x * 512u;
    let t = lid.x;
    keys[t] = input[start + t];
    keys[t + 256u] = input[start + t + 256u];
    workgroupBarrier();
    for (var size = 2u; size <= 512u; size <<= 1u) {
        for (var stride = size >> 1u; stride > 0u; stride >>= 1u) {
            let i = 2u * t - (t & (stride - 1u));
            let j = i + stride;
            let up = (i & size) == 0u;
            let a = keys[i];
            let b = keys[j];
            if ((a > b) == up) {
                keys[i] = b;
                keys[j] = a;
            }
            workgroupBarrier();
        }
    }
    output[start + t] = keys[t];
    output[start + t + 256u] = keys[t + 256u];
}
