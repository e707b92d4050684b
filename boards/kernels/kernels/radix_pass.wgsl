// Sorts each 1024 keys by one digit of four bits, and counts the digits: counters of each thread in workgroup memory.
@group(0) @binding(0) var<uniform> params: vec4u;
@group(0) @binding(1) var<storage, read> keys_in: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys_out: array<u32>;
@group(0) @binding(3) var<storage, read_write> digit_counts: array<u32>;

const THREADS = 256u;
const KEYS = 4u;
const RADIX = 16u;

var<workgroup> counters: array<u32, RADIX * THREADS>;
var<workgroup> partial: array<u32, THREADS>;
var<workgroup> sorted: array<u32, THREADS * KEYS>;

fn digit_of(key: u32) -> u32 {
    return (key >> params.x) & (RADIX - 1u);
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) local: vec3u) {
    let t = local.x;
    let base = group.x * THREADS * KEYS + t * KEYS;
    for (var d = 0u; d < RADIX; d++) {
        counters[d * THREADS + t] = 0u;
    }
    var keys: array<u32, KEYS>;
    var ranks: array<u32, KEYS>;
    for (var k = 0u; k < KEYS; k++) {
        keys[k] = keys_in[base + k];
        let c = digit_of(keys[k]) * THREADS + t;
        ranks[k] = counters[c];
        counters[c] = ranks[k] + 1u;
    }
    workgroupBarrier();
    var sum = 0u;
    for (var j = 0u; j < RADIX; j++) {
        let c = t * RADIX + j;
        let count = counters[c];
        counters[c] = sum;
        sum += count;
    }
    partial[t] = sum;
    workgroupBarrier();
    for (var offset = 1u; offset < THREADS; offset *= 2u) {
        var add = 0u;
        if (t >= offset) {
            add = partial[t - offset];
        }
        workgroupBarrier();
        partial[t] += add;
        workgroupBarrier();
    }
    let before = partial[t] - sum;
    for (var j = 0u; j < RADIX; j++) {
        counters[t * RADIX + j] += before;
    }
    workgroupBarrier();
    for (var k = 0u; k < KEYS; k++) {
        let place = counters[digit_of(keys[k]) * THREADS + t] + ranks[k];
        sorted[place] = keys[k];
    }
    workgroupBarrier();
    for (var k = 0u; k < KEYS; k++) {
        keys_out[group.x * THREADS * KEYS + k * THREADS + t] = sorted[k * THREADS + t];
    }
    if (t < RADIX) {
        let first = counters[t * THREADS];
        var next = THREADS * KEYS;
        if (t + 1u < RADIX) {
            next = counters[(t + 1u) * THREADS];
        }
        digit_counts[group.x * RADIX + t] = next - first;
    }
}
