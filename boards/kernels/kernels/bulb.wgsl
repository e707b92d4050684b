// A Mandelbulb, marched through with the estimate of its distance.
@group(0) @binding(0) var<storage, read_write> depth: array<f32>;

override N: u32 = 512u;

fn distance_to(p: vec3f) -> f32 {
    var z = p;
    var dr = 1.0;
    var r = 0.0;
    for (var i = 0; i < 6; i++) {
        r = length(z);
        if (r > 2.0) {
            break;
        }
        let theta = acos(z.z / r) * 8.0;
        let phi = atan2(z.y, z.x) * 8.0;
        dr = pow(r, 7.0) * 8.0 * dr + 1.0;
        let zr = pow(r, 8.0);
        z = zr * vec3f(sin(theta) * cos(phi), sin(phi) * sin(theta), cos(theta)) + p;
    }
    return 0.5 * log(r) * r / dr;
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let uv = (vec2f(id.xy) + 0.5) / f32(N) * 2.0 - 1.0;
    let origin = vec3f(0.0, 0.0, -2.5);
    let direction = normalize(vec3f(uv, 1.5));
    var t = 0.0;
    for (var step = 0; step < 48; step++) {
        let d = distance_to(origin + t * direction);
        if (d < 0.001 || t > 5.0) {
            break;
        }
        t += d;
    }
    depth[id.y * N + id.x] = t;
}
