//! Inputs that need no file: `iota:1000`, `random:f32:1e6:seed=1`, `zeros:1024`, `ones:16`, `text:hello`, `1,2,3`.

use vyre::{DataType, Diagnostic, codes};

use super::contents::{Contents, Numbers};
use super::number::{Fit, Number, is_number, width};
use crate::memory;

/// The most elements that a generator makes.
const MAX_ELEMENTS: f64 = 4.0e9;

/// The words that generators begin with.
pub(crate) const WORDS: [&str; 5] = ["iota", "zeros", "ones", "random", TEXT];
/// The bytes of a text.
const TEXT: &str = "text";

/// Makes the contents that `text` describes, or gives `None` when it describes none (then it is a file's name). `want` is the type of
/// numbers that the buffer holds, where it is one.
pub(crate) fn generate(text: &str, want: Option<&DataType>) -> Option<Result<Contents, Diagnostic>> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    let made = match word {
        TEXT if !rest.is_empty() => Ok(Contents::plain(DataType::U8, vec![rest.len()], rest.as_bytes().to_vec())),
        TEXT if text.contains(':') => Err("it has no letters, as in `text:hello`".to_owned()),
        TEXT => return None,
        _ if WORDS.contains(&word) => Series::new(word, rest, want).and_then(Series::make),
        _ if looks_like_list(text) && text.split(',').all(|item| item.trim().parse::<Number>().is_ok()) => {
            let numbers: Vec<Number> = text.split(',').filter_map(|item| item.trim().parse().ok()).collect();
            let shape = vec![numbers.len()];
            Ok(Contents { numbers: Numbers::Text(numbers), shape, names: Vec::new() })
        }
        _ => return None,
    };
    Some(made.map_err(|problem| {
        Diagnostic::new(&codes::command::BAD_GENERATOR, format!("`{text}` can't be made: {problem}"))
    }))
}

/// It begins as a list of numbers does.
pub(crate) fn looks_like_list(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        || ["inf", "nan", "true", "false"]
            .iter()
            .any(|word| text.split(',').next().is_some_and(|first| first.eq_ignore_ascii_case(word)))
}

/// How many bytes a generator would make, without making them; `None` where `text` is none, or a wrong one.
pub(crate) fn generated_bytes(text: &str, want: &DataType) -> Option<u64> {
    let (word, rest) = text.split_once(':')?;
    let series = (word != TEXT && WORDS.contains(&word)).then(|| Series::new(word, rest, Some(want)))?.ok()?;
    (series.ty == *want).then(|| series.bytes())
}

/// Numbers that follow from a few words.
struct Series<'a> {
    word: &'a str,
    shape: Vec<usize>,
    count: usize,
    ty: DataType,
    bits: usize,
    seed: u64,
    low: f64,
    high: f64,
}

impl<'a> Series<'a> {
    fn new(word: &'a str, rest: &str, want: Option<&DataType>) -> Result<Series<'a>, String> {
        let mut shape = None;
        let mut ty = want.cloned();
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
                ty = Some(named);
            } else {
                shape = Some(part.split('x').map(size).collect::<Result<Vec<usize>, String>>()?);
            }
        }
        let shape = shape.ok_or(format!("a size is missing, as in `{word}:1024` or `{word}:64x64`"))?;
        let count = shape.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis));
        let count = count.filter(|&count| count as f64 <= MAX_ELEMENTS).ok_or("the size is over 4e9 elements")?;
        let ty = ty.ok_or(format!("numbers of which type? Write it, as in `{word}:f32:1024`"))?;
        let bits = ty.bits().ok_or(format!("elements of {ty} can't be made"))? as usize;
        Ok(Series { word, shape, count, ty, bits, seed, low, high })
    }

    fn bytes(&self) -> u64 {
        (self.count as u64 * self.bits as u64).div_ceil(8)
    }

    fn make(self) -> Result<Contents, String> {
        memory::room_for(self.bytes())?;
        let Series { word, shape, count, ty, low, high, .. } = self;
        if word == "zeros" {
            let bytes = vec![0; (count * self.bits).div_ceil(8)];
            let numbers = if is_number(&ty) { Numbers::Plain(ty, bytes) } else { Numbers::Raw(bytes) };
            return Ok(Contents { numbers, shape, names: Vec::new() });
        }
        let mut bytes = Vec::with_capacity(count * width(&ty));
        let mut random = SplitMix(self.seed);
        let is_float = matches!(ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64);
        // Floats are rounded, and counters wrap around.
        let fit = Fit::Cast;
        for at in 0..count {
            let number = match word {
                "iota" if is_float => Number::Whole(at as i128),
                "iota" => Number::Whole(wrap(at as u64, &ty)),
                "ones" => Number::Whole(1),
                _ if is_float => Number::Real(low + (high - low) * random.unit()),
                _ => Number::Whole(wrap(random.next(), &ty)),
            };
            bytes.extend_from_slice(&number.bits(&ty, fit)?.to_le_bytes()[..width(&ty)]);
        }
        Ok(Contents::plain(ty, shape, bytes))
    }
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

pub(crate) fn size(text: &str) -> Result<usize, String> {
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

    fn made(text: &str, want: DataType) -> Result<Contents, String> {
        generate(text, Some(&want)).expect("a generator").map_err(|diagnostic| diagnostic.message)
    }

    #[test]
    fn series_have_type_size_and_seed() {
        let iota = made("iota:4", DataType::U32).unwrap();
        assert_eq!(iota.numbers, Numbers::Plain(DataType::U32, [0u32, 1, 2, 3].map(u32::to_le_bytes).concat()));
        let a = made("random:f32:1e3:seed=1", DataType::F32).unwrap();
        assert_eq!(a.shape, [1000]);
        assert_eq!(a, made("random:1000:seed=1", DataType::F32).unwrap());
        assert_ne!(a, made("random:1000:seed=2", DataType::F32).unwrap());
        assert_eq!(made("zeros:2x3", DataType::F64).unwrap().numbers, Numbers::Plain(DataType::F64, vec![0; 48]));
        let list = [1, -2, 16].map(Number::Whole).to_vec();
        assert_eq!(made("1,-2,0x10", DataType::I8).unwrap().numbers, Numbers::Text(list));
    }

    #[test]
    fn what_can_t_be_made_is_said() {
        assert!(made("zeros:NaN", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("zeros:-1", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("zeros:1e30", DataType::U32).unwrap_err().contains("is not a size"));
        assert!(made("iota", DataType::U32).unwrap_err().contains("a size is missing"));
        assert!(generate("zeros:4", None).unwrap().unwrap_err().message.contains("which type"));
        assert!(generate("data.npy", Some(&DataType::U32)).is_none());
    }
}
