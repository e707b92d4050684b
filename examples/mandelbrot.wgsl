// The Mandelbrot set as a picture: one invocation a pixel, packed as red, green, blue and opacity, the lowest byte first.
override width: u32 = 900u;
override height: u32 = 600u;
override limit: u32 = 200u;

@group(0) @binding(0) var<storage, read_write> pixels: array<u32>;

// A cosine palette; smooth escape times give smooth colours.
fn colour(t: f32) -> u32 {
    let rgb = 0.5 + 0.5 * cos(6.2831853 * (t * vec3<f32>(1.0, 1.1, 1.3) + vec3<f32>(0.55, 0.62, 0.72)));
    return pack4x8unorm(vec4<f32>(rgb, 1.0));
}

@compute @workgroup_size(16, 16)
fn mandelbrot(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= width || id.y >= height {
        return;
    }
    let scale = 2.4 / f32(height);
    let c = (vec2<f32>(id.xy) - vec2<f32>(f32(width) * 0.66, f32(height) * 0.5)) * scale;
    var z = vec2<f32>(0.0);
    var n = 0u;
    while n < limit && dot(z, z) < 256.0 {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        n++;
    }
    var pixel = 0xff000000u;
    if n < limit {
        let smooth_steps = f32(n) + 1.0 - log2(log2(dot(z, z)) * 0.5);
        pixel = colour(0.035 * smooth_steps);
    }
    pixels[id.y * width + id.x] = pixel;
}
