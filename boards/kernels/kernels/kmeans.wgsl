// The nearest of 32 centres in four dimensions.
@group(0) @binding(0) var<storage, read> points: array<vec4f>;
@group(0) @binding(1) var<storage, read> centres: array<vec4f, 32>;
@group(0) @binding(2) var<storage, read_write> nearest: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&points)) {
        return;
    }
    let point = points[id.x];
    var best = 3.4e38;
    var which = 0u;
    for (var k = 0u; k < 32u; k++) {
        let d = point - centres[k];
        let distance = dot(d, d);
        if (distance < best) {
            best = distance;
            which = k;
        }
    }
    nearest[id.x] = which;
}
