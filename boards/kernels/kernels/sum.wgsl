@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> partial: array<f32>;

var<workgroup> tile: array<f32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u,
        @builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u) {
    let n = arrayLength(&input);
    var sum = 0.0;
    for (var i = id.x; i < n; i += groups.x * 256u) {
        sum += input[i];
    }
    tile[lid.x] = sum;
    workgroupBarrier();
    for (var step = 128u; step > 0u; step >>= 1u) {
        if (lid.x < step) {
            tile[lid.x] += tile[lid.x + step];
        }
        workgroupBarrier();
    }
    if (lid.x == 0u) {
        partial[group.x] = tile[0];
    }
}
