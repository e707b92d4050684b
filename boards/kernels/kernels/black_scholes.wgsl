@group(0) @binding(0) var<storage, read> price: array<f32>;
@group(0) @binding(1) var<storage, read> strike: array<f32>;
@group(0) @binding(2) var<storage, read> years: array<f32>;
@group(0) @binding(3) var<storage, read_write> call: array<f32>;
@group(0) @binding(4) var<storage, read_write> put: array<f32>;

const RATE = 0.02;
const VOLATILITY = 0.3;

fn cnd(d: f32) -> f32 {
    let k = 1.0 / (1.0 + 0.2316419 * abs(d));
    let poly = k * (0.31938153 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
    let c = 0.39894228 * exp(-0.5 * d * d) * poly;
    return select(c, 1.0 - c, d > 0.0);
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let i = id.x;
    if (i >= arrayLength(&price)) {
        return;
    }
    let s = price[i] * 25.0 + 5.0;
    let x = strike[i] * 99.0 + 1.0;
    let t = years[i] * 9.75 + 0.25;
    let root = sqrt(t);
    let d1 = (log(s / x) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * t) / (VOLATILITY * root);
    let d2 = d1 - VOLATILITY * root;
    let c1 = cnd(d1);
    let c2 = cnd(d2);
    let discount = exp(-RATE * t);
    call[i] = s * c1 - x * discount * c2;
    put[i] = x * discount * (1.0 - c2) - s * (1.0 - c1);
}
