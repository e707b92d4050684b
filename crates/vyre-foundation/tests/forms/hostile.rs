//! Inputs that were made, or found, to hurt: each is refused with a diagnostic. New findings become files in `hostile/`.

use std::fs;
use std::path::Path;

use vyre_foundation::{text, wire};

#[test]
fn hostile_inputs_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let (mut bytes_seen, mut texts_seen) = (0, 0);
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let bytes = fs::read(&path).expect("a file");
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("wire") => {
                let problem = wire::decode(&bytes).expect_err(&path.display().to_string());
                assert!(problem.code.id.starts_with("V03") && !problem.fix.is_empty(), "{}: {problem}", path.display());
                bytes_seen += 1;
            }
            Some("vyre") => {
                let source = String::from_utf8(bytes).expect("UTF-8");
                let problems = text::parse(&source).expect_err(&path.display().to_string());
                assert!((1..=20).contains(&problems.len()), "{}", path.display());
                for problem in problems {
                    assert!(
                        problem.code.id.starts_with("V02") && problem.source.is_some(),
                        "{}: {problem}",
                        path.display()
                    );
                }
                texts_seen += 1;
            }
            _ => panic!("{} is neither wire nor text", path.display()),
        }
    }
    assert!(bytes_seen >= 15 && texts_seen >= 17, "{bytes_seen} and {texts_seen}");
}
