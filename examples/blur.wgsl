// A Gaussian blur. What lies outside the picture does not count.
override width: i32 = 360;
override height: i32 = 240;
override radius: i32 = 6;

@group(0) @binding(0) var<storage, read> image: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> blurred: array<vec4<f32>>;

@compute @workgroup_size(16, 16)
fn blur(@builtin(global_invocation_id) id: vec3<u32>) {
    let here = vec2<i32>(id.xy);
    if here.x >= width || here.y >= height {
        return;
    }
    let spread = 2.0 / f32(radius * radius);
    var sum = vec4<f32>();
    var weights = 0.0;
    for (var y = max(here.y - radius, 0); y <= min(here.y + radius, height - 1); y++) {
        for (var x = max(here.x - radius, 0); x <= min(here.x + radius, width - 1); x++) {
            let away = vec2<f32>(vec2<i32>(x, y) - here);
            let weight = exp(-spread * dot(away, away));
            sum += weight * image[y * width + x];
            weights += weight;
        }
    }
    blurred[here.y * width + here.x] = sum / weights;
}
