// A step of breadth-first search that gathers the next level in a queue of the workgroup and adds it to one of all.
struct Queue {
    count: atomic<u32>,
    items: array<u32>,
}

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> edges: array<u32>;
@group(0) @binding(2) var<storage, read> level: array<u32>;
@group(0) @binding(3) var<storage, read_write> seen: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> queue: Queue;

var<workgroup> local_items: array<u32, 2048>;
var<workgroup> local_count: atomic<u32>;
var<workgroup> local_base: u32;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    if (lid.x == 0u) {
        atomicStore(&local_count, 0u);
    }
    workgroupBarrier();
    let node = id.x;
    if (level[node] == 0u) {
        for (var e = starts[node]; e < starts[node + 1u]; e++) {
            let other = edges[e];
            let bit = 1u << (other & 31u);
            if ((atomicOr(&seen[other >> 5u], bit) & bit) == 0u) {
                local_items[atomicAdd(&local_count, 1u)] = other;
            }
        }
    }
    workgroupBarrier();
    let count = atomicLoad(&local_count);
    if (lid.x == 0u) {
        local_base = atomicAdd(&queue.count, count);
    }
    let base = workgroupUniformLoad(&local_base);
    for (var i = lid.x; i < count; i += 128u) {
        queue.items[base + i] = local_items[i];
    }
}
