// The same in columns of one.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(1, 64)
fn stencil_tall(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y >= height {
        return;
    }
    let left = a[id.y * width + max(id.x, 1u) - 1u];
    let right = a[id.y * width + min(id.x + 1u, width - 1u)];
    let above = a[(max(id.y, 1u) - 1u) * width + id.x];
    let below = a[min(id.y + 1u, height - 1u) * width + id.x];
    out[id.y * width + id.x] = 0.25 * (left + right + above + below);
}
