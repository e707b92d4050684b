// SHA-256 of one padded 512-bit block an invocation: 16 big-endian words in, 8 words out.
const round_constants = array<u32, 64>(
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u,
    0x923f82a4u, 0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u,
    0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u,
    0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u,
    0x06ca6351u, 0x14292967u, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u,
    0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu,
    0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au,
    0x5b9cca4fu, 0x682e6ff3u, 0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u,
    0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u,
);

@group(0) @binding(0) var<storage, read> blocks: array<array<u32, 16>>;
@group(0) @binding(1) var<storage, read_write> digests: array<array<u32, 8>>;

fn rotate_right(x: u32, by: u32) -> u32 {
    return (x >> by) | (x << (32u - by));
}

fn extend(schedule: ptr<function, array<u32, 64>>) {
    for (var i = 16; i < 64; i++) {
        let a = (*schedule)[i - 15];
        let b = (*schedule)[i - 2];
        let s0 = rotate_right(a, 7u) ^ rotate_right(a, 18u) ^ (a >> 3u);
        let s1 = rotate_right(b, 17u) ^ rotate_right(b, 19u) ^ (b >> 10u);
        (*schedule)[i] = (*schedule)[i - 16] + s0 + (*schedule)[i - 7] + s1;
    }
}

@compute @workgroup_size(32)
fn sha256(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&blocks) {
        return;
    }
    var schedule: array<u32, 64>;
    for (var i = 0; i < 16; i++) {
        schedule[i] = blocks[id.x][i];
    }
    extend(&schedule);
    let start = array<u32, 8>(0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u);
    var h = start;
    for (var i = 0; i < 64; i++) {
        let s1 = rotate_right(h[4], 6u) ^ rotate_right(h[4], 11u) ^ rotate_right(h[4], 25u);
        let choice = (h[4] & h[5]) ^ (~h[4] & h[6]);
        let t1 = h[7] + s1 + choice + round_constants[i] + schedule[i];
        let s0 = rotate_right(h[0], 2u) ^ rotate_right(h[0], 13u) ^ rotate_right(h[0], 22u);
        let majority = (h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]);
        h = array<u32, 8>(t1 + s0 + majority, h[0], h[1], h[2], h[3] + t1, h[4], h[5], h[6]);
    }
    for (var i = 0; i < 8; i++) {
        digests[id.x][i] = start[i] + h[i];
    }
}
