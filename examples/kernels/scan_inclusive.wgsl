// Inclusive prefix sum of each block of 64 values (Hillis and Steele), with two halves of one shared array taking turns.
const block = 64u;

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;

var<workgroup> buffer: array<u32, 2 * block>;

@compute @workgroup_size(block)
fn scan_inclusive(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var source = 0u;
    buffer[lane] = select(0u, values[id.x], id.x < arrayLength(&values));
    workgroupBarrier();
    for (var distance = 1u; distance < block; distance <<= 1u) {
        let target_half = block - source;
        var sum = buffer[source + lane];
        if lane >= distance {
            sum += buffer[source + lane - distance];
        }
        buffer[target_half + lane] = sum;
        source = target_half;
        workgroupBarrier();
    }
    if id.x < arrayLength(&sums) {
        sums[id.x] = buffer[source + lane];
    }
}
