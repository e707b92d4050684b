// FNV-1a of each 32-bit word, byte by byte.
@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> hashes: array<u32>;

fn fnv1a(word: u32) -> u32 {
    var hash = 2166136261u;
    for (var byte = 0u; byte < 4u; byte++) {
        hash ^= (word >> (8u * byte)) & 0xffu;
        hash *= 16777619u;
    }
    return hash;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&hashes) {
        hashes[id.x] = fnv1a(words[id.x]);
    }
}
