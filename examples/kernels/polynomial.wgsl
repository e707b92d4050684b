// Evaluates a polynomial and its derivative by Horner's rule; the coefficients end in an array of open length.
struct Polynomial {
    scale: f32,
    shift: f32,
    coefficients: array<f32>,
}

@group(0) @binding(0) var<storage, read> polynomial: Polynomial;
@group(0) @binding(1) var<storage, read> xs: array<f32>;
@group(0) @binding(2) var<storage, read_write> results: array<vec2<f32>>;

@compute @workgroup_size(64)
fn evaluate(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&xs) {
        return;
    }
    let x = xs[id.x] * polynomial.scale + polynomial.shift;
    var value = vec2<f32>(0.0);
    for (var i = i32(arrayLength(&polynomial.coefficients)) - 1; i >= 0; i--) {
        value.y = value.y * x + value.x;
        value.x = value.x * x + polynomial.coefficients[i];
    }
    results[id.x] = value;
}
