// Where the largest number of each row of 4,096 is; of equal ones the first.
struct Best {
    value: f32,
    place: u32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> places: array<u32>;

const WIDTH = 4096u;
var<workgroup> found: array<Best, 256>;

fn better(a: Best, b: Best) -> Best {
    if (b.value > a.value || (b.value == a.value && b.place < a.place)) {
        return b;
    }
    return a;
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) local: u32, @builtin(workgroup_id) group: vec3u) {
    var best = Best(-1e30, 0u);
    for (var i = local; i < WIDTH; i += 256u) {
        best = better(best, Best(input[group.x * WIDTH + i], i));
    }
    found[local] = best;
    workgroupBarrier();
    for (var half = 128u; half > 0u; half /= 2u) {
        if (local < half) {
            found[local] = better(found[local], found[local + half]);
        }
        workgroupBarrier();
    }
    if (local == 0u) {
        places[group.x] = found[0].place;
    }
}
