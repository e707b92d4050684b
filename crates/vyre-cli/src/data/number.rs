//! Numbers on their way between files and buffers.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use vyre::DataType;

/// A number as a file holds it or someone wrote it: whole, so that 64-bit integers keep every digit, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Real(f64),
}

/// What may happen to a number that its element can't hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Nothing.
    Exact,
    /// Decimal text is rounded to the nearest float.
    Nearest,
    /// Everything: floats are rounded, fractions cut off, whole numbers wrapped around.
    Cast,
}

impl FromStr for Number {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (sign, digits) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        if let Some(hex) = digits.strip_prefix("0x") {
            return u64::from_str_radix(hex, 16).map(|value| Number::Whole(sign * i128::from(value))).map_err(|_| ());
        }
        match text {
            "true" => return Ok(Number::Whole(1)),
            "false" => return Ok(Number::Whole(0)),
            _ => {}
        }
        text.parse().map(Number::Whole).or_else(|_| text.parse().map(Number::Real)).map_err(|_| ())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Whole(value) => value.fmt(f),
            Number::Real(value) => value.fmt(f),
        }
    }
}

impl Number {
    pub(crate) fn real(self) -> f64 {
        match self {
            Number::Whole(value) => value as f64,
            Number::Real(value) => value,
        }
    }

    /// The bits of this number as an element, the lowest first; says why it has none.
    pub(crate) fn bits(self, ty: &DataType, fit: Fit) -> Result<u64, String> {
        match ty {
            DataType::Bool => match self {
                Number::Whole(value @ 0..=1) => Ok(value as u64),
                other if fit == Fit::Cast => Ok(u64::from(other.real() != 0.0)),
                other if other.real() == 0.0 || other.real() == 1.0 => Ok(other.real() as u64),
                other => Err(format!("{other} is neither 0 nor 1")),
            },
            DataType::U8 => self.whole(0, u8::MAX.into(), ty, fit),
            DataType::I8 => self.whole(i8::MIN.into(), i8::MAX.into(), ty, fit),
            DataType::U16 => self.whole(0, u16::MAX.into(), ty, fit),
            DataType::I16 => self.whole(i16::MIN.into(), i16::MAX.into(), ty, fit),
            DataType::U32 => self.whole(0, u32::MAX.into(), ty, fit),
            DataType::I32 => self.whole(i32::MIN.into(), i32::MAX.into(), ty, fit),
            DataType::U64 => self.whole(0, u64::MAX.into(), ty, fit),
            DataType::I64 => self.whole(i64::MIN.into(), i64::MAX.into(), ty, fit),
            DataType::F16 => {
                let value = f16::from_f64(self.real());
                self.rounded(value.to_f64(), value.to_bits().into(), ty, fit)
            }
            DataType::BF16 => {
                let value = bf16::from_f64(self.real());
                self.rounded(value.to_f64(), value.to_bits().into(), ty, fit)
            }
            DataType::F32 => {
                let value = match self {
                    Number::Whole(value) => value as f32,
                    Number::Real(value) => value as f32,
                };
                self.rounded(value.into(), value.to_bits().into(), ty, fit)
            }
            DataType::F64 => self.rounded(self.real(), self.real().to_bits(), ty, fit),
            _ => Err(format!("numbers can't be written as {ty}; pass the bytes as raw:FILE")),
        }
    }

    fn whole(self, low: i128, high: i128, ty: &DataType, fit: Fit) -> Result<u64, String> {
        let value = match self {
            Number::Whole(value) if (low..=high).contains(&value) || fit == Fit::Cast => value,
            Number::Real(value) if value.fract() == 0.0 && (low..=high).contains(&(value as i128)) => value as i128,
            // NaN becomes zero.
            Number::Real(value) if fit == Fit::Cast => (value as i128).clamp(low, high),
            Number::Whole(value) => return Err(format!("{value} does not fit {ty}")),
            Number::Real(value) => return Err(format!("{value} is not a value of {ty}")),
        };
        Ok(value as u64)
    }

    /// `held` is what the element would hold.
    fn rounded(self, held: f64, bits: u64, ty: &DataType, fit: Fit) -> Result<u64, String> {
        let exact = match self {
            Number::Whole(value) => held.is_finite() && held as i128 == value,
            Number::Real(value) => held == value || value.is_nan(),
        };
        match fit {
            _ if exact || fit == Fit::Cast => Ok(bits),
            Fit::Nearest if held.is_finite() => Ok(bits),
            _ if held.is_infinite() => Err(format!("{self} is too large for {ty}")),
            _ => Err(format!("{self} is not exact in {ty}")),
        }
    }

