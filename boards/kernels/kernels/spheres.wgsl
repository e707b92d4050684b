// Sixteen spheres with one light and shadows.
struct Hit {
    distance: f32,
    which: i32,
}

@group(0) @binding(0) var<storage, read> spheres: array<vec4f, 16>;
@group(0) @binding(1) var<storage, read_write> image: array<f32>;

override N: u32 = 1024u;

fn meet(origin: vec3f, way: vec3f, hit: ptr<function, Hit>) -> bool {
    for (var i = 0; i < 16; i++) {
        let sphere = spheres[i];
        let to = vec3f(sphere.xy * 4.0 - 2.0, sphere.z * 4.0 + 2.0) - origin;
        let radius = 0.2 + 0.4 * sphere.w;
        let along = dot(to, way);
        let under = along * along - dot(to, to) + radius * radius;
        if (under > 0.0) {
            let distance = along - sqrt(under);
            if (distance > 0.001 && distance < (*hit).distance) {
                (*hit).distance = distance;
                (*hit).which = i;
            }
        }
    }
    return (*hit).which >= 0;
}

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let place = (vec2f(id.xy) + 0.5) / f32(N) * 2.0 - 1.0;
    let way = normalize(vec3f(place, 1.0));
    let light = normalize(vec3f(0.5, -1.0, -0.6));
    var brightness = 0.1;
    var hit = Hit(1e30, -1);
    if (meet(vec3f(0.0), way, &hit)) {
        let sphere = spheres[hit.which];
        let point = way * hit.distance;
        let normal = normalize(point - vec3f(sphere.xy * 4.0 - 2.0, sphere.z * 4.0 + 2.0));
        var shadow = Hit(1e30, -1);
        let facing = dot(normal, light);
        if (facing > 0.0 && !meet(point + normal * 0.01, light, &shadow)) {
            brightness += 0.9 * facing;
        }
    }
    image[id.y * N + id.x] = brightness;
}
