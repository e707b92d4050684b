// The key stream of ChaCha20: 16 words for each invocation.
@group(0) @binding(0) var<storage, read> key: array<u32, 8>;
@group(0) @binding(1) var<storage, read> message: array<u32>;
@group(0) @binding(2) var<storage, read_write> secret: array<u32>;

fn rotated(x: u32, by: u32) -> u32 {
    return (x << by) | (x >> (32u - by));
}

fn quarter(s: ptr<function, array<u32, 16>>, a: u32, b: u32, c: u32, d: u32) {
    (*s)[a] += (*s)[b];
    (*s)[d] = rotated((*s)[d] ^ (*s)[a], 16u);
    (*s)[c] += (*s)[d];
    (*s)[b] = rotated((*s)[b] ^ (*s)[c], 12u);
    (*s)[a] += (*s)[b];
    (*s)[d] = rotated((*s)[d] ^ (*s)[a], 8u);
    (*s)[c] += (*s)[d];
    (*s)[b] = rotated((*s)[b] ^ (*s)[c], 7u);
}

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x * 16u >= arrayLength(&message)) {
        return;
    }
    var start: array<u32, 16>;
    start[0] = 0x61707865u;
    start[1] = 0x3320646eu;
    start[2] = 0x79622d32u;
    start[3] = 0x6b206574u;
    for (var i = 0u; i < 8u; i++) {
        start[4u + i] = key[i];
    }
    start[12] = id.x;
    start[13] = 7u;
    start[14] = 11u;
    start[15] = 13u;
    var state = start;
    for (var round = 0; round < 10; round++) {
        quarter(&state, 0u, 4u, 8u, 12u);
        quarter(&state, 1u, 5u, 9u, 13u);
        quarter(&state, 2u, 6u, 10u, 14u);
        quarter(&state, 3u, 7u, 11u, 15u);
        quarter(&state, 0u, 5u, 10u, 15u);
        quarter(&state, 1u, 6u, 11u, 12u);
        quarter(&state, 2u, 7u, 8u, 13u);
        quarter(&state, 3u, 4u, 9u, 14u);
    }
    for (var i = 0u; i < 16u; i++) {
        secret[id.x * 16u + i] = message[id.x * 16u + i] ^ (state[i] + start[i]);
    }
}
