// Products of neighbouring quaternions.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(16)
fn quaternions(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) {
        return;
    }
    let p = a[id.x];
    let q = a[(id.x + 1u) % arrayLength(&a)];
    let imaginary = p.w * q.xyz + q.w * p.xyz + cross(p.xyz, q.xyz);
    out[id.x] = vec4<f32>(imaginary, p.w * q.w - dot(p.xyz, q.xyz));
}
