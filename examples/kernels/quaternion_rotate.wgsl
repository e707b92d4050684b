// Rotates points by unit quaternions.
@group(0) @binding(0) var<storage, read> rotations: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> points: array<vec3<f32>>;
@group(0) @binding(2) var<storage, read_write> turned: array<vec3<f32>>;

@compute @workgroup_size(64)
fn quaternion_rotate(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&points) {
        return;
    }
    let q = normalize(rotations[id.x]);
    let v = points[id.x];
    let t = 2.0 * cross(q.xyz, v);
    turned[id.x] = v + q.w * t + cross(q.xyz, t);
}
