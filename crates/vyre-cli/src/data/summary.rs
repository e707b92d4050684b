//! What a result looks like in a few lines.

use std::fmt::Write;

use half::{bf16, f16};
use vyre::DataType;

use super::Array;

/// How many values are shown at each end.
const SHOWN: usize = 4;

/// The element at `at` as text; its bytes in hexadecimal when it is no number.
pub(super) fn show(array: &Array, at: usize) -> String {
    match number(array, at) {
        // Through f64 these would lose digits.
        Some(_) if array.ty == DataType::U64 => word(array, at).to_string(),
        Some(_) if array.ty == DataType::I64 => (word(array, at) as i64).to_string(),
        Some(value) => match array.ty {
            DataType::F16 | DataType::BF16 | DataType::F32 => (value as f32).to_string(),
            _ => value.to_string(),
        },
        None => {
            let size = array.ty.bits().unwrap_or(8) as usize / 8;
            array.bytes.iter().skip(at * size).take(size.max(1)).map(|byte| format!("{byte:02x}")).collect()
        }
    }
}

fn word(array: &Array, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&array.bytes[at * 8..at * 8 + 8]);
    u64::from_le_bytes(bytes)
}

fn number(array: &Array, at: usize) -> Option<f64> {
    let size = array.ty.bits()? as usize / 8;
    let bytes = array.bytes.get(at * size..at * size + size)?;
    Some(match array.ty {
        DataType::U8 => f64::from(bytes[0]),
        DataType::I8 => f64::from(bytes[0] as i8),
        DataType::U16 => f64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
        DataType::I16 => f64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        DataType::U32 | DataType::Bool => f64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        DataType::I32 => f64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        DataType::U64 => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
        DataType::I64 => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
        DataType::F16 => f64::from(f16::from_le_bytes(bytes.try_into().ok()?)),
        DataType::BF16 => f64::from(bf16::from_le_bytes(bytes.try_into().ok()?)),
        DataType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        DataType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// Shape, type, first and last values, and for numbers minimum, maximum, mean and the count of NaNs.
pub(crate) fn summary(array: &Array) -> String {
    let shape: Vec<String> = array.shape.iter().map(usize::to_string).collect();
    let mut out = format!("{} [{}]", array.ty, shape.join(" x "));
    let count = array.len();
    if count == 0 {
        return out + ", empty";
    }
    let values = |range: std::ops::Range<usize>| range.map(|at| show(array, at)).collect::<Vec<_>>().join(", ");
    if count <= 2 * SHOWN {
        _ = write!(out, "  {}", values(0..count));
    } else {
        _ = write!(out, "  {}, …, {}", values(0..SHOWN), values(count - SHOWN..count));
    }
    if number(array, 0).is_some() {
        let (mut low, mut high, mut sum, mut finite, mut nans) = (f64::INFINITY, f64::NEG_INFINITY, 0.0, 0u64, 0u64);
        for value in (0..count).filter_map(|at| number(array, at)) {
            if value.is_nan() {
                nans += 1;
            } else {
                low = low.min(value);
                high = high.max(value);
                sum += value;
                finite += 1;
            }
        }
        if finite > 0 {
            _ = write!(out, "\n    min {low}, max {high}, mean {}", sum / finite as f64);
        }
        if nans > 0 || matches!(array.ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64) {
            _ = write!(out, "{} {nans} NaN", if finite > 0 { "," } else { "\n   " });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_shows_both_ends_and_counts_nans() {
        let values = [1.0f32, 2.0, f32::NAN, 4.0, 5.0, 6.0, 7.0, 8.0, 9.5];
        let array = Array { ty: DataType::F32, shape: vec![9], bytes: values.map(f32::to_le_bytes).concat() };
        assert_eq!(summary(&array), "f32 [9]  1, 2, NaN, 4, …, 6, 7, 8, 9.5\n    min 1, max 9.5, mean 5.3125, 1 NaN");
        let big = Array { ty: DataType::U64, shape: vec![1], bytes: u64::MAX.to_le_bytes().to_vec() };
        assert!(summary(&big).starts_with("u64 [1]  18446744073709551615"));
        assert_eq!(summary(&Array { ty: DataType::F32, shape: vec![0], bytes: vec![] }), "f32 [0], empty");
    }
}