    /// The number that an element holds; none where its type is no number.
    pub(crate) fn read(bytes: &[u8], ty: &DataType) -> Option<Number> {
        fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.get(..N)?.try_into().ok()
        }
        Some(match ty {
            DataType::U8 => Number::Whole((*bytes.first()?).into()),
            DataType::I8 => Number::Whole((*bytes.first()? as i8).into()),
            DataType::U16 => Number::Whole(u16::from_le_bytes(array(bytes)?).into()),
            DataType::I16 => Number::Whole(i16::from_le_bytes(array(bytes)?).into()),
            DataType::U32 | DataType::Bool => Number::Whole(u32::from_le_bytes(array(bytes)?).into()),
            DataType::I32 => Number::Whole(i32::from_le_bytes(array(bytes)?).into()),
            DataType::U64 => Number::Whole(u64::from_le_bytes(array(bytes)?).into()),
            DataType::I64 => Number::Whole(i64::from_le_bytes(array(bytes)?).into()),
            DataType::F16 => Number::Real(f16::from_le_bytes(array(bytes)?).to_f64()),
            DataType::BF16 => Number::Real(bf16::from_le_bytes(array(bytes)?).to_f64()),
            DataType::F32 => Number::Real(f32::from_le_bytes(array(bytes)?).into()),
            DataType::F64 => Number::Real(f64::from_le_bytes(array(bytes)?)),
            _ => return None,
        })
    }

    /// As few digits as tell it apart from other values of its type.
    pub(crate) fn show(self, ty: &DataType) -> String {
        match (self, ty) {
            (Number::Real(value), DataType::F16 | DataType::BF16 | DataType::F32) => (value as f32).to_string(),
            _ => self.to_string(),
        }
    }
}

/// Bytes of a number's element.
pub(crate) fn width(ty: &DataType) -> usize {
    (ty.bits().unwrap_or(8) as usize).div_ceil(8)
}

pub(crate) fn is_number(ty: &DataType) -> bool {
    Number::read(&[0; 8], ty).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(text: &str, ty: DataType, fit: Fit) -> Result<u64, String> {
        text.parse::<Number>().expect("a number").bits(&ty, fit)
    }

    #[test]
    fn what_is_lossless_is_taken_and_the_rest_is_refused() {
        assert_eq!(bits("255", DataType::U8, Fit::Exact), Ok(255));
        assert!(bits("256", DataType::U8, Fit::Exact).unwrap_err().contains("does not fit u8"));
        assert_eq!(bits("256", DataType::U8, Fit::Cast).unwrap() as u8, 0);
        assert_eq!(bits("-1", DataType::I64, Fit::Exact), Ok(u64::MAX));
        assert_eq!(bits("0.5", DataType::F16, Fit::Exact), Ok(0x3800));
        assert!(bits("0.1", DataType::F32, Fit::Exact).unwrap_err().contains("not exact"));
        assert_eq!(bits("0.1", DataType::F32, Fit::Nearest), Ok(0.1f32.to_bits().into()));
        assert!(bits("1e6", DataType::F16, Fit::Nearest).unwrap_err().contains("too large"));
        assert!(bits("16777217", DataType::F32, Fit::Exact).is_err());
        assert_eq!(bits("16777216", DataType::BF16, Fit::Exact), Ok(0x4b80));
        assert!(bits("NaN", DataType::F32, Fit::Exact).is_ok() && bits("-inf", DataType::F16, Fit::Exact).is_ok());
        assert_eq!(bits("2.9", DataType::I32, Fit::Cast), Ok(2));
        assert!(bits("2.9", DataType::I32, Fit::Nearest).is_err());
        assert_eq!(bits("NaN", DataType::U32, Fit::Cast), Ok(0));
        assert!(bits("2", DataType::Bool, Fit::Exact).is_err());
        assert_eq!(bits("-0x10", DataType::I32, Fit::Exact).unwrap() as i32, -16);
    }

    #[test]
    fn elements_are_read_as_they_were_written() {
        for ty in [DataType::U8, DataType::I16, DataType::U64, DataType::F16, DataType::BF16, DataType::F64] {
            let bytes = bits("3", ty.clone(), Fit::Exact).unwrap().to_le_bytes();
            assert_eq!(Number::read(&bytes, &ty).unwrap().real(), 3.0, "{ty}");
        }
    }
}
