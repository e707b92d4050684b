// The largest value of a block and where it stands, with a struct in workgroup memory.
struct Best {
    value: f32,
    index: u32,
}

@group(0) @binding(0) var<storage, read> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> best: array<Best>;

var<workgroup> shared_best: array<Best, 64>;

fn better(a: Best, b: Best) -> Best {
    if b.value > a.value || (b.value == a.value && b.index < a.index) {
        return b;
    }
    return a;
}

@compute @workgroup_size(64)
fn reduce_max_index(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    var own = Best(-3.0e38, 0xffffffffu);
    if id.x < arrayLength(&values) {
        own = Best(values[id.x], id.x);
    }
    shared_best[lane] = own;
    workgroupBarrier();
    var half = 32u;
    loop {
        if lane < half {
            shared_best[lane] = better(shared_best[lane], shared_best[lane + half]);
        }
        workgroupBarrier();
        continuing {
            half = half / 2u;
            break if half == 0u;
        }
    }
    if lane == 0u {
        best[group.x] = shared_best[0];
    }
}
