// Sorts blocks of 128 values in workgroup memory with a bitonic network.
@group(0) @binding(0) var<storage, read_write> values: array<u32>;

var<workgroup> block: array<u32, 128>;

@compute @workgroup_size(128)
fn bitonic_sort(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    block[lane] = values[id.x];
    workgroupBarrier();
    for (var size = 2u; size <= 128u; size *= 2u) {
        for (var stride = size / 2u; stride > 0u; stride /= 2u) {
            let partner = lane ^ stride;
            if partner > lane {
                let ascending = (lane & size) == 0u;
                let a = block[lane];
                let b = block[partner];
                if (a > b) == ascending {
                    block[lane] = b;
                    block[partner] = a;
                }
            }
            workgroupBarrier();
        }
    }
    values[id.x] = block[lane];
}
