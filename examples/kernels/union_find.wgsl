// Joins the two ends of each edge in a union-find forest, with compare-and-exchange on the roots.
@group(0) @binding(0) var<storage, read> edges: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> parents: array<atomic<u32>>;

fn root(start: u32) -> u32 {
    var node = start;
    loop {
        let parent = atomicLoad(&parents[node]);
        if parent == node {
            break;
        }
        node = parent;
    }
    return node;
}

@compute @workgroup_size(32)
fn union_find(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&edges) {
        return;
    }
    var a = edges[id.x].x;
    var b = edges[id.x].y;
    loop {
        a = root(a);
        b = root(b);
        if a == b {
            break;
        }
        // The smaller number becomes the root, so that there are no cycles.
        let high = max(a, b);
        let low = min(a, b);
        let result = atomicCompareExchangeWeak(&parents[high], high, low);
        if result.exchanged {
            break;
        }
        a = result.old_value;
        b = low;
    }
}
