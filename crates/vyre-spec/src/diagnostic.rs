use std::fmt;

use serde::{Serialize, Serializer};

use crate::codes::Code;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something the user may want to know.
    Note,
    /// It works, but not as asked or not as well as it could.
    Warning,
    /// It does not work.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// A place in source text, with the line itself so that it can be shown without the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLocation {
    /// File name, when there is one.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How many characters to underline, at least 1.
    pub length: u32,
    /// The whole line, without its end.
    pub text: String,
}

impl SourceLocation {
    /// Finds the line that holds byte `start` of `source`. Lines over 400 characters are cut around the place.
    pub fn in_text(file: Option<&str>, source: &str, start: usize, end: usize) -> Self {
        let mut start = start.min(source.len());
        while !source.is_char_boundary(start) {
            start -= 1;
        }
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..].find('\n').map_or(source.len(), |at| start + at);
        let mut end = end.clamp(start, line_end);
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        const WIDTH: usize = 400;
        let before = source[line_start..start].chars().count();
        let skip = before.saturating_sub(WIDTH / 2);
        let text: String = source[line_start..line_end].trim_end_matches('\r').chars().skip(skip).take(WIDTH).collect();
        SourceLocation {
            file: file.map(str::to_owned),
            line: source.as_bytes()[..line_start].iter().filter(|&&b| b == b'\n').count() as u32 + 1,
            column: (before - skip) as u32 + 1,
            length: (source[start..end].chars().count().min(WIDTH) as u32).max(1),
            text,
        }
    }
}

/// One refusal, fallback or failure: a stable code, what happened in one sentence, and what to do about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnostic {
    /// Entry of the code table.
    #[serde(serialize_with = "code_id")]
    pub code: Code,
    /// Severity; the table's unless changed.
    pub severity: Severity,
    /// One sentence.
    pub message: String,
    /// What to do, without the leading `Fix:`.
    pub fix: String,
    /// Place in the program, such as `body[2].then[0].value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Place in the source text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Box<SourceLocation>>,
}

fn code_id<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.id)
}

impl Diagnostic {
    /// A diagnostic with the table's severity and cure.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            severity: code.severity,
            message: message.into(),
            fix: code.cure.to_owned(),
            place: None,
            source: None,
        }
    }

    /// Replaces the table's cure by one that fits this very case.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Names the place in the program.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Names the place in the source text.
    #[must_use]
    pub fn with_source(mut self, source: SourceLocation) -> Self {
        self.source = Some(Box::new(source));
        self
    }
}

/// Text for people: severity, code, message, the source line where there is one, and the fix.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code.id, self.message)?;
        if let Some(source) = &self.source {
            let gutter = source.line.to_string();
            let pad = " ".repeat(gutter.len());
            let file = source.file.as_deref().unwrap_or("<source>");
            // Tabs keep their width so that the carets stand under the right characters.
            let lead: String = source
                .text
                .chars()
                .take(source.column.saturating_sub(1) as usize)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            write!(f, "\n{pad}--> {file}:{}:{}", source.line, source.column)?;
            write!(f, "\n{pad} |\n{gutter} | {}", source.text)?;
            write!(f, "\n{pad} | {lead}{}", "^".repeat(source.length as usize))?;
        }
        if let Some(place) = &self.place {
            write!(f, "\n  at {place}")?;
        }
        write!(f, "\n  Fix: {}", self.fix)
    }
}

impl std::error::Error for Diagnostic {}
