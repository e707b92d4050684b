//! Every command that the README and the pages under `docs/` show runs as it is written there.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The lines of a page's `sh` blocks.
fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).expect("the page is there");
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            _ if line.starts_with("```") => inside = false,
            _ if inside && !line.trim().is_empty() => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

#[test]
fn shown_commands_run() {
    let home = tempfile::tempdir().expect("a folder");
    let mut ran = 0;
    for page in ["README.md", "docs/tutorial.md", "docs/reference.md", "docs/backend.md"] {
        for command in commands(page) {
            let words = command.strip_prefix("cargo run --release -- ").or_else(|| command.strip_prefix("vyre "));
            let Some(words) = words else {
                assert_eq!(command, ".ci/run", "{page} shows a command that this test can't run");
                continue;
            };
            // Pictures and caches go to a folder of the test's own.
            std::os::unix::fs::symlink(Path::new(ROOT).join("examples"), home.path().join("examples")).ok();
            let output = Command::new(env!("CARGO_BIN_EXE_vyre"))
                .args(words.split_whitespace())
                .current_dir(home.path())
                .env("XDG_CACHE_HOME", home.path().join("cache"))
                .env("XDG_CONFIG_HOME", home.path().join("config"))
                .output()
                .expect("the command starts");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && !text.trim().is_empty(),
                "{page}: `{command}` ended with {}\n{text}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            ran += 1;
        }
    }
    assert!(ran >= 10, "only {ran} commands were found");
    assert!(home.path().join("mandelbrot.png").metadata().is_ok_and(|picture| picture.len() > 10_000));
}
