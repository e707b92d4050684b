// The census of 5 x 7 pixels: a bit for each that is darker than the middle; two words a pixel from bytes.
@group(0) @binding(0) var<storage, read> image: array<u32>;
@group(0) @binding(1) var<storage, read_write> codes: array<u32>;

override N: i32 = 512;

fn pixel(x: i32, y: i32) -> u32 {
    let i = u32(y * N + x);
    return (image[i / 4u] >> (8u * (i % 4u))) & 255u;
}

@compute @workgroup_size(32, 4)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let x = i32(id.x);
    let y = i32(id.y);
    if (x < 3 || y < 2 || x >= N - 3 || y >= N - 2) {
        return;
    }
    let middle = pixel(x, y);
    var code = 0u;
    for (var dy = -2; dy <= 2; dy++) {
        for (var dx = -3; dx <= 3; dx++) {
            if (dx == 0 && dy == 0) {
                continue;
            }
            code = (code << 1u) | u32(pixel(x + dx, y + dy) < middle);
        }
    }
    codes[y * N + x] = code;
}
