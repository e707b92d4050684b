// Three balls on a chessboard, one ray a pixel: a picture for the blur to work on.
override width: u32 = 360u;
override height: u32 = 240u;

@group(0) @binding(0) var<storage, read_write> pixels: array<u32>;

struct Hit {
    distance: f32,
    point: vec3<f32>,
    normal: vec3<f32>,
    colour: vec3<f32>,
}

const SUN = vec3<f32>(0.55, 0.75, -0.36);
const FAR = 1000.0;

fn ball(hit: Hit, origin: vec3<f32>, ray: vec3<f32>, centre: vec3<f32>, radius: f32, colour: vec3<f32>) -> Hit {
    let to = centre - origin;
    let along = dot(to, ray);
    let inside = radius * radius - (dot(to, to) - along * along);
    if inside < 0.0 {
        return hit;
    }
    let distance = along - sqrt(inside);
    if distance < 0.001 || distance >= hit.distance {
        return hit;
    }
    let point = origin + ray * distance;
    return Hit(distance, point, (point - centre) / radius, colour);
}

fn trace(origin: vec3<f32>, ray: vec3<f32>) -> Hit {
    var hit = Hit(FAR, origin, vec3<f32>(), vec3<f32>());
    if ray.y < -0.001 {
        let distance = -origin.y / ray.y;
        let point = origin + ray * distance;
        let square = (i32(floor(point.x)) + i32(floor(point.z))) & 1;
        hit = Hit(distance, point, vec3<f32>(0.0, 1.0, 0.0), select(vec3<f32>(0.12), vec3<f32>(0.9), square == 0));
    }
    hit = ball(hit, origin, ray, vec3<f32>(-1.7, 1.0, 4.6), 1.0, vec3<f32>(0.86, 0.22, 0.16));
    hit = ball(hit, origin, ray, vec3<f32>(0.5, 0.8, 3.6), 0.8, vec3<f32>(0.95, 0.72, 0.15));
    hit = ball(hit, origin, ray, vec3<f32>(2.1, 1.2, 5.6), 1.2, vec3<f32>(0.15, 0.42, 0.85));
    return hit;
}

fn light(origin: vec3<f32>, ray: vec3<f32>, hit: Hit) -> vec3<f32> {
    if hit.distance >= FAR * 0.2 {
        return mix(vec3<f32>(0.93, 0.96, 1.0), vec3<f32>(0.35, 0.58, 0.9), clamp(ray.y * 2.0, 0.0, 1.0));
    }
    let shadow = trace(hit.point + hit.normal * 0.001, normalize(SUN));
    var bright = 0.25;
    if shadow.distance >= FAR {
        bright += 0.75 * max(dot(hit.normal, normalize(SUN)), 0.0);
    }
    return hit.colour * bright;
}

@compute @workgroup_size(16, 16)
fn scene(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= width || id.y >= height {
        return;
    }
    let at = (vec2<f32>(id.xy) + 0.5 - 0.5 * vec2<f32>(f32(width), f32(height))) / f32(height);
    let origin = vec3<f32>(0.0, 1.4, -1.5);
    let ray = normalize(vec3<f32>(at.x, -at.y - 0.08, 1.0));
    let hit = trace(origin, ray);
    var colour = light(origin, ray, hit);
    if hit.distance < FAR * 0.2 {
        let mirrored = reflect(ray, hit.normal);
        let start = hit.point + hit.normal * 0.001;
        colour = mix(colour, light(start, mirrored, trace(start, mirrored)), 0.18);
    }
    pixels[id.y * width + id.x] = pack4x8unorm(vec4<f32>(sqrt(colour), 1.0));
}
