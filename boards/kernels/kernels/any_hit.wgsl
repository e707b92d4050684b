// The first box of a list that each ray meets.
@group(0) @binding(0) var<storage, read> rays: array<vec4f>;
@group(0) @binding(1) var<storage, read> boxes: array<vec4f, 512>;
@group(0) @binding(2) var<storage, read_write> first: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&first)) {
        return;
    }
    let start = rays[id.x].xyz;
    let inverse = 1.0 / (vec3f(rays[id.x].w, rays[id.x].yz) - 0.5);
    var hit = 256u;
    for (var i = 0u; i < 256u; i++) {
        let low = boxes[2u * i].xyz * 0.9;
        let high = low + boxes[2u * i + 1u].xyz * 0.1;
        let a = (low - start) * inverse;
        let b = (high - start) * inverse;
        let near = max(max(min(a.x, b.x), min(a.y, b.y)), min(a.z, b.z));
        let far = min(min(max(a.x, b.x), max(a.y, b.y)), max(a.z, b.z));
        if (far >= max(near, 0.0)) {
            hit = i;
            break;
        }
    }
    first[id.x] = hit;
}
