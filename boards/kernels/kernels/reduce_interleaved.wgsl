// Sum of each 256, by a tree with interleaved addressing.
@group(0) @binding(0) var<storage, read> g_idata: array<f32>;
@group(0) @binding(1) var<storage, read_write> g_odata: array<f32>;

var<workgroup> sdata: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) gid: vec3<u32>,
        @builtin(local_invocation_id) lid: vec3<u32>,
        @builtin(workgroup_id) wid: vec3<u32>) {
    let tid = lid.x;
    let i = gid.x;
    sdata[tid] = select(0.0, g_idata[i], i < arrayLength(&g_idata));
    workgroupBarrier();
    for (var s = 1u; s < 256u; s *= 2u) {
        if (tid % (2u * s) == 0u) {
            sdata[tid] += sdata[tid + s];
        }
        workgroupBarrier();
    }
    if (tid == 0u) {
        g_odata[wid.x] = sdata[0];
    }
}
