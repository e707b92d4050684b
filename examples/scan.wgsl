// Running sums of any number of values in three passes: within blocks, over the sums of the blocks, and both together.
const block = 256u;

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
@group(0) @binding(2) var<storage, read_write> totals: array<u32>;

var<workgroup> shared_sums: array<u32, block>;

// The sum of the values up to each one, within its block; the last is the block's total.
@compute @workgroup_size(block)
fn within(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    shared_sums[local] = select(0u, values[id.x], id.x < arrayLength(&values));
    for (var reach = 1u; reach < block; reach *= 2u) {
        workgroupBarrier();
        let before = select(0u, shared_sums[local - reach], local >= reach);
        workgroupBarrier();
        shared_sums[local] += before;
    }
    if id.x < arrayLength(&values) {
        sums[id.x] = shared_sums[local];
    }
    if local == block - 1u {
        totals[group.x] = shared_sums[local];
    }
}

// The totals of all blocks before each one. There are few, so one invocation does it.
@compute @workgroup_size(1)
fn over() {
    var sum = 0u;
    for (var at = 0u; at < arrayLength(&totals); at++) {
        let total = totals[at];
        totals[at] = sum;
        sum += total;
    }
}

@compute @workgroup_size(block)
fn both(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&sums) {
        sums[id.x] += totals[id.x / block];
    }
}
