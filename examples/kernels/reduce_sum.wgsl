// Sum of each block of values by a tree in workgroup memory. The block size is an override constant, and so is the length of
// the shared array.
override block: u32 = 64u;

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> partial: array<u32, block>;

@compute @workgroup_size(block)
fn reduce_sum(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    var own = 0u;
    if id.x < arrayLength(&values) {
        own = values[id.x];
    }
    partial[lane] = own;
    workgroupBarrier();
    for (var half = block / 2u; half > 0u; half /= 2u) {
        if lane < half {
            partial[lane] += partial[lane + half];
        }
        workgroupBarrier();
    }
    if lane == 0u {
        sums[group.x] = partial[0];
    }
}
