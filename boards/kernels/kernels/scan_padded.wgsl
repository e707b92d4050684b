// Sums of all before, of each 512, up and down a tree whose places are padded against conflicts of banks.
@group(0) @binding(0) var<storage, read> g_idata: array<f32>;
@group(0) @binding(1) var<storage, read_write> g_odata: array<f32>;

const LOG_BANKS = 5u;
const N = 512u;
var<workgroup> temp: array<f32, N + (N >> LOG_BANKS)>;

fn conflict_free_offset(n: u32) -> u32 {
    return n >> LOG_BANKS;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) wid: vec3u) {
    let thid = lid.x;
    let block = wid.x * N;
    let ai = thid;
    let bi = thid + N / 2u;
    let bankOffsetA = conflict_free_offset(ai);
    let bankOffsetB = conflict_free_offset(bi);
    temp[ai + bankOffsetA] = g_idata[block + ai];
    temp[bi + bankOffsetB] = g_idata[block + bi];
    var offset = 1u;
    for (var d = N >> 1u; d > 0u; d >>= 1u) {
        workgroupBarrier();
        if (thid < d) {
            var a = offset * (2u * thid + 1u) - 1u;
            var b = offset * (2u * thid + 2u) - 1u;
            a += conflict_free_offset(a);
            b += conflict_free_offset(b);
            temp[b] += temp[a];
        }
        offset *= 2u;
    }
    if (thid == 0u) {
        temp[N - 1u + conflict_free_offset(N - 1u)] = 0.0;
    }
    for (var d = 1u; d < N; d *= 2u) {
        offset >>= 1u;
        workgroupBarrier();
        if (thid < d) {
            var a = offset * (2u * thid + 1u) - 1u;
            var b = offset * (2u * thid + 2u) - 1u;
            a += conflict_free_offset(a);
            b += conflict_free_offset(b);
            let t = temp[a];
            temp[a] = temp[b];
            temp[b] += t;
        }
    }
    workgroupBarrier();
    g_odata[block + ai] = temp[ai + bankOffsetA];
    g_odata[block + bi] = temp[bi + bankOffsetB];
}
