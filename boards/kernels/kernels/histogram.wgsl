@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>, 256>;

var<workgroup> local: array<atomic<u32>, 256>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u,
        @builtin(num_workgroups) groups: vec3u) {
    atomicStore(&local[lid.x], 0u);
    workgroupBarrier();
    let n = arrayLength(&input);
    for (var i = id.x; i < n; i += groups.x * 256u) {
        atomicAdd(&local[input[i] & 255u], 1u);
    }
    workgroupBarrier();
    atomicAdd(&bins[lid.x], atomicLoad(&local[lid.x]));
}
