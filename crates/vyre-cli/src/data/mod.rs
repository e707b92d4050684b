//! Numbers that come from files or generators and go to files or the terminal.

mod contents;
mod csv;
mod generate;
mod layout;
mod npy;
mod number;
mod place;
mod png;
mod summary;
mod value;

use std::path::Path;

use vyre::{DataType, Diagnostic, codes};

pub(crate) use contents::{Contents, Filled, Misfit, Numbers, fill};
pub(crate) use generate::{generated_bytes, size};
pub(crate) use layout::Layout;
pub(crate) use number::{Fit, Number, width};
pub(crate) use place::{Format, Place};
pub(crate) use summary::{json, summary};
pub(crate) use value::Value;

use crate::input;
use crate::source::nearest;

/// What `--in NAME=...` names: a generator, a list of numbers, or a file. `want` is the type of the buffer's numbers, where it is one.
pub(crate) fn read(from: &str, want: Option<&DataType>) -> Result<Contents, Diagnostic> {
    match generate::generate(from, want) {
        // A file may have the name of a number.
        Some(Ok(_)) if Path::new(from).is_file() => {}
        Some(made) => return made,
        None => {}
    }
    let place = Place::new(from);
    if !place.is_standard() && place.format.is_none() && !Path::new(place.path).exists() {
        return Err(nothing(from));
    }
    let bytes = input::read(&place)?;
    let bad = |problem: String| {
        let message = format!("`{}` is not usable: {problem}", place.path);
        let diagnostic = Diagnostic::new(&codes::command::BAD_FILE, message);
        match place.format {
            None if place.ending() == "txt" => diagnostic.with_fix(format!(
                "For the text itself write bytes:{0} (a number for each byte) or raw:{0} (the buffer's own bytes).",
                place.path
            )),
            _ => diagnostic,
        }
    };
    let format = match place.format.or_else(|| Format::of_ending(&place.ending())) {
        Some(format) => format,
        None if npy::is_npy(&bytes) => Format::Npy,
        None if bytes.starts_with(b"\x89PNG") => Format::Png,
        None if place.is_standard() => Format::Csv,
        None => {
            let message = format!("`{}` does not say by its ending what it holds", place.path);
            return Err(Diagnostic::new(&codes::command::BAD_FILE, message).with_fix(format!(
                "Say it: raw:{0} for the buffer's own bytes, bytes:{0} for a number from each byte, csv:{0}, npy:{0} or png:{0}.",
                place.path
            )));
        }
    };
    match format {
        Format::Npy => npy::decode(&bytes, want).map_err(bad),
        Format::Csv => csv::decode(&bytes).map_err(bad),
        Format::Png => png::decode(&bytes).map_err(bad),
        Format::Bytes => Ok(Contents::plain(DataType::U8, vec![bytes.len()], bytes)),
        Format::Raw => Ok(Contents { shape: vec![bytes.len()], numbers: Numbers::Raw(bytes), names: Vec::new() }),
    }
}

/// What to say of text that is neither numbers nor a generator nor a file.
fn nothing(from: &str) -> Diagnostic {
    if generate::looks_like_list(from)
        && let Some(item) = from.split(',').find(|item| item.trim().parse::<Number>().is_err())
    {
        let message = format!("`{from}` is no list of numbers (`{item}` is none), and there is no such file");
        return Diagnostic::new(&codes::command::BAD_GENERATOR, message);
    }
    if let Some((word, _)) = from.split_once(':')
        && word.chars().all(|c| c.is_ascii_alphabetic())
    {
        let hint = match (word, nearest(word, &generate::WORDS)) {
            ("range" | "arange", _) => "; did you mean `iota`?".to_owned(),
            (_, Some(near)) => format!("; did you mean `{near}`?"),
            _ => format!("; there are {}, and the formats {}", generate::WORDS.join(", "), Format::WORDS.join(", ")),
        };
        let message = format!("`{from}`: there is no generator `{word}`{hint}");
        return Diagnostic::new(&codes::command::BAD_GENERATOR, message);
    }
    Diagnostic::new(&codes::command::CANT_READ, format!("`{from}` can't be read: there is no such file"))
}

/// The bytes of a file that holds a result.
pub(crate) fn encode(place: &Place<'_>, value: &Value) -> Result<Vec<u8>, Diagnostic> {
    Ok(match place.output_format()? {
        Format::Npy => npy::encode(value),
        Format::Csv => csv::encode(value),
        Format::Png => png::encode(value).map_err(|problem| {
            Diagnostic::new(&codes::command::CANT_WRITE, format!("`{}` can't be written: {problem}", place.path))
                .with_fix(
                    "Write a result of u8, u16, u32 or f32 pixels whose shape is height x width, or give --shape.",
                )
        })?,
        Format::Raw | Format::Bytes => value.bytes.clone(),
    })
}
