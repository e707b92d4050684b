// Conway's game of life on a torus.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const width = 1024u;

@compute @workgroup_size(8, 8)
fn life(@builtin(global_invocation_id) id: vec3<u32>) {
    let height = arrayLength(&a) / width;
    if id.x >= width || id.y >= height {
        return;
    }
    var around = 0u;
    for (var dy = 0u; dy < 3u; dy++) {
        for (var dx = 0u; dx < 3u; dx++) {
            let x = (id.x + dx + width - 1u) % width;
            let y = (id.y + dy + height - 1u) % height;
            around += select(0u, 1u, a[y * width + x] > 0.5 && (dx != 1u || dy != 1u));
        }
    }
    let lives = around == 3u || (around == 2u && a[id.y * width + id.x] > 0.5);
    out[id.y * width + id.x] = select(0.0, 1.0, lives);
}
