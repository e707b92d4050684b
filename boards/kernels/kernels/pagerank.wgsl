// One step of page rank: every page collects from the pages that link to it, of which each has another number.
struct Page {
    rank: f32,
    links: f32,
}

@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read> sources: array<u32>;
@group(0) @binding(2) var<storage, read> pages: array<Page>;
@group(0) @binding(3) var<storage, read_write> ranks: array<f32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let page = id.x;
    if (page >= arrayLength(&ranks)) {
        return;
    }
    var sum = 0.0;
    let end = starts[page + 1u];
    for (var edge = starts[page]; edge < end; edge++) {
        let source = pages[sources[edge]];
        sum += source.rank / (source.links + 1.0);
    }
    ranks[page] = 0.15 + 0.85 * sum;
}
