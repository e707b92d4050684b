// Steps of the Collatz sequence until one, or the largest number where it leaves 32 bits.
@group(0) @binding(0) var<storage, read> starts: array<u32>;
@group(0) @binding(1) var<storage, read_write> steps: array<u32>;

fn collatz(start: u32) -> u32 {
    var n = start;
    var count = 0u;
    while n > 1u {
        if n % 2u == 0u {
            n = n / 2u;
        } else {
            if n >= 1431655765u {
                return 4294967295u;
            }
            n = 3u * n + 1u;
        }
        count = count + 1u;
    }
    return count;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&starts) {
        steps[id.x] = collatz(starts[id.x]);
    }
}
