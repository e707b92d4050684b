//! NumPy's `.npy`, versions 1 to 3. The header is parsed by hand: it is a Python literal from an untrusted file.

use vyre::DataType;

use super::Array;

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself warns above 10,000 characters.
const MAX_HEADER: usize = 64 * 1024;
const MAX_AXES: usize = 32;

pub(super) fn decode(bytes: &[u8]) -> Result<Array, String> {
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
    let (ty, size, swap) = element(&descr)?;
    let count = shape
        .iter()
        .try_fold(1usize, |product, &axis| product.checked_mul(axis))
        .and_then(|count| count.checked_mul(size))
        .ok_or("its shape is too large")?;
    if count != data.len() {
        return Err(format!("its header promises {count} bytes of data, but {} follow", data.len()));
    }
    let mut data = data.to_vec();
    if swap {
        data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if fortran && shape.len() > 1 {
        data = row_major(&data, &shape, size);
    }
    if ty == DataType::Bool {
        // NumPy stores a byte, a buffer of bools holds words.
        data = data.iter().flat_map(|&byte| u32::from(byte != 0).to_le_bytes()).collect();
    }
    Ok(Array { ty, shape, bytes: data })
}

fn element(descr: &str) -> Result<(DataType, usize, bool), String> {
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
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
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
            "descr" => {
                let (value, after) = quoted(rest).ok_or("it holds records; only plain numbers can be used")?;
                descr = Some(value.to_owned());
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
                let (inside, after) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or_else(wrong)?;
                let axes: Result<Vec<usize>, _> = inside
                    .split(',')
                    .map(|axis| axis.trim().trim_end_matches('L'))
                    .filter(|axis| !axis.is_empty())
                    .map(str::parse)
                    .collect();
                shape = Some(axes.map_err(|_| "its shape is not a list of sizes")?);
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

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

pub(super) fn encode(array: &Array) -> Vec<u8> {
    let (descr, data) = match &array.ty {
        DataType::Bool => {
            ("|b1", array.bytes.chunks_exact(4).map(|word| u8::from(word.iter().any(|&b| b != 0))).collect())
        }
        ty => (descr(ty), array.bytes.clone()),
    };
    // A type that NumPy lacks (bf16, the 8- and 4-bit floats) is written as its bytes.
    let shape = if descr == "|u1" && array.ty != DataType::U8 { vec![data.len()] } else { array.shape.clone() };
    let shape: String = shape.iter().map(|axis| format!("{axis}, ")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", shape.trim_end());
    // The data begins at a multiple of 64.
    let padded = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    header.extend(std::iter::repeat_n(' ', padded - 1 - header.len()));
    header.push('\n');
    let mut out = Vec::with_capacity(header.len() + 10 + data.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&(header.len() as u16).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(&data);
    out
}

fn descr(ty: &DataType) -> &'static str {
    match ty {
        DataType::F16 => "<f2",
        DataType::F32 => "<f4",
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
        let array = Array { ty: DataType::F32, shape: vec![2, 3], bytes: (0..24).collect() };
        let bytes = encode(&array);
        assert_eq!(bytes.len() % 64, 24);
        assert_eq!(decode(&bytes), Ok(array));
        let flags = Array { ty: DataType::Bool, shape: vec![2], bytes: vec![1, 0, 0, 0, 0, 0, 0, 0] };
        assert_eq!(decode(&encode(&flags)), Ok(flags));
    }

    #[test]
    fn column_major_and_big_endian_are_converted() {
        let header = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3), }";
        // Columns (1, 4), (2, 5), (3, 6).
        let array = decode(&file(header, &[0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6])).unwrap();
        assert_eq!(array.bytes, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]);
    }

    #[test]
    fn hostile_headers_are_refused_without_allocating() {
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 2), }";
        assert!(decode(&file(huge, &[])).unwrap_err().contains("too large"));
        let promise = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }";
        assert!(decode(&file(promise, &[0; 4])).unwrap_err().contains("promises"));
        let axes = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", "1,".repeat(100));
        assert!(decode(&file(&axes, &[0; 4])).unwrap_err().contains("axes"));
        let records = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }";
        assert!(decode(&file(records, &[0; 4])).unwrap_err().contains("records"));
        let mut bomb = MAGIC.to_vec();
        bomb.extend([2, 0, 0xff, 0xff, 0xff, 0xff]);
        assert!(decode(&bomb).unwrap_err().contains("at most"));
        let whole = encode(&Array { ty: DataType::U8, shape: vec![5], bytes: vec![1, 2, 3, 4, 5] });
        for cut in 0..whole.len() {
            assert!(decode(&whole[..cut]).is_err());
        }
    }
}
