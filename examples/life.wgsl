// Conway's game of life on a torus, and a picture of it. A cell is alive when its lowest bit is set.
override width: i32;
override height: i32;

@group(0) @binding(0) var<storage, read> now: array<u32>;
@group(0) @binding(1) var<storage, read_write> next: array<u32>;
@group(0) @binding(2) var<storage, read_write> picture: array<u32>;

fn alive(x: i32, y: i32) -> u32 {
    return now[(y + height) % height * width + (x + width) % width] & 1u;
}

@compute @workgroup_size(8, 8)
fn step(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = i32(id.x);
    let y = i32(id.y);
    if x >= width || y >= height {
        return;
    }
    var neighbours = 0u;
    for (var dy = -1; dy <= 1; dy++) {
        for (var dx = -1; dx <= 1; dx++) {
            neighbours += alive(x + dx, y + dy);
        }
    }
    // With the cell itself among them, three are enough, and four if it is one of them.
    next[y * width + x] = u32(neighbours == 3u || (neighbours == 4u && alive(x, y) == 1u));
}

@compute @workgroup_size(64)
fn paint(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&picture) {
        picture[id.x] = select(0xfff0f8fau, 0xff78461eu, (now[id.x] & 1u) == 1u);
    }
}
