// Counts random points in a quarter circle; the generator is PCG with a state of its own for each invocation.
@group(0) @binding(0) var<storage, read_write> hits: array<atomic<u32>, 1>;
@group(0) @binding(1) var<uniform> points: u32;

var<private> state: u32;

fn next() -> u32 {
    let old = state;
    state = old * 747796405u + 2891336453u;
    let word = ((old >> ((old >> 28u) + 4u)) ^ old) * 277803737u;
    return (word >> 22u) ^ word;
}

fn unit() -> f32 {
    return f32(next() >> 8u) / 16777216.0;
}

@compute @workgroup_size(64)
fn monte_carlo_pi(@builtin(global_invocation_id) id: vec3<u32>) {
    state = id.x * 9781u + 1u;
    var inside = 0u;
    for (var i = 0u; i < points; i++) {
        let x = unit();
        let y = unit();
        inside += u32(x * x + y * y <= 1.0);
    }
    atomicAdd(&hits[0], inside);
}
