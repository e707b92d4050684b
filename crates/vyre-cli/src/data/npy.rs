//! NumPy's `.npy`, versions 1 to 3, of plain numbers or of records. The header is parsed by hand: it is a Python literal from an
//! untrusted file.

use vyre::DataType;

use super::contents::{Contents, Numbers};
use super::layout::{Field, Layout, indexed};
use super::number::{Fit, width};
use super::value::Value;

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself warns above 10,000 characters.
const MAX_HEADER: usize = 64 * 1024;
const MAX_AXES: usize = 32;
/// Numbers of one record, and records within records.
const MAX_FIELDS: usize = 4096;
const MAX_DEPTH: usize = 8;

pub(super) fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// `want` is the only element type of the buffer, where it has one; NumPy writes bf16 as two bytes of no type.
pub(super) fn decode(bytes: &[u8], want: Option<&DataType>) -> Result<Contents, String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not start as a .npy file does")?;
    let (&[major, _minor], rest) = rest.split_first_chunk::<2>().ok_or("it ends inside the header")?;
    let (length, rest) = match major {
        1 => {
            let (length, rest) = rest.split_first_chunk::<2>().ok_or("it ends inside the header")?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        2 | 3 => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or("it ends inside the header")?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => return Err(format!(".npy version {major} is not known")),
    };
    if length > MAX_HEADER {
        return Err(format!("its header claims {length} bytes; at most {MAX_HEADER} are read"));
    }
    if length > rest.len() {
        return Err("it ends inside the header".to_owned());
    }
    let (header, data) = rest.split_at(length);
    let header = std::str::from_utf8(header).map_err(|_| "its header is not text")?;
    let Header { descr, fortran, shape } = parse_header(header)?;
    let size = match &descr {
        Descr::Plain(descr) => element(descr, want)?.1,
        Descr::Records(_, size) => *size,
    };
    let count = shape
        .iter()
        .try_fold(1usize, |product, &axis| product.checked_mul(axis))
        .and_then(|count| count.checked_mul(size))
        .ok_or("its shape is too large")?;
    if count != data.len() {
        return Err(format!("its header promises {count} bytes of data, but {} follow", data.len()));
    }
    let mut data = data.to_vec();
    if fortran && shape.len() > 1 && size > 0 {
        data = row_major(&data, &shape, size);
    }
    let fields = match descr {
        Descr::Records(fields, _) => fields,
        Descr::Plain(descr) => {
            let (ty, size, swap) = element(&descr, want)?;
            if swap {
                data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            }
            if ty == DataType::Bool {
                // NumPy stores a byte, a buffer of bools holds words.
                data = data.iter().flat_map(|&byte| u32::from(byte != 0).to_le_bytes()).collect();
            }
            return Ok(Contents::plain(ty, shape, data));
        }
    };
    for record in data.chunks_exact_mut(size.max(1)) {
        for (field, swap) in &fields {
            if *swap {
                record[field.offset..field.offset + width(&field.ty)].reverse();
            }
        }
    }
    let fields: Vec<Field> = fields.into_iter().map(|(field, _)| field).collect();
    let names = fields.iter().map(|field| field.name.clone()).collect();
    Ok(Contents { numbers: Numbers::Records(fields, size, data), shape, names })
}

fn element(descr: &str, want: Option<&DataType>) -> Result<(DataType, usize, bool), String> {
    let swap = descr.starts_with('>');
    let kind = descr.trim_start_matches(['<', '>', '|', '=']);
    let (ty, size) = match kind {
        "f2" => (DataType::F16, 2),
        "f4" => (DataType::F32, 4),
        "f8" => (DataType::F64, 8),
        "u1" => (DataType::U8, 1),
        "u2" => (DataType::U16, 2),
        "u4" => (DataType::U32, 4),
        "u8" => (DataType::U64, 8),
        "i1" => (DataType::I8, 1),
        "i2" => (DataType::I16, 2),
        "i4" => (DataType::I32, 4),
        "i8" => (DataType::I64, 8),
        "b1" => (DataType::Bool, 1),
        "V2" if want == Some(&DataType::BF16) => (DataType::BF16, 2),
        _ => return Err(format!("element type '{descr}' can't be used; convert it in NumPy with .astype")),
    };
    Ok((ty, size, swap))
}

