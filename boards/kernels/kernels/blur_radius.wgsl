// A box blur of bytes in words, whose width, height and radius come in a uniform.
struct Params {
    width: u32,
    height: u32,
    radius: u32,
    unused: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> blurred: array<u32>;

@compute @workgroup_size(16, 16)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= params.width || id.y >= params.height) {
        return;
    }
    let r = i32(params.radius);
    var sum = vec4f(0.0);
    var count = 0.0;
    for (var dy = -r; dy <= r; dy++) {
        for (var dx = -r; dx <= r; dx++) {
            let x = i32(id.x) + dx;
            let y = i32(id.y) + dy;
            if (x >= 0 && y >= 0 && x < i32(params.width) && y < i32(params.height)) {
                sum += unpack4x8unorm(source[u32(y) * params.width + u32(x)]);
                count += 1.0;
            }
        }
    }
    blurred[id.y * params.width + id.x] = pack4x8unorm(sum / count);
}
