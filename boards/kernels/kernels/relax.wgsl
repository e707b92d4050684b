// Every edge offers its end a longer way, which keeps the longest: atomics on storage at random places.
@group(0) @binding(0) var<storage, read> edges: array<vec2u>;
@group(0) @binding(1) var<storage, read> lengths: array<u32>;
@group(0) @binding(2) var<storage, read_write> longest: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&edges)) {
        return;
    }
    let edge = edges[id.x];
    atomicMax(&longest[edge.y], lengths[edge.x] + (edge.x & 15u));
}
