// A Gaussian blur in two passes: along the rows, then along the columns. What lies outside the picture does not count.
override width: i32;
override height: i32;
override radius: i32 = 6;

@group(0) @binding(0) var<storage, read> image: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> blurred: array<vec4<f32>>;

fn along(here: vec2<i32>, step: vec2<i32>) {
    if here.x >= width || here.y >= height {
        return;
    }
    let spread = 2.0 / f32(radius * radius);
    var sum = vec4<f32>();
    var weights = 0.0;
    for (var away = -radius; away <= radius; away++) {
        let there = here + away * step;
        if all(there >= vec2<i32>(0)) && all(there < vec2<i32>(width, height)) {
            let weight = exp(-spread * f32(away * away));
            sum += weight * image[there.y * width + there.x];
            weights += weight;
        }
    }
    blurred[here.y * width + here.x] = sum / weights;
}

@compute @workgroup_size(16, 16)
fn rows(@builtin(global_invocation_id) id: vec3<u32>) {
    along(vec2<i32>(id.xy), vec2<i32>(1, 0));
}

@compute @workgroup_size(16, 16)
fn columns(@builtin(global_invocation_id) id: vec3<u32>) {
    along(vec2<i32>(id.xy), vec2<i32>(0, 1));
}
