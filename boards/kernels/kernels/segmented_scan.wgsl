// Inclusive sums within segments that flags begin, of each 256, Hillis and Steele with two buffers.
@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read> flags: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;

const WG: u32 = 256u;

struct Item {
    value: f32,
    flag: u32,
}

var<workgroup> temp: array<array<Item, WG>, 2>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) gid: vec3u, @builtin(local_invocation_index) tid: u32) {
    let i = gid.x;
    var src = 0u;
    temp[0][tid] = Item(values[i], u32(flags[i] == 0u));
    workgroupBarrier();
    for (var offset = 1u; offset < WG; offset <<= 1u) {
        let dst = 1u - src;
        var item = temp[src][tid];
        if (tid >= offset) {
            let left = temp[src][tid - offset];
            if (item.flag == 0u) {
                item.value += left.value;
            }
            item.flag |= left.flag;
        }
        temp[dst][tid] = item;
        src = dst;
        workgroupBarrier();
    }
    sums[i] = temp[src][tid].value;
}
