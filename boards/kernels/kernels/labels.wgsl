// A step of finding connected components: the least label of the neighbours of the same kind.
@group(0) @binding(0) var<storage, read> kind: array<u32>;
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> after: array<u32>;

override N: u32 = 2048u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let p = vec2i(id.xy);
    let size = vec2i(i32(N), i32(N));
    if (any(p >= size)) {
        return;
    }
    let at = p.y * size.x + p.x;
    let mine = kind[at];
    var label = before[at];
    for (var dy = -1; dy <= 1; dy++) {
        for (var dx = -1; dx <= 1; dx++) {
            let q = p + vec2i(dx, dy);
            if (q.x < 0 || q.y < 0 || q.x >= size.x || q.y >= size.y) {
                continue;
            }
            let other = q.y * size.x + q.x;
            if (kind[other] == mine) {
                label = min(label, before[other]);
            }
        }
    }
    after[at] = label;
}
