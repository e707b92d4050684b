// Five by five.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(8, 8)
fn blur(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y >= height {
        return;
    }
    var sum = 0.0;
    for (var dy = 0u; dy < 5u; dy++) {
        for (var dx = 0u; dx < 5u; dx++) {
            let x = min(max(id.x + dx, 2u) - 2u, width - 1u);
            let y = min(max(id.y + dy, 2u) - 2u, height - 1u);
            sum += a[y * width + x];
        }
    }
    out[id.y * width + id.x] = sum / 25.0;
}
