// Sums of the points of each of 16 clusters, in fixed point, by atomics of the workgroup.
@group(0) @binding(0) var<storage, read> points: array<vec2f>;
@group(0) @binding(1) var<storage, read> cluster: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<i32>, 48>;

var<workgroup> local_sums: array<atomic<i32>, 48>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u, @builtin(num_workgroups) groups: vec3u) {
    if (lid.x < 48u) {
        atomicStore(&local_sums[lid.x], 0);
    }
    workgroupBarrier();
    for (var i = id.x; i < arrayLength(&points); i += groups.x * 256u) {
        let k = cluster[i] * 3u;
        let point = vec2i(points[i] * 256.0);
        atomicAdd(&local_sums[k], point.x);
        atomicAdd(&local_sums[k + 1u], point.y);
        atomicAdd(&local_sums[k + 2u], 1);
    }
    workgroupBarrier();
    if (lid.x < 48u) {
        atomicAdd(&sums[lid.x], atomicLoad(&local_sums[lid.x]));
    }
}
