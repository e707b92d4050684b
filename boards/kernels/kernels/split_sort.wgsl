// Blocks of 256 numbers sorted by their low eight bits: a stable split for each bit, with a scan of flags.
@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

var<workgroup> keys: array<u32, 256>;
var<workgroup> sums: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) local: u32) {
    keys[local] = input[id.x];
    workgroupBarrier();
    for (var bit = 0u; bit < 8u; bit++) {
        let key = keys[local];
        let is_zero = 1u - ((key >> bit) & 1u);
        sums[local] = is_zero;
        workgroupBarrier();
        for (var step = 1u; step < 256u; step *= 2u) {
            var before = 0u;
            if (local >= step) {
                before = sums[local - step];
            }
            workgroupBarrier();
            sums[local] += before;
            workgroupBarrier();
        }
        let zeros = sums[255];
        let rank = sums[local];
        let place = select(zeros + local - rank, rank - 1u, is_zero == 1u);
        workgroupBarrier();
        keys[place] = key;
        workgroupBarrier();
    }
    output[id.x] = keys[local];
}
