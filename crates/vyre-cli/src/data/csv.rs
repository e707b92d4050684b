//! Numbers in text, separated by commas, semicolons, white space or lines; `#` starts a comment.

use vyre::DataType;

use super::Array;
use super::generate::{Number, push_number};

pub(super) fn decode(bytes: &[u8], want: &DataType) -> Result<Array, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let mut out = Vec::new();
    let (mut rows, mut columns) = (0usize, None);
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let fields: Vec<&str> =
            line.split(|c: char| c == ',' || c == ';' || c.is_whitespace()).filter(|field| !field.is_empty()).collect();
        if fields.is_empty() {
            continue;
        }
        if *columns.get_or_insert(fields.len()) != fields.len() {
            return Err(format!(
                "line {} has {} numbers, the lines before have {}",
                number + 1,
                fields.len(),
                columns.unwrap_or(0)
            ));
        }
        rows += 1;
        for field in fields {
            let value: Number =
                field.parse().map_err(|()| format!("line {}: `{field}` is not a number", number + 1))?;
            push_number(&mut out, value, want).map_err(|problem| format!("line {}: {problem}", number + 1))?;
        }
    }
    let columns = columns.unwrap_or(0);
    let shape = if rows == 1 || columns == 1 { vec![rows * columns] } else { vec![rows, columns] };
    Ok(Array { ty: want.clone(), shape, bytes: out })
}

pub(super) fn encode(array: &Array) -> Vec<u8> {
    let row = *array.shape.last().unwrap_or(&1);
    let row = if array.shape.len() > 1 { row.max(1) } else { 1 };
    let mut out = String::new();
    for at in 0..array.len() {
        out.push_str(&super::summary::show(array, at));
        out.push(if (at + 1) % row == 0 { '\n' } else { ',' });
    }
    out.into_bytes()
}
