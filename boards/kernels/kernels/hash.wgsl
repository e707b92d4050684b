@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&input)) {
        return;
    }
    var x = input[id.x];
    for (var round = 0u; round < 64u; round++) {
        x = (x ^ 61u) ^ (x >> 16u);
        x = x + (x << 3u);
        x = x ^ (x >> 4u);
        x = x * 0x27d4eb2du;
        x = x ^ (x >> 15u);
    }
    output[id.x] = x;
}
