// Every body is drawn by all others.
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
const others = 512u;

@compute @workgroup_size(16)
fn nbody(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&a) / 64u {
        return;
    }
    let here = a[id.x];
    var pull = 0.0;
    for (var i = 0u; i < others; i++) {
        let away = a[i] - here;
        pull += away / (away * away + 0.01);
    }
    out[id.x] = pull;
}
