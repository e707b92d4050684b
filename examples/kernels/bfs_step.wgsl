// One level of a breadth-first search: marks the unvisited neighbours of the frontier and tells whether there were any.
const unvisited = 0xffffffffu;

struct Progress {
    changed: atomic<u32>,
    level: u32,
}

@group(0) @binding(0) var<storage, read> row_starts: array<u32>;
@group(0) @binding(1) var<storage, read> neighbours: array<u32>;
@group(0) @binding(2) var<storage, read_write> levels: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> progress: Progress;

fn visit(node: u32, level: u32) {
    if atomicCompareExchangeWeak(&levels[node], unvisited, level).exchanged {
        atomicStore(&progress.changed, 1u);
    }
}

@compute @workgroup_size(64)
fn bfs_step(@builtin(global_invocation_id) id: vec3<u32>) {
    let node = id.x;
    if node >= arrayLength(&levels) || atomicLoad(&levels[node]) != progress.level {
        return;
    }
    for (var k = row_starts[node]; k < row_starts[node + 1u]; k++) {
        visit(neighbours[k], progress.level + 1u);
    }
}
