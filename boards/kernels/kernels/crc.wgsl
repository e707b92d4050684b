// The CRC-32 of each block of 64 bytes, with a table.
@group(0) @binding(0) var<storage, read> data: array<u32>;
@group(0) @binding(1) var<storage, read> table: array<u32>;
@group(0) @binding(2) var<storage, read_write> sums: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&sums)) {
        return;
    }
    var crc = 0xffffffffu;
    for (var i = 0u; i < 16u; i++) {
        let word = data[id.x * 16u + i];
        for (var byte = 0u; byte < 4u; byte++) {
            let index = (crc ^ (word >> (8u * byte))) & 0xffu;
            crc = (crc >> 8u) ^ table[index];
        }
    }
    sums[id.x] = ~crc;
}
