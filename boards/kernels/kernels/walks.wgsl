// Asian options: the mean along a random walk of 32 steps, four walks for each invocation.
struct Params {
    drift: f32,
    volatility: f32,
    strike: f32,
    seed: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> values: array<f32>;

fn pcg(x: u32) -> u32 {
    let state = x * 747796405u + 2891336453u;
    let word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (word >> 22u) ^ word;
}

fn uniform_of(x: u32) -> f32 {
    return (f32(x >> 9u) + 0.5) / 8388608.0;
}

@compute @workgroup_size(128)
fn main(@builtin(global_invocation_id) id: vec3u) {
    if (id.x >= arrayLength(&values)) {
        return;
    }
    var seed = pcg(id.x ^ params.seed);
    var total = 0.0;
    for (var walk = 0; walk < 4; walk++) {
        var price = 100.0;
        var sum = 0.0;
        for (var step = 0; step < 32; step += 2) {
            seed = pcg(seed);
            let u = uniform_of(seed);
            seed = pcg(seed);
            let v = uniform_of(seed) * 6.2831853;
            let radius = sqrt(-2.0 * log(u));
            price *= exp(params.drift + params.volatility * radius * cos(v));
            sum += price;
            price *= exp(params.drift + params.volatility * radius * sin(v));
            sum += price;
        }
        total += max(sum / 32.0 - params.strike, 0.0);
    }
    values[id.x] = total / 4.0;
}
