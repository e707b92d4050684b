// Summed-area table of a small image: each output is the sum over the rectangle up to it, by nested loops.
@group(0) @binding(0) var<uniform> size: vec2<u32>;
@group(0) @binding(1) var<storage, read> image: array<u32>;
@group(0) @binding(2) var<storage, read_write> table: array<u32>;

@compute @workgroup_size(8, 8)
fn prefix_table(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= size) {
        return;
    }
    var sum = 0u;
    for (var y = 0u; y <= id.y; y++) {
        for (var x = 0u; x <= id.x; x++) {
            sum += image[y * size.x + x];
        }
    }
    table[id.y * size.x + id.x] = sum;
}
