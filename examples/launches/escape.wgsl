// A fractal: neighbours have nearly the same work.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(32, 32)
fn escape(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y >= height {
        return;
    }
    let c = vec2<f32>(f32(id.x) / 400.0 - 2.0, f32(id.y) / 400.0 - 1.2 + 0.001 * a[id.y * width + id.x]);
    var z = c;
    var n = 0u;
    while n < 64u && dot(z, z) < 4.0 {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        n++;
    }
    out[id.y * width + id.x] = f32(n);
}
