@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

const WIDTH = 1024u;
var<workgroup> tile: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let start = group.x * WIDTH;
    var sum = 0.0;
    for (var i = lid.x; i < WIDTH; i += 256u) {
        let v = input[start + i];
        sum += v * v;
    }
    tile[lid.x] = sum;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            tile[lid.x] += tile[lid.x + step];
        }
        workgroupBarrier();
    }
    let scale = inverseSqrt(tile[0] / f32(WIDTH) + 1e-5);
    for (var i = lid.x; i < WIDTH; i += 256u) {
        output[start + i] = input[start + i] * scale;
    }
}
