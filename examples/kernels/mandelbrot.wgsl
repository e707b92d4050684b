// Escape times of the Mandelbrot set.
struct View {
    corner: vec2<f32>,
    step: f32,
    width: u32,
    limit: u32,
}

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read_write> steps: array<u32>;

@compute @workgroup_size(8, 8)
fn mandelbrot(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= view.width {
        return;
    }
    let c = view.corner + vec2<f32>(id.xy) * view.step;
    var z = vec2<f32>(0.0);
    var n = 0u;
    while n < view.limit && dot(z, z) <= 4.0 {
        z = vec2<f32>(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        n += 1u;
    }
    steps[id.y * view.width + id.x] = n;
}
