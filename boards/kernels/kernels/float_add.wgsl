// Floats added to random places, by a loop that compares and exchanges.
@group(0) @binding(0) var<storage, read> places: array<u32>;
@group(0) @binding(1) var<storage, read> values: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&places)) {
        return;
    }
    let place = places[id.x];
    var old = atomicLoad(&sums[place]);
    loop {
        let next = bitcast<u32>(bitcast<f32>(old) + values[id.x]);
        let tried = atomicCompareExchangeWeak(&sums[place], old, next);
        if (tried.exchanged) {
            break;
        }
        old = tried.old_value;
    }
}
