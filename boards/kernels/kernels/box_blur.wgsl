// The mean over 17 rows, by a sum that slides down each column in strips of 256 rows.
@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

const RADIUS = 8;
const STRIP = 256;
override N: u32 = 2048u;

fn at(x: i32, y: i32) -> f32 {
    return input[clamp(y, 0, i32(N) - 1) * i32(N) + x];
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let x = i32(id.x);
    let first = i32(id.y) * STRIP;
    if (id.x >= N) {
        return;
    }
    var sum = 0.0;
    for (var y = first - RADIUS; y <= first + RADIUS; y++) {
        sum += at(x, y);
    }
    let last = min(first + STRIP, i32(N));
    for (var y = first; y < last; y++) {
        output[y * i32(N) + x] = sum / f32(2 * RADIUS + 1);
        sum += at(x, y + RADIUS + 1) - at(x, y - RADIUS);
    }
}