/// Column-major to row-major.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..data.len() / size {
        let mut at = 0;
        for axis in (0..shape.len()).rev() {
            at = at * shape[axis] + index[axis];
        }
        out.extend_from_slice(&data[at * size..(at + 1) * size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

struct Header {
    descr: Descr,
    fortran: bool,
    shape: Vec<usize>,
}

enum Descr {
    Plain(String),
    /// The numbers of a record, whether their bytes are to be swapped, and the record's size.
    Records(Vec<(Field, bool)>, usize),
}

/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
fn parse_header(text: &str) -> Result<Header, String> {
    let wrong = || "its header is not a dictionary of descr, fortran_order and shape".to_owned();
    let mut rest =
        text.trim().strip_prefix('{').and_then(|text| text.trim_end().strip_suffix('}')).ok_or_else(wrong)?;
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    loop {
        rest = rest.trim_start_matches([' ', ',', '\n', '\t']);
        if rest.is_empty() {
            break;
        }
        let (key, after) = quoted(rest).ok_or_else(wrong)?;
        rest = after.trim_start().strip_prefix(':').ok_or_else(wrong)?.trim_start();
        match key {
            "descr" if rest.starts_with('[') => {
                let mut records = Records { fields: Vec::new(), rest };
                let size = records.list("", 0, 0)?;
                rest = records.rest;
                descr = Some(Descr::Records(records.fields, size));
            }
            "descr" => {
                let (value, after) = quoted(rest).ok_or_else(wrong)?;
                descr = Some(Descr::Plain(value.to_owned()));
                rest = after;
            }
            "fortran_order" => {
                let (value, after) = [("True", true), ("False", false)]
                    .iter()
                    .find_map(|(word, value)| rest.strip_prefix(word).map(|after| (*value, after)))
                    .ok_or_else(wrong)?;
                fortran = Some(value);
                rest = after;
            }
            "shape" => {
                let (axes, after) = axes(rest).ok_or("its shape is not a list of sizes")?;
                shape = Some(axes);
                rest = after;
            }
            _ => return Err(wrong()),
        }
    }
    let shape = shape.ok_or_else(wrong)?;
    if shape.len() > MAX_AXES {
        return Err(format!("it has {} axes; at most {MAX_AXES} can be used", shape.len()));
    }
    Ok(Header { descr: descr.ok_or_else(wrong)?, fortran: fortran.ok_or_else(wrong)?, shape })
}

/// `(3, 4)`, and what follows.
fn axes(text: &str) -> Option<(Vec<usize>, &str)> {
    let (inside, after) = text.strip_prefix('(')?.split_once(')')?;
    let sizes = inside.split(',').map(|axis| axis.trim().trim_end_matches('L')).filter(|axis| !axis.is_empty());
    Some((sizes.map(|axis| axis.parse().ok()).collect::<Option<Vec<usize>>>()?, after))
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// Reads `[('x', '<f4'), ('at', '<f4', (3,)), ('', '|V4'), ('in', [('a', '<u4')])]`.
struct Records<'a> {
    fields: Vec<(Field, bool)>,
    rest: &'a str,
}

impl Records<'_> {
    fn skip(&mut self, c: char) -> Result<(), String> {
        self.rest =
            self.rest.trim_start().strip_prefix(c).ok_or("its list of fields can't be understood")?.trim_start();
        Ok(())
    }

    fn word(&mut self) -> Result<String, String> {
        let (word, after) = quoted(self.rest).ok_or("a field has no name or type")?;
        self.rest = after.trim_start();
        Ok(word.to_owned())
    }

    /// The fields of a list, named below `outer` and placed from `offset` on; gives the size of all.
    fn list(&mut self, outer: &str, offset: usize, depth: usize) -> Result<usize, String> {
        if depth > MAX_DEPTH {
            return Err(format!("its records are nested more than {MAX_DEPTH} deep"));
        }
        self.skip('[')?;
        let mut size = 0usize;
        while !self.rest.starts_with(']') {
            self.skip('(')?;
            let name = if self.rest.starts_with('(') {
                // A title and a name.
                self.skip('(')?;
                self.word()?;
                self.skip(',')?;
                let name = self.word()?;
                self.skip(')')?;
                name
            } else {
                self.word()?
            };
            self.skip(',')?;
            let name = if outer.is_empty() { name } else { format!("{outer}.{name}") };
            let first = self.fields.len();
            let start = offset.checked_add(size).ok_or("its records are too large")?;
            let one = if self.rest.starts_with('[') {
                self.list(&name, start, depth + 1)?
            } else {
                let descr = self.word()?;
                match descr.trim_start_matches(['|', '<', '>', '=']).strip_prefix('V') {
                    Some(bytes) if name.is_empty() || name.ends_with('.') => {
                        bytes.parse().map_err(|_| format!("padding of '{descr}' can't be understood"))?
                    }
                    _ => {
                        let (ty, bytes, swap) = element(&descr, None)?;
                        // A bool is a byte here.
                        let ty = if ty == DataType::Bool { DataType::U8 } else { ty };
                        self.fields.push((Field { name, offset: start, ty }, swap));
                        bytes
                    }
                }
            };
            let mut count = 1usize;
            if self.rest.starts_with(',') {
                self.skip(',')?;
                if !self.rest.starts_with(')') {
                    let (sizes, after) = axes(self.rest).ok_or("the shape of a field can't be understood")?;
                    self.rest = after.trim_start();
                    count = self.repeat(first, &sizes, one)?;
                }
            }
            self.skip(')')?;
            size =
                one.checked_mul(count).and_then(|bytes| bytes.checked_add(size)).ok_or("its records are too large")?;
            if self.rest.starts_with(',') {
                self.skip(',')?;
            }
        }
        self.skip(']')?;
        Ok(size)
    }

    /// The fields from `first` on are one element of an array of this shape, so many bytes apart.
    fn repeat(&mut self, first: usize, sizes: &[usize], stride: usize) -> Result<usize, String> {
        let count = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        let fields = self.fields.split_off(first);
        let within = |count: usize| count.checked_mul(fields.len().max(1)).is_some_and(|n| n + first <= MAX_FIELDS);
        let count = count.filter(|&count| within(count)).ok_or(format!("a record has over {MAX_FIELDS} numbers"))?;
        for at in 0..count {
            let mut left = at;
            let mut indices = String::new();
            for &size in sizes.iter().rev() {
                indices.insert_str(0, &format!("[{}]", left % size.max(1)));
                left /= size.max(1);
            }
            for (field, swap) in &fields {
                let name = format!("{}{indices}", field.name);
                self.fields.push((Field { name, offset: field.offset + at * stride, ty: field.ty.clone() }, *swap));
            }
        }
        Ok(count)
    }
}

pub(super) fn encode(value: &Value) -> Vec<u8> {
    let (descr, shape) = match (&value.layout, value.number_type()) {
        (Some(layout), _) if layout.is_struct => (record(layout), value.shape.clone()),
        (Some(_), Some(ty)) => (format!("'{}'", descr(&ty)), value.shape.clone()),
        // What NumPy lacks (the 8- and 4-bit floats) is written as its bytes.
        _ => ("'|u1'".to_owned(), vec![value.bytes.len()]),
    };
    let data = match value.layout.as_ref().and_then(Layout::packed) {
        Some(ty) if !matches!(ty, DataType::Bool | DataType::BF16) => value.bytes.clone(),
        _ if value.layout.is_none() => value.bytes.clone(),
        _ => numbers(value),
    };
    let shape: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
    let mut header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    // Version 2 has room for more than 65,535 characters. The data begins at a multiple of 64.
    let start = MAGIC.len() + if header.len() > 65_000 { 6 } else { 4 };
    let padded = (start + header.len() + 1).next_multiple_of(64) - start;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    let mut out = Vec::with_capacity(start + header.len() + data.len());
    out.extend_from_slice(MAGIC);
    match u16::try_from(header.len()) {
        Ok(length) if start == MAGIC.len() + 4 => {
            out.extend_from_slice(&[1, 0]);
            out.extend_from_slice(&length.to_le_bytes());
        }
        _ => {
            out.extend_from_slice(&[2, 0]);
            out.extend_from_slice(&(header.len() as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    out
}

/// The numbers one behind the other, without padding, in the types that NumPy has for them.
fn numbers(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.bytes.len());
    for (number, ty) in (0..value.len()).filter_map(|at| value.typed(at)) {
        match ty {
            DataType::Bool => out.push(u8::from(number.real() != 0.0)),
            DataType::BF16 => out.extend((number.real() as f32).to_le_bytes()),
            ty => {
                let bits = number.bits(ty, Fit::Cast).unwrap_or_default();
                out.extend_from_slice(&bits.to_le_bytes()[..width(ty)]);
            }
        }
    }
    out
}

/// The fields of a struct: arrays and vectors of one type as one field with a shape, everything else number by number.
fn record(layout: &Layout) -> String {
    let mut list = Vec::new();
    let mut at = 0;
    while at < layout.fields.len() {
        let member = layout.fields[at].name.split(['.', '[']).next().unwrap_or_default();
        let fields = layout.named(member);
        let ty = &layout.fields[at].ty;
        let mut dims: Vec<usize> = Vec::new();
        let regular = fields.iter().all(|&field| {
            let field = &layout.fields[field];
            let name = indexed(&field.name);
            let indices: Option<Vec<usize>> = name[member.len()..]
                .split_terminator(']')
                .map(|part| part.strip_prefix('[').and_then(|index| index.parse().ok()))
                .collect();
            let Some(indices) = indices else { return false };
            dims = indices.iter().map(|index| index + 1).collect();
            field.ty == *ty
        });
        if regular && dims.iter().product::<usize>() == fields.len() {
            let shape: String = dims.iter().map(|size| format!("{size}, ")).collect();
            let shape = if dims.is_empty() { String::new() } else { format!(", ({})", shape.trim_end()) };
            list.push(format!("('{member}', '{}'{shape})", descr(ty)));
        } else {
            let field = |&at: &usize| format!("('{}', '{}')", layout.fields[at].name, descr(&layout.fields[at].ty));
            list.extend(fields.iter().map(field));
        }
        at += fields.len().max(1);
    }
    format!("[{}]", list.join(", "))
}

fn descr(ty: &DataType) -> &'static str {
    match ty {
        DataType::Bool => "|b1",
        DataType::F16 => "<f2",
        DataType::F32 | DataType::BF16 => "<f4",
        DataType::F64 => "<f8",
        DataType::U16 => "<u2",
        DataType::U32 => "<u4",
        DataType::U64 => "<u8",
        DataType::I8 => "|i1",
        DataType::I16 => "<i2",
        DataType::I32 => "<i4",
        DataType::I64 => "<i8",
        _ => "|u1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend([1, 0]);
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        out.extend(data);
        out
    }

    #[test]
    fn arrays_come_back_as_they_were_written() {
        let array = Value::plain(DataType::F32, vec![2, 3], (0..24).collect());
        let bytes = encode(&array);
        assert_eq!(bytes.len() % 64, 24);
        assert_eq!(decode(&bytes, None), Ok(Contents::plain(DataType::F32, vec![2, 3], (0..24).collect())));
        let flags = Value::plain(DataType::Bool, vec![2], vec![1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&encode(&flags), None), Ok(Contents::plain(DataType::Bool, vec![2], flags.bytes.clone())));
        // NumPy has no bf16; f32 holds every value of it.
        let brief = Value::plain(DataType::BF16, vec![1], vec![0x80, 0x3f]);
        assert_eq!(
            decode(&encode(&brief), None),
            Ok(Contents::plain(DataType::F32, vec![1], 1f32.to_le_bytes().to_vec()))
        );
        let words = "{'descr': '<V2', 'fortran_order': False, 'shape': (1,), }";
        let held = Contents::plain(DataType::BF16, vec![1], vec![0x80, 0x3f]);
        assert_eq!(decode(&file(words, &[0x80, 0x3f]), Some(&DataType::BF16)), Ok(held));
        assert!(decode(&file(words, &[0x80, 0x3f]), Some(&DataType::F16)).is_err());
    }

    #[test]
    fn column_major_and_big_endian_are_converted() {
        let header = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3), }";
        // Columns (1, 4), (2, 5), (3, 6).
        let array = decode(&file(header, &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6]), None).unwrap();
        assert_eq!(array, Contents::plain(DataType::U16, vec![2, 3], vec![1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]));
    }

    #[test]
    fn records_are_read_by_field() {
        let header = "{'descr': [('n', '>u2'), ('', '|V2'), ('at', '<f4', (2,)), (('title', 'in'), [('a', '|b1')])], 'fortran_order': False, 'shape': (1,), }";
        let mut data = vec![1, 2, 9, 9];
        data.extend([1.5f32, 2.5].map(f32::to_le_bytes).concat());
        data.push(1);
        let read = decode(&file(header, &data), None).unwrap();
        assert_eq!(read.names, ["n", "at[0]", "at[1]", "in.a"]);
        let Numbers::Records(fields, size, bytes) = read.numbers else { panic!("records") };
        assert_eq!((size, fields[1].offset, fields[3].offset, &bytes[..2]), (13, 4, 12, &[2u8, 1][..]));
        for wrong in [
            "[('a', '<f4')",
            "[('a')]",
            "[(1, '<f4')]",
            "[('a', '|O')]",
            "[('a', '<f4', (99999, 99999))]",
            "[('a', '<f4', 3, 4)]",
        ] {
            let header = format!("{{'descr': {wrong}, 'fortran_order': False, 'shape': (1,), }}");
            assert!(decode(&file(&header, &[0; 4]), None).is_err(), "{wrong}");
        }
        let deep = format!("{{'descr': {}", "[('a', ".repeat(5000));
        assert!(decode(&file(&deep, &[]), None).is_err());
    }

    #[test]
    fn hostile_headers_are_refused_without_allocating() {
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 2), }";
        assert!(decode(&file(huge, &[]), None).unwrap_err().contains("too large"));
        let promise = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }";
        assert!(decode(&file(promise, &[0; 4]), None).unwrap_err().contains("promises"));
        let axes = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", "1,".repeat(100));
        assert!(decode(&file(&axes, &[0; 4]), None).unwrap_err().contains("axes"));
        let mut bomb = MAGIC.to_vec();
        bomb.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(decode(&bomb, None).unwrap_err().contains("at most"));
        let whole = encode(&Value::plain(DataType::U8, vec![5], vec![1, 2, 3, 4, 5]));
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut], None).is_err());
        }
    }
}
