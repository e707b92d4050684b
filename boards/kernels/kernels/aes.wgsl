// Ten rounds of a block cipher with one table in workgroup memory.
@group(0) @binding(0) var<storage, read> blocks: array<vec4u>;
@group(0) @binding(1) var<storage, read> lookup: array<u32, 256>;
@group(0) @binding(2) var<storage, read> keys: array<vec4u, 11>;
@group(0) @binding(3) var<storage, read_write> encrypted: array<vec4u>;

var<workgroup> table: array<u32, 256>;

fn turned(x: u32, bits: u32) -> u32 {
    return (x << bits) | (x >> (32u - bits));
}

fn column(a: u32, b: u32, c: u32, d: u32, key: u32) -> u32 {
    return table[a & 255u] ^ turned(table[(b >> 8u) & 255u], 8u) ^ turned(table[(c >> 16u) & 255u], 16u) ^ turned(table[d >> 24u], 24u) ^ key;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) local: u32) {
    table[local] = lookup[local];
    workgroupBarrier();
    if (id.x >= arrayLength(&blocks)) {
        return;
    }
    var s = blocks[id.x] ^ keys[0];
    for (var round = 1u; round <= 10u; round++) {
        let k = keys[round];
        s = vec4u(
            column(s.x, s.y, s.z, s.w, k.x),
            column(s.y, s.z, s.w, s.x, k.y),
            column(s.z, s.w, s.x, s.y, k.z),
            column(s.w, s.x, s.y, s.z, k.w),
        );
    }
    encrypted[id.x] = s;
}
