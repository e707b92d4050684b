@group(0) @binding(0) var<storage, read> bodies: array<vec4f>;
@group(0) @binding(1) var<storage, read_write> forces: array<vec4f>;

var<workgroup> tile: array<vec4f, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u) {
    let n = arrayLength(&bodies);
    let own = bodies[id.x].xyz;
    var force = vec3f(0.0);
    for (var start = 0u; start < n; start += 256u) {
        tile[lid.x] = bodies[start + lid.x];
        workgroupBarrier();
        for (var j = 0u; j < 256u; j++) {
            let other = tile[j];
            let d = other.xyz - own;
            let r = inverseSqrt(dot(d, d) + 1e-3);
            force += d * (other.w * r * r * r);
        }
        workgroupBarrier();
    }
    forces[id.x] = vec4f(force, 0.0);
}
