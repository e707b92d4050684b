//! Section 8, diagnostics.

use std::path::Path;

use vyre_driver::diagnostics::{
    Diagnostic, SourceLocation, catalogue_markdown, explain, render, render_all, to_json, to_json_all,
};
use vyre_spec::codes;

fn sample() -> Diagnostic {
    let source = "fn main() {\n\tlet x = y;\n}\n";
    let at = source.find("y;").unwrap();
    Diagnostic::new(&codes::specialization::UNKNOWN_CONSTANT, "there is no `y`")
        .with_fix("Declare `y`.")
        .at("body[0].value")
        .with_source(SourceLocation::in_text(Some("a.wgsl"), source, at, at + 1))
}

#[test]
fn people_see_the_source_line_and_the_cure() {
    let text = render(&sample());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "error[V0901]: there is no `y`");
    assert!(text.contains("--> a.wgsl:2:10"), "{text}");
    let line = lines.iter().position(|line| line.contains("let x = y;")).unwrap();
    let caret = lines[line + 1].find('^').unwrap();
    assert_eq!(lines[line].find("y;"), Some(caret), "the caret stands under the place\n{text}");
    assert!(text.contains("at body[0].value"));
    assert!(text.ends_with("Fix: Declare `y`."), "{text}");
    let all = render_all(&[sample(), sample(), Diagnostic::new(&codes::cache::CORRUPT, "bad")]);
    assert!(all.ends_with("2 errors, 1 warning\n"), "{all}");
    assert_eq!(render_all(&[]), "no problems\n");
}

#[test]
fn programs_get_json() {
    let json = to_json(&sample());
    assert_eq!(json["code"], "V0901");
    assert_eq!(json["severity"], "error");
    assert_eq!(json["message"], "there is no `y`");
    assert_eq!(json["fix"], "Declare `y`.");
    assert_eq!(json["place"], "body[0].value");
    assert_eq!(json["source"]["line"], 2);
    assert_eq!(json["source"]["text"], "\tlet x = y;");
    let plain = to_json(&Diagnostic::new(&codes::cache::CORRUPT, "bad"));
    assert!(plain.get("source").is_none() && plain.get("place").is_none());
    assert_eq!(to_json_all(&[sample(), sample()]).as_array().unwrap().len(), 2);
}

#[test]
fn codes_are_explained() {
    assert_eq!(explain("V0801"), Some(&codes::cache::CORRUPT));
    assert_eq!(explain("v0801"), Some(&codes::cache::CORRUPT));
    assert_eq!(explain("V9999"), None);
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

#[test]
fn catalogue_page_is_the_code_table() {
    let page = workspace().join("docs/diagnostics.md");
    let wanted = catalogue_markdown();
    if std::env::var_os("VYRE_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(page.parent().unwrap()).unwrap();
        std::fs::write(&page, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(found == wanted, "docs/diagnostics.md is old; run this test with VYRE_UPDATE_DOCS=1");
    for (name, code) in codes::all() {
        assert!(wanted.contains(&format!("| {} | {} |", code.id, code.severity)), "{name} has no entry");
    }
}

/// Appends the text of all source files under a folder.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_code_is_used() {
    let mut text = String::new();
    for entry in std::fs::read_dir(workspace().join("crates")).unwrap() {
        let source = entry.unwrap().path().join("src");
        if !source.ends_with("vyre-spec/src") && source.is_dir() {
            read_sources(&source, &mut text);
        }
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: std::collections::HashSet<&str> = text.split(|c| !is_word(c)).collect();
    let unused: Vec<_> = codes::all().into_iter().filter(|(name, _)| !words.contains(name)).collect();
    assert!(unused.is_empty(), "codes that nothing gives: {unused:?}");
}
