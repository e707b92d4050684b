// MurmurHash3 (32 bits) of keys of four words each.
struct Key {
    words: array<u32, 4>,
}

@group(0) @binding(0) var<storage, read> keys: array<Key>;
@group(0) @binding(1) var<storage, read_write> hashes: array<u32>;

override seed: u32 = 0u;

fn rotate_left(x: u32, by: u32) -> u32 {
    return (x << by) | (x >> (32u - by));
}

fn mix(hash: ptr<function, u32>, word: u32) {
    let k = rotate_left(word * 0xcc9e2d51u, 15u) * 0x1b873593u;
    *hash = rotate_left(*hash ^ k, 13u) * 5u + 0xe6546b64u;
}

@compute @workgroup_size(64)
fn murmur3(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&keys) {
        return;
    }
    var hash = seed;
    for (var i = 0; i < 4; i++) {
        mix(&hash, keys[id.x].words[i]);
    }
    hash ^= 16u;
    hash ^= hash >> 16u;
    hash *= 0x85ebca6bu;
    hash ^= hash >> 13u;
    hash *= 0xc2b2ae35u;
    hash ^= hash >> 16u;
    hashes[id.x] = hash;
}
