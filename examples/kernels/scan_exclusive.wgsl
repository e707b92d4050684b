// Exclusive prefix sum of each block of 64 values (Blelloch): up the tree, clear the root, down the tree.
@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> tree: array<u32, 64>;

@compute @workgroup_size(32)
fn scan_exclusive(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let base = group.x * 64u;
    tree[2u * lane] = values[base + 2u * lane];
    tree[2u * lane + 1u] = values[base + 2u * lane + 1u];
    var offset = 1u;
    for (var active_lanes = 32u; active_lanes > 0u; active_lanes >>= 1u) {
        workgroupBarrier();
        if lane < active_lanes {
            let left = offset * (2u * lane + 1u) - 1u;
            let right = offset * (2u * lane + 2u) - 1u;
            tree[right] += tree[left];
        }
        offset *= 2u;
    }
    if lane == 0u {
        tree[63] = 0u;
    }
    for (var active_lanes = 1u; active_lanes < 64u; active_lanes *= 2u) {
        offset >>= 1u;
        workgroupBarrier();
        if lane < active_lanes {
            let left = offset * (2u * lane + 1u) - 1u;
            let right = offset * (2u * lane + 2u) - 1u;
            let kept = tree[left];
            tree[left] = tree[right];
            tree[right] += kept;
        }
    }
    workgroupBarrier();
    sums[base + 2u * lane] = tree[2u * lane];
    sums[base + 2u * lane + 1u] = tree[2u * lane + 1u];
}
