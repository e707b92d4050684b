// Histogram of bytes packed in words: counted in workgroup memory, then added to the result.
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>, 256>;

var<workgroup> local_counts: array<atomic<u32>, 256>;

@compute @workgroup_size(64)
fn histogram(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    if id.x < arrayLength(&words) {
        let bytes = unpack4xU8(words[id.x]);
        for (var i = 0; i < 4; i++) {
            atomicAdd(&local_counts[bytes[i]], 1u);
        }
    }
    workgroupBarrier();
    for (var bin = lane; bin < 256u; bin += 64u) {
        let count = atomicLoad(&local_counts[bin]);
        if count > 0u {
            atomicAdd(&counts[bin], count);
        }
    }
}
