// A step of run-length encoding: how long the run is that begins here, or nothing.
@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> lengths: array<u32>;

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    let n = arrayLength(&input);
    if (i >= n) {
        return;
    }
    if (i > 0u && input[i - 1u] == input[i]) {
        lengths[i] = 0u;
        return;
    }
    var end = i + 1u;
    while (end < n && input[end] == input[i]) {
        end++;
    }
    lengths[i] = end - i;
}
