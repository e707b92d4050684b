// A 3 × 3 convolution with weights in a uniform buffer; the image ends in zeros.
struct Filter {
    // Rows of weights; the fourth component is padding.
    rows: array<vec4<f32>, 3>,
    width: i32,
    height: i32,
}

@group(0) @binding(0) var<uniform> kernel_filter: Filter;
@group(0) @binding(1) var<storage, read> image: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;

fn pixel(p: vec2<i32>) -> f32 {
    if any(p < vec2<i32>(0)) || p.x >= kernel_filter.width || p.y >= kernel_filter.height {
        return 0.0;
    }
    return image[p.y * kernel_filter.width + p.x];
}

@compute @workgroup_size(8, 8)
fn convolution(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = vec2<i32>(id.xy);
    if p.x >= kernel_filter.width || p.y >= kernel_filter.height {
        return;
    }
    var sum = 0.0;
    for (var y = 0; y < 3; y++) {
        for (var x = 0; x < 3; x++) {
            sum += kernel_filter.rows[y][x] * pixel(p + vec2<i32>(x - 1, y - 1));
        }
    }
    result[p.y * kernel_filter.width + p.x] = sum;
}
