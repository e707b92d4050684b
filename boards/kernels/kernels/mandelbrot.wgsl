@group(0) @binding(0) var<storage, read_write> image: array<u32>;

override N: u32 = 1024u;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= N || id.y >= N) {
        return;
    }
    let cx = f32(id.x) * (3.0 / f32(N)) - 2.2;
    let cy = f32(id.y) * (3.0 / f32(N)) - 1.5;
    var x = 0.0;
    var y = 0.0;
    var i = 0u;
    while (i < 256u && x * x + y * y < 4.0) {
        let next = x * x - y * y + cx;
        y = 2.0 * x * y + cy;
        x = next;
        i++;
    }
    image[id.y * N + id.x] = i;
}
