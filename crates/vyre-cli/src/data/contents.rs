//! What a file or a generator holds, and how it becomes the bytes of a buffer.

use vyre::DataType;

use super::layout::{Field, Layout};
use super::number::{Fit, Number, width};

/// Numbers with a shape, or bytes that go into the buffer as they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contents {
    pub(crate) numbers: Numbers,
    /// In numbers; of records, in records.
    pub(crate) shape: Vec<usize>,
    /// The columns' names, where the file has them.
    pub(crate) names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Numbers {
    /// As they were written.
    Text(Vec<Number>),
    /// Of one type, next to each other.
    Plain(DataType, Vec<u8>),
    /// Several fields to a record of so many bytes.
    Records(Vec<Field>, usize, Vec<u8>),
    /// Samples of a picture, and the brightest that there can be.
    Samples(Vec<u16>, u16),
    /// A buffer's own bytes.
    Raw(Vec<u8>),
}

impl Contents {
    pub(crate) fn plain(ty: DataType, shape: Vec<usize>, bytes: Vec<u8>) -> Contents {
        Contents { numbers: Numbers::Plain(ty, bytes), shape, names: Vec::new() }
    }

    /// How many numbers there are.
    fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Text(list) => list.len(),
            Numbers::Plain(ty, bytes) => bytes.len() / width(ty).max(1),
            Numbers::Records(fields, size, bytes) => bytes.len() / (*size).max(1) * fields.len(),
            Numbers::Samples(samples, _) => samples.len(),
            Numbers::Raw(bytes) => bytes.len(),
        }
    }

    /// Numbers to a row: those that have names, or those of a record.
    fn columns(&self) -> &[String] {
        &self.names
    }

    /// The number at a place, as an element of a type.
    fn bits(&self, at: usize, ty: &DataType, cast: bool) -> Result<u64, String> {
        let typed = if cast { Fit::Cast } else { Fit::Exact };
        match &self.numbers {
            Numbers::Text(list) => list[at].bits(ty, if cast { Fit::Cast } else { Fit::Nearest }),
            Numbers::Plain(held, bytes) => {
                let size = width(held);
                let number = Number::read(&bytes[at * size..], held).ok_or_else(|| format!("{held} is no number"))?;
                number.bits(ty, typed)
            }
            Numbers::Records(fields, size, bytes) => {
                let field = &fields[at % fields.len()];
                let start = at / fields.len() * size + field.offset;
                let number =
                    Number::read(&bytes[start..], &field.ty).ok_or_else(|| format!("{} is no number", field.ty))?;
                number.bits(ty, typed)
            }
            // Floats are from 0 to 1, whole numbers are the samples.
            Numbers::Samples(samples, top) => match ty {
                DataType::F16 | DataType::BF16 | DataType::F32 | DataType::F64 => {
                    // Divided in f32, so that every type has what f32 has.
                    let level = f32::from(samples[at]) / f32::from(*top);
                    Number::Real(level.into()).bits(ty, Fit::Nearest)
                }
                _ => Number::Whole(samples[at].into()).bits(ty, typed),
            },
            Numbers::Raw(_) => Err("these are bytes".to_owned()),
        }
    }
}

/// The bytes of a buffer and its shape: in numbers, or for structs in elements.
pub(crate) struct Filled {
    pub(crate) bytes: Vec<u8>,
    pub(crate) shape: Vec<usize>,
}

/// Why contents are not those of a buffer.
#[derive(Debug, PartialEq)]
pub(crate) enum Misfit {
    Type(String),
    Length(String),
    Name(String),
}

