// One pass of a radix sort over a block of 64 keys: a stable partition by four bits, by counting in workgroup memory.
struct Pass {
    shift: u32,
}

@group(0) @binding(0) var<uniform> step: Pass;
@group(0) @binding(1) var<storage, read> keys: array<u32>;
@group(0) @binding(2) var<storage, read_write> sorted: array<u32>;

var<workgroup> digits: array<u32, 64>;

@compute @workgroup_size(64)
fn radix_sort_step(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let key = keys[id.x];
    let digit = extractBits(key, step.shift, 4u);
    digits[lane] = digit;
    workgroupBarrier();
    // All keys with smaller digits come first, then equal ones that stood before.
    var rank = 0u;
    for (var other = 0u; other < 64u; other++) {
        let seen = digits[other];
        if seen < digit || (seen == digit && other < lane) {
            rank++;
        }
    }
    sorted[group.x * 64u + rank] = key;
}
