// One workgroup of 64 for each row of 4096.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32, 4096>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

var<workgroup> tile: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(local_invocation_id) lid: vec3u, @builtin(workgroup_id) group: vec3u) {
    var sum = 0.0;
    for (var i = lid.x; i < 4096u; i += 64u) {
        sum += a[group.x * 4096u + i] * x[i];
    }
    tile[lid.x] = sum;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            tile[lid.x] += tile[lid.x + step];
        }
        workgroupBarrier();
    }
    if (lid.x == 0u) {
        y[group.x] = tile[0];
    }
}
