//! Numbers as WGSL text, exact to the bit. Rust's shortest decimal form reads back exactly and always has a point or an
//! exponent, which is what WGSL wants.

use vyre_foundation::ir::Literal;

/// The text of a constant that WGSL can write; infinities and NaN it can't.
pub(super) fn constant(literal: &Literal) -> Option<String> {
    Some(match *literal {
        Literal::Bool(value) => value.to_string(),
        Literal::U32(value) => format!("{value}u"),
        Literal::I32(i32::MIN) => "i32(-2147483648)".into(),
        Literal::I32(value) => format!("{value}i"),
        Literal::U64(value) => format!("{value}lu"),
        Literal::I64(i64::MIN) => "(-9223372036854775807li - 1li)".into(),
        Literal::I64(value) => format!("{value}li"),
        Literal::F16(value) if value.is_finite() => format!("{:?}h", value.to_f32()),
        Literal::F32(value) if value.is_finite() => format!("{value:?}f"),
        Literal::F64(value) if value.is_finite() => format!("{value:?}lf"),
        _ => return None,
    })
}

/// A float that is no constant: the bits of an f32 with the same value, and what converts it.
pub(super) fn special(literal: &Literal) -> Option<(u32, &'static str)> {
    match *literal {
        Literal::F16(value) => Some((value.to_f32().to_bits(), "f16")),
        Literal::F32(value) => Some((value.to_bits(), "f32")),
        Literal::F64(value) => Some(((value as f32).to_bits(), "f64")),
        _ => None,
    }
}
