// Rows become columns.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(16, 16)
fn transpose(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y >= height {
        return;
    }
    out[id.x * height + id.y] = a[id.y * width + id.x];
}
