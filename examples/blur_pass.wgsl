// One pass of a Gaussian blur, along the rows or along the columns; the two together blur as `blur.wgsl` does, with far fewer loads. What
// lies outside the picture does not count.
override width: i32 = 360;
override height: i32 = 240;
override radius: i32 = 6;
override along_rows: bool = true;

@group(0) @binding(0) var<storage, read> image: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> blurred: array<vec4<f32>>;

@compute @workgroup_size(16, 16)
fn blur_pass(@builtin(global_invocation_id) id: vec3<u32>) {
    let here = vec2<i32>(id.xy);
    if here.x >= width || here.y >= height {
        return;
    }
    let at = here.y * width + here.x;
    let position = select(here.y, here.x, along_rows);
    let last = select(height, width, along_rows) - 1;
    let stride = select(width, 1, along_rows);
    let spread = 2.0 / f32(radius * radius);
    var sum = vec4<f32>();
    var weights = 0.0;
    for (var away = max(-radius, -position); away <= min(radius, last - position); away++) {
        let weight = exp(-spread * f32(away * away));
        sum += weight * image[at + away * stride];
        weights += weight;
    }
    blurred[at] = sum / weights;
}
