//! Inputs that need no file: `iota:1000`, `random:f32:1e6:seed=1`, `zeros:1024`, `ones:16`, `1,2,3`.

use std::str::FromStr;

use half::{bf16, f16};
use vyre::{DataType, Diagnostic, codes};

use super::Array;

/// The most elements that a generator makes.
const MAX_ELEMENTS: f64 = 4.0e9;

/// A number as someone wrote it: whole, so that 64-bit integers keep every digit, or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Real(f64),
}

impl FromStr for Number {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(hex) = text.strip_prefix("0x") {
            return i128::from_str_radix(hex, 16).map(Number::Whole).map_err(|_| ());
        }
        match text {
            "true" => return Ok(Number::Whole(1)),
            "false" => return Ok(Number::Whole(0)),
            _ => {}
        }
        text.parse().map(Number::Whole).or_else(|_| text.parse().map(Number::Real)).map_err(|_| ())
    }
}

/// Appends a number as an element of type `ty`; says why it does not fit.
pub(crate) fn push_number(out: &mut Vec<u8>, number: Number, ty: &DataType) -> Result<(), String> {
    let real = match number {
        Number::Whole(value) => value as f64,
        Number::Real(value) => value,
    };
    let whole = |low: i128, high: i128| match number {
        Number::Whole(value) if (low..=high).contains(&value) => Ok(value),
        Number::Real(value) if value.fract() == 0.0 && value >= low as f64 && value <= high as f64 => Ok(value as i128),
        Number::Whole(value) => Err(format!("{value} does not fit {ty}")),
        Number::Real(value) => Err(format!("{value} is not a value of {ty}")),
    };
    match ty {
        DataType::Bool => out.extend(u32::from(real != 0.0).to_le_bytes()),
        DataType::U8 => out.push(whole(0, u8::MAX.into())? as u8),
        DataType::I8 => out.push(whole(i8::MIN.into(), i8::MAX.into())? as u8),
        DataType::U16 => out.extend((whole(0, u16::MAX.into())? as u16).to_le_bytes()),
        DataType::I16 => out.extend((whole(i16::MIN.into(), i16::MAX.into())? as i16).to_le_bytes()),
        DataType::U32 => out.extend((whole(0, u32::MAX.into())? as u32).to_le_bytes()),
        DataType::I32 => out.extend((whole(i32::MIN.into(), i32::MAX.into())? as i32).to_le_bytes()),
        DataType::U64 => out.extend((whole(0, u64::MAX.into())? as u64).to_le_bytes()),
        DataType::I64 => out.extend((whole(i64::MIN.into(), i64::MAX.into())? as i64).to_le_bytes()),
        DataType::F16 => out.extend(f16::from_f64(real).to_le_bytes()),
        DataType::BF16 => out.extend(bf16::from_f64(real).to_le_bytes()),
        DataType::F32 => out.extend((real as f32).to_le_bytes()),
        DataType::F64 => out.extend(real.to_le_bytes()),
        _ => return Err(format!("numbers can't be written as {ty}; pass the bytes in a .bin file")),
    }
    Ok(())
}

/// Makes the array that `text` describes, or gives `None` when it describes none (then it is a file's name).
pub(crate) fn generate(text: &str, want: &DataType) -> Option<Result<Array, Diagnostic>> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let made = match word {
        "iota" | "zeros" | "ones" | "random" => series(word, rest, want),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
            && text.split(',').all(|item| item.trim().parse::<Number>().is_ok()) =>
        {
            list(text, want)
        }
        _ => return None,
    };
    Some(made.map_err(|problem| {
        Diagnostic::new(&codes::command::BAD_GENERATOR, format!("`{text}` can't be made: {problem}"))
    }))
}

fn list(text: &str, want: &DataType) -> Result<Array, String> {
    let mut bytes = Vec::new();
    let mut count = 0;
    for item in text.split(',') {
        let number = item.trim().parse().map_err(|()| format!("`{item}` is not a number"))?;
        push_number(&mut bytes, number, want)?;
        count += 1;
    }
    Ok(Array { ty: want.clone(), shape: vec![count], bytes })
}

