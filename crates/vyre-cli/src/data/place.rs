//! Files by name, with what they hold.

use std::path::Path;

use vyre::{Diagnostic, codes};

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Csv,
    Png,
    /// A buffer's bytes as they lie in it.
    Raw,
    /// A number from each byte.
    Bytes,
}

impl Format {
    /// The words that stand before a file's name.
    pub(crate) const WORDS: [&str; 5] = ["npy", "csv", "png", "raw", "bytes"];

    fn of_word(word: &str) -> Option<Format> {
        Some(match word {
            "npy" => Format::Npy,
            "csv" => Format::Csv,
            "png" => Format::Png,
            "raw" => Format::Raw,
            "bytes" => Format::Bytes,
            _ => return None,
        })
    }

    /// What files with this ending hold.
    pub(crate) fn of_ending(ending: &str) -> Option<Format> {
        match ending {
            "txt" | "tsv" => Some(Format::Csv),
            "bin" => Some(Format::Raw),
            "bytes" => None,
            other => Format::of_word(other),
        }
    }
}

/// `picture.png`, `raw:picture.png`, or `-` for standard input or output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place<'a> {
    /// As it was said; else the ending tells.
    pub(crate) format: Option<Format>,
    pub(crate) path: &'a str,
}

impl<'a> Place<'a> {
    pub(crate) fn new(text: &'a str) -> Place<'a> {
        match text.split_once(':') {
            Some((word, path)) if !path.is_empty() => match Format::of_word(word) {
                Some(format) => Place { format: Some(format), path },
                None => Place { format: None, path: text },
            },
            _ => Place { format: None, path: text },
        }
    }

    /// Standard input or output.
    pub(crate) fn is_standard(&self) -> bool {
        self.path == "-"
    }

    pub(crate) fn ending(&self) -> String {
        let ending = Path::new(self.path).extension().and_then(|ending| ending.to_str());
        ending.unwrap_or_default().to_ascii_lowercase()
    }

    /// What a result is written as: text to standard output, bytes where there is no ending.
    pub(crate) fn output_format(&self) -> Result<Format, Diagnostic> {
        let ending = self.ending();
        match self.format.or_else(|| Format::of_ending(&ending)) {
            Some(format) => Ok(format),
            None if self.is_standard() => Ok(Format::Csv),
            None if ending.is_empty() => Ok(Format::Raw),
            None => {
                let message = format!("`{}` can't be written: results are not written as .{ending}", self.path);
                let cure = format!("Use .npy, .csv, .png or .bin, or write raw:{} for the bytes.", self.path);
                Err(Diagnostic::new(&codes::command::CANT_WRITE, message).with_fix(cure))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_said_or_told_by_the_ending() {
        assert_eq!(Place::new("raw:a.png"), Place { format: Some(Format::Raw), path: "a.png" });
        assert_eq!(Place::new("C:a.png").path, "C:a.png");
        assert_eq!(Place::new("a.PNG").output_format(), Ok(Format::Png));
        assert_eq!(Place::new("-").output_format(), Ok(Format::Csv));
        assert_eq!(Place::new("/dev/null").output_format(), Ok(Format::Raw));
        assert!(Place::new("a.jpg").output_format().unwrap_err().message.contains(".jpg"));
        assert_eq!(Place::new("raw:a.jpg").output_format(), Ok(Format::Raw));
    }
}
