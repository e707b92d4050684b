//! Every entry of the code table is used by some crate.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push(path);
        }
    }
}

/// Whether `word` stands in `text` and is not part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part) && !text[at + word.len()..].chars().next().is_some_and(part)
    })
}

#[test]
fn every_code_is_used() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates folder");
    let table = crates.join("vyre-spec/src/codes");
    let mut users = Vec::new();
    sources(crates, &mut users);
    let users: Vec<String> = users
        .iter()
        .filter(|path| !path.starts_with(&table) && !path.iter().any(|part| part == "tests"))
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    let mut unused = Vec::new();
    let mut areas = Vec::new();
    sources(&table, &mut areas);
    let mut entries = 0;
    for area in areas.iter().filter(|path| !path.ends_with("mod.rs")) {
        let module = area.file_stem().and_then(|stem| stem.to_str()).expect("a module name");
        let text = fs::read_to_string(area).expect("a table");
        for line in text.lines().filter(|line| line.contains(" = \"V")) {
            entries += 1;
            let name = line.split_whitespace().next().expect("a name");
            // The module is named where the code is used or imported.
            let used =
                users.iter().any(|user| has_word(user, name) && has_word(user, module) && user.contains("codes"));
            if !used {
                unused.push(format!("{module}::{name}"));
            }
        }
    }
    assert_eq!(entries, vyre_spec::codes::all().len(), "every entry stands on a line of its own");
    assert!(unused.is_empty(), "codes that nothing reports: {unused:?}");
}
