// Four pixels at a time from packed bytes of brightness and colour to RGBA.
@group(0) @binding(0) var<storage, read> bright: array<u32>;
@group(0) @binding(1) var<storage, read> colour: array<u32>;
@group(0) @binding(2) var<storage, read_write> rgba: array<u32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&bright)) {
        return;
    }
    let ys = bright[id.x];
    let uvs = colour[id.x];
    for (var i = 0u; i < 4u; i++) {
        let y = f32((ys >> (8u * i)) & 255u) - 16.0;
        let u = f32((uvs >> (16u * (i / 2u))) & 255u) - 128.0;
        let v = f32((uvs >> (16u * (i / 2u) + 8u)) & 255u) - 128.0;
        let r = u32(clamp(1.164 * y + 1.596 * v, 0.0, 255.0));
        let g = u32(clamp(1.164 * y - 0.813 * v - 0.391 * u, 0.0, 255.0));
        let b = u32(clamp(1.164 * y + 2.018 * u, 0.0, 255.0));
        rgba[4u * id.x + i] = r | (g << 8u) | (b << 16u) | 0xff000000u;
    }
}
