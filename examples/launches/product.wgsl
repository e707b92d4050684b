// A matrix product with nothing shared, 256 terms.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
const terms = 256u;

@compute @workgroup_size(8, 8)
fn product(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / terms;
    let width = arrayLength(&b) / terms;
    if id.x >= width || id.y >= height {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < terms; i++) {
        sum = fma(a[id.y * terms + i], b[i * width + id.x], sum);
    }
    out[id.y * width + id.x] = sum;
}
