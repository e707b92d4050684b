// Prices of European call options.
struct Option {
    spot: f32,
    strike: f32,
    years: f32,
    rate: f32,
    volatility: f32,
}

@group(0) @binding(0) var<storage, read> options: array<Option>;
@group(0) @binding(1) var<storage, read_write> prices: array<f32>;

// Abramowitz and Stegun 26.2.17.
fn normal_cdf(x: f32) -> f32 {
    let k = 1.0 / (1.0 + 0.2316419 * abs(x));
    let poly = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
    let tail = 0.39894228 * exp(-0.5 * x * x) * poly;
    return select(tail, 1.0 - tail, x >= 0.0);
}

@compute @workgroup_size(64)
fn black_scholes(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&options) {
        return;
    }
    let o = options[id.x];
    let spread = o.volatility * sqrt(o.years);
    let d1 = (log(o.spot / o.strike) + (o.rate + 0.5 * o.volatility * o.volatility) * o.years) / spread;
    let d2 = d1 - spread;
    prices[id.x] = o.spot * normal_cdf(d1) - o.strike * exp(-o.rate * o.years) * normal_cdf(d2);
}
