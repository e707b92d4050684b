@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;

override WIDTH: u32 = 4096u;
var<workgroup> tile: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    let start = group.x * WIDTH;
    var most = -3.4e38;
    for (var i = lid.x; i < WIDTH; i += 256u) {
        most = max(most, input[start + i]);
    }
    tile[lid.x] = most;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            tile[lid.x] = max(tile[lid.x], tile[lid.x + step]);
        }
        workgroupBarrier();
    }
    most = tile[0];
    workgroupBarrier();
    var sum = 0.0;
    for (var i = lid.x; i < WIDTH; i += 256u) {
        sum += exp(input[start + i] - most);
    }
    tile[lid.x] = sum;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            tile[lid.x] += tile[lid.x + step];
        }
        workgroupBarrier();
    }
    let total = tile[0];
    for (var i = lid.x; i < WIDTH; i += 256u) {
        output[start + i] = exp(input[start + i] - most) / total;
    }
}
