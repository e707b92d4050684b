@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override N: u32 = 2048u;

fn at(x: i32, y: i32) -> f32 {
    let column = clamp(x, 0, i32(N) - 1);
    let row = clamp(y, 0, i32(N) - 1);
    return input[row * i32(N) + column];
}

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let x = i32(id.x);
    let y = i32(id.y);
    if (id.x >= N || id.y >= N) {
        return;
    }
    let horizontal = at(x + 1, y - 1) + 2.0 * at(x + 1, y) + at(x + 1, y + 1) - at(x - 1, y - 1) - 2.0 * at(x - 1, y) - at(x - 1, y + 1);
    let vertical = at(x - 1, y + 1) + 2.0 * at(x, y + 1) + at(x + 1, y + 1) - at(x - 1, y - 1) - 2.0 * at(x, y - 1) - at(x + 1, y - 1);
    output[id.y * N + id.x] = min(sqrt(horizontal * horizontal + vertical * vertical), 1.0);
}
