// How far each of many points in eight dimensions is from each of 256 others.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
const centres = 256u;

@compute @workgroup_size(16, 16)
fn distances(@builtin(global_invocation_id) id: vec3<u32>) {
    let points = arrayLength(&a) / 512u;
    if id.x >= centres || id.y >= points {
        return;
    }
    var sum = 0.0;
    for (var i = 0u; i < 8u; i++) {
        let away = a[id.y * 8u + i] - b[i * centres + id.x];
        sum = fma(away, away, sum);
    }
    out[id.y * centres + id.x] = sqrt(sum);
}
