// Edge strength of a grey image whose pixels are bytes packed in words.
@group(0) @binding(0) var<uniform> size: vec2<u32>;
@group(0) @binding(1) var<storage, read> pixels: array<u32>;
@group(0) @binding(2) var<storage, read_write> edges: array<f32>;

fn grey(x: i32, y: i32) -> f32 {
    let cx = u32(clamp(x, 0, i32(size.x) - 1));
    let cy = u32(clamp(y, 0, i32(size.y) - 1));
    let at = cy * size.x + cx;
    return f32(extractBits(pixels[at / 4u], 8u * (at % 4u), 8u)) / 255.0;
}

@compute @workgroup_size(8, 8)
fn sobel(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= size) {
        return;
    }
    let x = i32(id.x);
    let y = i32(id.y);
    let gx = grey(x + 1, y - 1) + 2.0 * grey(x + 1, y) + grey(x + 1, y + 1)
        - grey(x - 1, y - 1) - 2.0 * grey(x - 1, y) - grey(x - 1, y + 1);
    let gy = grey(x - 1, y + 1) + 2.0 * grey(x, y + 1) + grey(x + 1, y + 1)
        - grey(x - 1, y - 1) - 2.0 * grey(x, y - 1) - grey(x + 1, y - 1);
    edges[id.y * size.x + id.x] = length(vec2<f32>(gx, gy));
}
