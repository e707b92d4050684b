// The mean of nine rows.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(256)
fn columns_filter(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y + 8u >= height {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < 9u; i++) {
        sum += a[(id.y + i) * width + id.x];
    }
    out[id.y * width + id.x] = sum / 9.0;
}
