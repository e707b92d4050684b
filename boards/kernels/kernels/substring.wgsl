// Where a pattern of bytes begins in a text of bytes, packed in words: how many for each workgroup of 256 words.
@group(0) @binding(0) var<storage, read> text: array<u32>;
@group(0) @binding(1) var<storage, read> pattern: array<u32, 2>;
@group(0) @binding(2) var<storage, read_write> counts: array<u32>;

var<workgroup> found: atomic<u32>;

fn byte_of(at: u32) -> u32 {
    return (text[at / 4u] >> (8u * (at % 4u))) & 3u;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) index: u32, @builtin(workgroup_id) group: vec3u) {
    let length = arrayLength(&text) * 4u;
    for (var part = 0u; part < 4u; part++) {
        let start = id.x * 4u + part;
        if (start + 6u <= length) {
            var i = 0u;
            while (i < 6u && byte_of(start + i) == ((pattern[i / 4u] >> (8u * (i % 4u))) & 3u)) {
                i++;
            }
            if (i == 6u) {
                atomicAdd(&found, 1u);
            }
        }
    }
    workgroupBarrier();
    if (index == 0u) {
        counts[group.x] = atomicLoad(&found);
    }
}
