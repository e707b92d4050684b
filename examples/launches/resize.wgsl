// A picture of half the width and height, each pixel between four.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(2, 32)
fn resize(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width / 2u || id.y >= height / 2u {
        return;
    }
    let at = 2u * id.y * width + 2u * id.x;
    out[id.y * (width / 2u) + id.x] = 0.25 * (a[at] + a[at + 1u] + a[at + width] + a[at + width + 1u]);
}
