// A step of a breadth-first search: who is at the border marks the neighbours that nobody has seen.
@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> neighbours: array<u32>;
@group(0) @binding(2) var<storage, read> before: array<u32>;
@group(0) @binding(3) var<storage, read_write> after: array<atomic<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let node = id.x;
    if (node >= arrayLength(&before)) {
        return;
    }
    if (before[node] != 1u) {
        return;
    }
    for (var i = starts[node]; i < starts[node + 1u]; i++) {
        let other = neighbours[i];
        if (before[other] == 0u) {
            atomicStore(&after[other], 2u);
        }
    }
}