/// Lays contents out as a buffer wants them.
pub(crate) fn fill(contents: Contents, layout: &Layout, cast: bool) -> Result<Filled, Misfit> {
    if let Numbers::Raw(bytes) = contents.numbers {
        if bytes.len() % layout.size.max(1) != 0 {
            let message = format!("an element takes {} bytes, but there are {}", layout.size, bytes.len());
            return Err(Misfit::Length(message));
        }
        let elements = bytes.len() / layout.size.max(1);
        let shape = match (layout.is_struct, layout.fields.len()) {
            (false, lanes @ 2..) => vec![elements, lanes],
            _ => vec![elements],
        };
        return Ok(Filled { bytes, shape });
    }
    let order = order(&contents, layout)?;
    let (columns, fields) = (order.len(), layout.fields.len());
    let count = contents.len();
    if !count.is_multiple_of(columns.max(1)) {
        let what = if layout.is_struct { "structs" } else { "vectors" };
        return Err(Misfit::Length(format!("it is made of {what} of {fields} numbers, but there are {count}")));
    }
    let shape = if layout.is_struct { element_shape(&contents, columns, count) } else { contents.shape.clone() };
    let straight = order.iter().enumerate().all(|(at, &column)| at == column);
    match (&contents.numbers, layout.packed()) {
        (Numbers::Plain(held, _), Some(wanted)) if straight && held == wanted => {
            let Numbers::Plain(_, bytes) = contents.numbers else { return Err(Misfit::Type(String::new())) };
            return Ok(Filled { bytes, shape });
        }
        _ => {}
    }
    let rows = count / columns.max(1);
    let mut bytes = vec![0; rows * layout.size];
    for (row, element) in bytes.chunks_exact_mut(layout.size.max(1)).enumerate() {
        for (field, &column) in layout.fields.iter().zip(&order) {
            let bits = contents.bits(row * columns + column, &field.ty, cast).map_err(|problem| {
                let place = if field.name.is_empty() { row.to_string() } else { format!("{row}, {}", field.name) };
                Misfit::Type(format!("{problem} (element {place})"))
            })?;
            let size = width(&field.ty);
            element[field.offset..field.offset + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }
    Ok(Filled { bytes, shape })
}

/// For each field, the column that it comes from.
fn order(contents: &Contents, layout: &Layout) -> Result<Vec<usize>, Misfit> {
    let names = contents.columns();
    if !layout.is_struct || names.is_empty() {
        if layout.is_struct && matches!(contents.numbers, Numbers::Plain(..) | Numbers::Samples(..)) {
            let last = contents.shape.last().copied().unwrap_or(0);
            if contents.shape.len() > 1 && last != layout.fields.len() {
                let message = format!("a struct has {} numbers, but a row has {last}", layout.fields.len());
                return Err(Misfit::Length(message));
            }
        }
        return Ok((0..layout.fields.len()).collect());
    }
    let mut order = vec![None; layout.fields.len()];
    for (column, name) in names.iter().enumerate() {
        match layout.named(name)[..] {
            [field] if order[field].is_none() => order[field] = Some(column),
            [field] => {
                return Err(Misfit::Name(format!("two columns are named for `{}`", layout.fields[field].name)));
            }
            _ => {
                let known = layout.fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
                return Err(Misfit::Name(format!("`{name}` is no number of the struct; it has {known}")));
            }
        }
    }
    let missing = order.iter().position(Option::is_none);
    match missing {
        Some(at) => Err(Misfit::Name(format!("no column is named for `{}`", layout.fields[at].name))),
        None => Ok(order.into_iter().flatten().collect()),
    }
}

/// The shape of structs: that of the file without the axis of their numbers.
fn element_shape(contents: &Contents, columns: usize, count: usize) -> Vec<usize> {
    if let Numbers::Records(..) = contents.numbers {
        return contents.shape.clone();
    }
    match contents.shape.split_last() {
        Some((&last, outer)) if last == columns && !outer.is_empty() => outer.to_vec(),
        _ => vec![count / columns.max(1)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: DataType, b: DataType, at: usize, size: usize) -> Layout {
        let field = |name: &str, offset, ty| Field { name: name.to_owned(), offset, ty };
        Layout { fields: vec![field("x", 0, a), field("n", at, b)], size, is_struct: true }
    }

    fn text(numbers: &[&str], shape: &[usize], names: &[&str]) -> Contents {
        let list = numbers.iter().map(|number| number.parse().unwrap()).collect();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Contents { numbers: Numbers::Text(list), shape: shape.to_vec(), names }
    }

    #[test]
    fn structs_are_filled_by_type_and_by_name() {
        let layout = pair(DataType::F32, DataType::U32, 4, 8);
        let filled = fill(text(&["1.5", "2", "3", "4"], &[2, 2], &[]), &layout, false).unwrap();
        assert_eq!(
            filled.bytes,
            [1.5f32.to_le_bytes(), 2u32.to_le_bytes(), 3f32.to_le_bytes(), 4u32.to_le_bytes()].concat()
        );
        assert_eq!(filled.shape, [2]);
        // The columns may come in any order.
        let swapped = fill(text(&["2", "1.5", "4", "3"], &[2, 2], &["n", "x"]), &layout, false).unwrap();
        assert_eq!(swapped.bytes, filled.bytes);
        let wrong = |names: &[&str]| fill(text(&["1", "2"], &[1, 2], names), &layout, false).map(|_| ());
        assert!(matches!(wrong(&["n", "y"]), Err(Misfit::Name(_))));
        assert!(matches!(wrong(&["n", "n"]), Err(Misfit::Name(_))));
        assert!(matches!(fill(text(&["1", "2", "3"], &[3], &[]), &layout, false).map(|_| ()), Err(Misfit::Length(_))));
        assert!(matches!(fill(text(&["1", "-2"], &[2], &[]), &layout, false).map(|_| ()), Err(Misfit::Type(_))));
    }

    #[test]
    fn casts_are_lossless_unless_more_is_asked_for() {
        let layout = Layout::of(&[], &DataType::F32).unwrap();
        let doubles = |values: &[f64]| {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Contents::plain(DataType::F64, vec![values.len()], bytes)
        };
        let filled = fill(doubles(&[0.5, 3.0]), &layout, false).unwrap();
        assert_eq!(filled.bytes, [0.5f32, 3.0].map(f32::to_le_bytes).concat());
        assert!(
            matches!(fill(doubles(&[0.5, 0.1]), &layout, false).map(|_| ()), Err(Misfit::Type(why)) if why.contains("element 1"))
        );
        assert_eq!(fill(doubles(&[0.1]), &layout, true).unwrap().bytes, 0.1f32.to_le_bytes());
    }

    #[test]
    fn samples_are_levels_or_numbers() {
        let picture =
            |top| Contents { numbers: Numbers::Samples(vec![0, top], top), shape: vec![1, 2], names: Vec::new() };
        let float = Layout::of(&[], &DataType::F32).unwrap();
        assert_eq!(fill(picture(65535), &float, false).unwrap().bytes, [0f32, 1.0].map(f32::to_le_bytes).concat());
        let word = Layout::of(&[], &DataType::U32).unwrap();
        assert_eq!(fill(picture(65535), &word, false).unwrap().bytes, [0u32, 65535].map(u32::to_le_bytes).concat());
        let byte = Layout::of(&[], &DataType::U8).unwrap();
        assert!(fill(picture(65535), &byte, false).is_err());
        assert_eq!(fill(picture(255), &byte, false).unwrap().bytes, [0, 255]);
    }
}
