// The sum of each block of numbers, halving by halving in workgroup memory.
override block: u32 = 256u;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

var<workgroup> tile: array<f32, block>;

fn vyre_domain() -> vec3<u32> {
    return vec3<u32>(arrayLength(&x), 1u, 1u);
}

@compute @workgroup_size(block)
fn block_sums(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_id) thread: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    tile[thread.x] = x[id.x];
    workgroupBarrier();
    for (var half = block / 2u; half > 0u; half /= 2u) {
        if thread.x < half {
            tile[thread.x] += tile[thread.x + half];
        }
        workgroupBarrier();
    }
    if thread.x == 0u {
        sums[group.x] = tile[0];
    }
}