fn series(word: &str, rest: &str, want: &DataType) -> Result<Array, String> {
    let mut shape = None;
    let mut ty = want.clone();
    let mut seed = 0u64;
    let (mut low, mut high) = (0.0f64, 1.0f64);
    for part in rest.split(':').filter(|part| !part.is_empty()) {
        if let Some((key, value)) = part.split_once('=') {
            let number =
                || value.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or(format!("`{value}` is not a number"));
            match key {
                "seed" => seed = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?,
                "low" => low = number()?,
                "high" => high = number()?,
                _ => return Err(format!("`{key}` is not one of seed, low, high")),
            }
        } else if let Some(named) = type_named(part) {
            ty = named;
        } else {
            shape = Some(part.split('x').map(size).collect::<Result<Vec<usize>, String>>()?);
        }
    }
    let shape = shape.ok_or(format!("a size is missing, as in `{word}:1024` or `{word}:64x64`"))?;
    let count = shape.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis));
    let count = count.filter(|&count| count as f64 <= MAX_ELEMENTS).ok_or("the size is over 4e9 elements")?;
    let bits = ty.bits().ok_or(format!("elements of {ty} can't be made"))? as usize;
    if word == "zeros" {
        return Ok(Array { ty, shape, bytes: vec![0; (count * bits).div_ceil(8)] });
    }
    let mut bytes = Vec::with_capacity(count * bits / 8);
    let mut random = SplitMix(seed);
    let is_float = matches!(ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64);
    for at in 0..count {
        let number = match word {
            "iota" => Number::Whole(wrap(at as u64, &ty)),
            "ones" => Number::Whole(1),
            _ if is_float => Number::Real(low + (high - low) * random.unit()),
            _ => Number::Whole(wrap(random.next(), &ty)),
        };
        push_number(&mut bytes, number, &ty)?;
    }
    Ok(Array { ty, shape, bytes })
}

/// Brings a counter or random word into the range of an integer type.
fn wrap(value: u64, ty: &DataType) -> i128 {
    match ty {
        DataType::U8 => i128::from(value as u8),
        DataType::I8 => i128::from(value as i8),
        DataType::U16 => i128::from(value as u16),
        DataType::I16 => i128::from(value as i16),
        DataType::U32 => i128::from(value as u32),
        DataType::I32 => i128::from(value as i32),
        DataType::I64 => i128::from(value as i64),
        DataType::Bool => i128::from(value & 1),
        _ => i128::from(value),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a size or a type"))?;
    if value.fract() != 0.0 || !(0.0..=MAX_ELEMENTS).contains(&value) {
        return Err(format!("`{text}` is not a size"));
    }
    Ok(value as usize)
}

fn type_named(text: &str) -> Option<DataType> {
    Some(match text {
        "bool" => DataType::Bool,
        "u8" => DataType::U8,
        "i8" => DataType::I8,
        "u16" => DataType::U16,
        "i16" => DataType::I16,
        "u32" => DataType::U32,
        "i32" => DataType::I32,
        "u64" => DataType::U64,
        "i64" => DataType::I64,
        "f16" => DataType::F16,
        "bf16" => DataType::BF16,
        "f32" => DataType::F32,
        "f64" => DataType::F64,
        _ => return None,
    })
}

/// Steele, Lea and Flood's generator: tiny, and the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, want: DataType) -> Result<Array, String> {
        generate(text, &want).expect("a generator").map_err(|diagnostic| diagnostic.message)
    }

    #[test]
    fn series_have_type_size_and_seed() {
        let iota = made("iota:4", DataType::U32).unwrap();
        assert_eq!(iota.bytes, [0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        let a = made("random:f32:1e3:seed=1", DataType::F32).unwrap();
        assert_eq!(a.shape, [1000]);
        assert_eq!(a, made("random:1000:seed=1", DataType::F32).unwrap());
        assert_ne!(a, made("random:1000:seed=2", DataType::F32).unwrap());
        assert_eq!(made("zeros:2x3", DataType::F64).unwrap().bytes.len(), 48);
        assert_eq!(made("1,-2,3", DataType::I8).unwrap().bytes, [1, 254, 3]);
        assert_eq!(made("18446744073709551615", DataType::U64).unwrap().bytes, [255; 8]);
    }

    #[test]
    fn what_does_not_fit_is_said() {
        assert!(made("1,-2", DataType::U32).unwrap_err().contains("does not fit u32"));
        assert!(made("1.5", DataType::U32).unwrap_err().contains("is not a value of u32"));
        assert!(made("zeros:NaN", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("zeros:-1", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("zeros:1e30", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("iota", DataType::U32).unwrap_err().contains("a size is missing"));
        assert!(generate("data.npy", &DataType::U32).is_none());
    }
}
