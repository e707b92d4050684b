// One step of a bitonic sort of everything: each invocation compares its key with its partner's.
struct Step {
    block: u32,
    distance: u32,
    unused: vec2u,
}

@group(0) @binding(0) var<uniform> step: Step;
@group(0) @binding(1) var<storage, read_write> keys: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    let partner = i ^ step.distance;
    if (partner > i && partner < arrayLength(&keys)) {
        let a = keys[i];
        let b = keys[partner];
        let rising = (i & step.block) == 0u;
        if ((rising && a > b) || (!rising && a < b)) {
            keys[i] = b;
            keys[partner] = a;
        }
    }
}
