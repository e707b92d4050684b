// Rows of 256 signed bytes, packed in words, times one vector.
@group(0) @binding(0) var<storage, read> rows: array<u32>;
@group(0) @binding(1) var<storage, read> vector: array<u32, 64>;
@group(0) @binding(2) var<storage, read_write> sums: array<i32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&sums)) {
        return;
    }
    var sum = 0;
    for (var k = 0u; k < 64u; k++) {
        sum += dot4I8Packed(rows[k * arrayLength(&sums) + id.x], vector[k]);
    }
    sums[id.x] = sum;
}
