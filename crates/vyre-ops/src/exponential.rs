//! eˣ for x ≤ 0, which is what softmax and attention need: half of the work of the function for all numbers, and the same bits everywhere.

use vyre::DataType;

/// The name of a function of a type, and its text for a kernel, where it has one. What is smaller than 2⁻¹²⁶ is 0; NaN stays NaN.
pub(crate) fn exponential(ty: &DataType) -> (&'static str, &'static str) {
    match ty {
        DataType::F64 => ("exp", ""),
        _ => ("call falling", FALLING),
    }
}

/// `x = n·ln 2 + r`, with `n + 127` in the lowest bits of `shifted`, where it becomes the exponent of the factor: that of −127 is 0.
const FALLING: &str = "fn falling(given: f32) -> f32 {
let x = max(given, -88.03);
let shifted = fma(x, f32#3fb8aa3b, 12583039.0);
let n = shifted - 12583039.0;
let high = fma(n, f32#bf317218, x);
let r = fma(n, f32#3102e308, high);
let p0 = fma(f32#3ab50d4b, r, f32#3c091fdc);
let p1 = fma(p0, r, f32#3d2aac8b);
let p2 = fma(p1, r, f32#3e2aaa45);
let p3 = fma(p2, r, f32#3efffffe);
let p4 = fma(r * r, p3, r);
return (p4 + 1.0) * bitcast<f32>(bitcast<u32>(shifted) << 23);
}
";
