// Numbers above a limit are appended to a list; their places come from a counter.
@group(0) @binding(0) var<storage, read> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> count: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> list: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&input)) {
        return;
    }
    let value = input[id.x];
    if (value > 0xc0000000u) {
        let place = atomicAdd(&count[0], 1u);
        list[place % arrayLength(&list)] = 7u;
    }
}
