// What can be read off the bits of a word: counts, positions, mirrored order, Gray code, next power of two, interleaving.
struct Facts {
    ones: u32,
    leading: u32,
    trailing: u32,
    mirrored: u32,
    gray: u32,
    next_power: u32,
    spread: u32,
    inserted: u32,
}

@group(0) @binding(0) var<storage, read> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> facts: array<Facts>;

// Puts a zero between the low sixteen bits.
fn spread(word: u32) -> u32 {
    var x = word & 0xffffu;
    x = (x | (x << 8u)) & 0x00ff00ffu;
    x = (x | (x << 4u)) & 0x0f0f0f0fu;
    x = (x | (x << 2u)) & 0x33333333u;
    return (x | (x << 1u)) & 0x55555555u;
}

@compute @workgroup_size(64)
fn bit_tricks(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&words) {
        return;
    }
    let word = words[id.x];
    var out: Facts;
    out.ones = countOneBits(word);
    out.leading = countLeadingZeros(word);
    out.trailing = countTrailingZeros(word);
    out.mirrored = reverseBits(word);
    out.gray = word ^ (word >> 1u);
    out.next_power = select(1u << (firstLeadingBit(max(word, 2u) - 1u) + 1u), 1u, word <= 1u);
    out.spread = spread(word) | (spread(word >> 16u) << 1u);
    out.inserted = insertBits(word, 0x5u, 4u, 4u);
    facts[id.x] = out;
}
