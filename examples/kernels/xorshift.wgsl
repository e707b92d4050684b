// Fills an array with xorshift32 numbers, each stream skipped by a different number of steps.
@group(0) @binding(0) var<storage, read_write> numbers: array<u32, 96>;

@compute @workgroup_size(32)
fn xorshift(@builtin(global_invocation_id) id: vec3<u32>) {
    var x = 2463534242u ^ id.x;
    var steps = id.x % 7u;
    loop {
        x ^= x << 13u;
        x ^= x >> 17u;
        x ^= x << 5u;
        if steps == 0u {
            break;
        }
        steps--;
    }
    numbers[id.x] = x;
}
