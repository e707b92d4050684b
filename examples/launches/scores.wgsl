// Rows with rows: what a query finds in every key, 64 terms each.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
const terms = 64u;
const keys = 512u;

@compute @workgroup_size(64)
fn scores(@builtin(global_invocation_id) id: vec3<u32>) {
    let queries = arrayLength(&a) / (terms * 16u);
    if id.x >= keys || id.y >= queries {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < terms; i++) {
        sum = fma(a[id.y * terms + i], b[id.x * terms + i], sum);
    }
    out[id.y * keys + id.x] = 0.125 * sum;
}
