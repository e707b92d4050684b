//! Diagnostics for people and for programs, and the catalogue of all codes.

use std::fmt::Write;

pub use vyre_spec::codes::{Code, CodeEntry};
pub use vyre_spec::{Diagnostic, Severity, SourceLocation};

/// Text for people: severity, code, message, the source line with the place underlined, and the cure.
pub fn render(diagnostic: &Diagnostic) -> String {
    diagnostic.to_string()
}

/// Text for people, one after the other, and how many there were of what.
pub fn render_all(diagnostics: &[Diagnostic]) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics {
        let _ = writeln!(text, "{diagnostic}\n");
    }
    let of = |severity: Severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let counts = [(of(Severity::Error), "error"), (of(Severity::Warning), "warning"), (of(Severity::Note), "note")];
    let counts: Vec<_> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}{}", if *count == 1 { "" } else { "s" }))
        .collect();
    if counts.is_empty() {
        text.push_str("no problems\n");
    } else {
        let _ = writeln!(text, "{}", counts.join(", "));
    }
    text
}

/// One diagnostic as a JSON object: `code`, `severity`, `message`, `fix`, and `place` and `source` where there are.
pub fn to_json(diagnostic: &Diagnostic) -> serde_json::Value {
    serde_json::to_value(diagnostic).expect("a diagnostic is text and numbers, which JSON can hold")
}

/// Diagnostics as a JSON array.
pub fn to_json_all(diagnostics: &[Diagnostic]) -> serde_json::Value {
    diagnostics.iter().map(to_json).collect()
}

/// What an error of the system carries where it came from a part of vyre that knew more.
pub fn inside(error: &std::io::Error) -> Option<&Diagnostic> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// The entry of a code such as `V0801`.
pub fn explain(code: &str) -> Option<Code> {
    vyre_spec::codes::find(code)
}

/// The page that lists every code with its meaning and cure, made from the one table.
pub fn catalogue_markdown() -> String {
    let mut page = String::from(
        "# Diagnostic codes\n\nEvery refusal, fallback and failure carries one of these codes. The page is made from the code \
         table; `VYRE_UPDATE_DOCS=1 cargo test -p vyre-driver --test contract catalogue` writes it anew.\n\n\
         | code | severity | meaning | cure |\n|---|---|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for (_, code) in vyre_spec::codes::all() {
        let _ = writeln!(page, "| {} | {} | {} | {} |", code.id, code.severity, cell(code.meaning), cell(code.cure));
    }
    page
}
