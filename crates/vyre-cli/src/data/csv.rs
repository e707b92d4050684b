//! Numbers in text, separated by commas or semicolons, or by white space on lines that have neither; `#` starts a comment. The first
//! line may name the columns.

use super::contents::{Contents, Numbers};
use super::number::Number;
use super::value::Value;

pub(super) fn decode(bytes: &[u8]) -> Result<Contents, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut numbers = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let (mut rows, mut columns) = (0usize, None);
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = match line.contains([',', ';']) {
            true => line.split([',', ';']).map(str::trim).collect(),
            false => line.split_whitespace().collect(),
        };
        if let Some(at) = fields.iter().position(|field| field.is_empty()) {
            return Err(format!("line {}: field {} is empty", number + 1, at + 1));
        }
        if let Some(known) = columns.filter(|known| *known != fields.len()) {
            return Err(format!("line {} has {} numbers, the lines before have {known}", number + 1, fields.len()));
        }
        let is_first = columns.is_none();
        columns = Some(fields.len());
        if is_first && fields.iter().all(|field| field.parse::<Number>().is_err()) {
            names = fields.iter().map(|field| field.trim_matches('"').to_owned()).collect();
            continue;
        }
        rows += 1;
        for field in fields {
            numbers.push(field.parse().map_err(|()| format!("line {}: `{field}` is not a number", number + 1))?);
        }
    }
    if rows == 0 && !names.is_empty() {
        return Err(format!("line 1: `{}` is not a number, and no line of numbers follows", names[0]));
    }
    let columns = columns.unwrap_or(0);
    let shape = if rows <= 1 || columns == 1 { vec![rows * columns] } else { vec![rows, columns] };
    Ok(Contents { numbers: Numbers::Text(numbers), shape, names })
}

pub(super) fn encode(value: &Value) -> Vec<u8> {
    let row = match value.layout.as_ref().filter(|layout| layout.is_struct) {
        Some(layout) => layout.fields.len(),
        None if value.shape.len() > 1 => (*value.shape.last().unwrap_or(&1)).max(1),
        None => 1,
    };
    let mut out = String::new();
    if let Some(layout) = value.layout.as_ref().filter(|layout| layout.is_struct) {
        let names: Vec<&str> = layout.fields.iter().map(|field| field.name.as_str()).collect();
        out += &names.join(",");
        out.push('\n');
    }
    for at in 0..value.len() {
        out.push_str(&value.show(at));
        out.push(if (at + 1) % row == 0 { '\n' } else { ',' });
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_rows_columns_and_perhaps_names() {
        let table = decode(b"x; y\n1;2\n# note\n3;4 # more\n").unwrap();
        assert_eq!((table.shape, table.names), (vec![2, 2], vec!["x".to_owned(), "y".to_owned()]));
        assert_eq!(decode(b"\xef\xbb\xbf1 2  3\n").unwrap().shape, [3]);
        assert_eq!(decode(b"").unwrap().shape, [0]);
    }

    #[test]
    fn gaps_and_words_are_errors() {
        assert!(decode(b"1,,3").unwrap_err().contains("field 2 is empty"));
        assert!(decode(b"1,2,\n").unwrap_err().contains("field 3 is empty"));
        assert!(decode(b"1,2\n3\n").unwrap_err().contains("line 2 has 1"));
        assert!(decode(b"1, 2\nthree, 4").unwrap_err().contains("`three` is not a number"));
        assert!(decode(b"once upon\na time").unwrap_err().contains("not a number"));
        assert!(decode(&[0xff, 0xfe]).unwrap_err().contains("not text"));
    }
}
