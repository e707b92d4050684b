//! Every command and every piece of code that the README and the book show is run as it stands there.
//!
//! Rust is run by the facade's doc tests; everything else here: `sh` blocks, the steps of a `yaml` job, kernels in `wgsl` and `vyre`.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The README, the book and the examples' page, with their names.
fn pages() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned(), "examples/README.md".to_owned()];
    for folder in ["docs", "docs/benchmarks"] {
        for entry in std::fs::read_dir(Path::new(ROOT).join(folder)).expect("the book is there").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    let read = |name: String| {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&name)).expect("the page is there");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The blocks of a page, with what stands behind their first marks.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(kind) => {
                inside = true;
                blocks.push((kind.to_owned(), String::new()));
            }
            None if inside => {
                if let Some((_, block)) = blocks.last_mut() {
                    *block += &format!("{line}\n");
                }
            }
            None => {}
        }
    }
    blocks
}

/// A folder with the examples, where commands find `vyre`, the programs of `examples/` and no caches of others.
struct Shell {
    home: tempfile::TempDir,
    programs: PathBuf,
}

impl Shell {
    fn new() -> Shell {
        let home = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(Path::new(ROOT).join("examples"), home.path().join("examples")).expect("a link");
        let programs = Path::new(env!("CARGO_BIN_EXE_vyre")).parent().expect("a folder").join("examples");
        if !programs.join("matmul").exists() {
            let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
            let built = Command::new(cargo).args(["build", "-p", "vyre-cli", "--examples"]).current_dir(ROOT).status();
            assert!(built.is_ok_and(|built| built.success()), "the examples can't be built");
        }
        Shell { home, programs }
    }

    /// What the page shows, with the programs that cargo would build replaced by those that it has built for this test.
    fn script(&self, shown: &str) -> String {
        let line = |line: &str| match line.strip_prefix("cargo run --example ") {
            Some(rest) => {
                let (name, words) = rest.split_once(" -- ").unwrap_or((rest, ""));
                format!("'{}' {words}\n", self.programs.join(name).display())
            }
            None => line.replace("cargo run -- ", "vyre ") + "\n",
        };
        shown.lines().filter(|line| *line != ".ci/run").map(line).collect()
    }

    /// Runs it, and gives what went to standard output.
    #[track_caller]
    fn run(&self, page: &str, shown: &str) -> String {
        let vyre = Path::new(env!("CARGO_BIN_EXE_vyre")).parent().expect("a folder");
        let path = std::env::join_paths(
            std::iter::once(vyre.to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let output = Command::new("sh")
            .args(["-eu", "-c", &self.script(shown)])
            .current_dir(self.home.path())
            .env("PATH", path.expect("a path"))
            .env("XDG_CACHE_HOME", self.home.path().join("cache"))
            .env("XDG_CONFIG_HOME", self.home.path().join("config"))
            .output()
            .expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let problems = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: this ended with {}\n{shown}\n{text}{problems}", output.status);
        text
    }

    #[track_caller]
    fn has_picture(&self, name: &str, bytes: u64) {
        let picture = self.home.path().join(name).metadata();
        assert!(picture.is_ok_and(|picture| picture.len() > bytes), "{name} is not there, or nearly empty");
    }
}

#[test]
fn what_is_shown_runs() {
    let shell = Shell::new();
    let mut ran = 0;
    for (page, text) in pages() {
        for (number, (kind, block)) in blocks(&text).into_iter().enumerate() {
            match kind.as_str() {
                "sh" => drop(shell.run(&page, &block)),
                "yaml" => {
                    let steps: String = block
                        .lines()
                        .filter_map(|line| line.trim().strip_prefix("- run: "))
                        .map(|step| format!("{step}\n"))
                        .collect();
                    assert!(!steps.is_empty(), "{page}: a job without a step");
                    shell.run(&page, &steps);
                }
                "wgsl" | "vyre" => {
                    let name = format!("shown-{number}.{kind}");
                    std::fs::write(shell.home.path().join(&name), &block).expect("a file");
                    shell.run(&page, &format!("vyre check {name}"));
                }
                // Rust is run as doc tests, Python by the package's own tests, a pipeline is one of the examples, and plain text is
                // what something prints.
                "rust" | "python" | "python dask" | "text" => continue,
                "toml" => {
                    let lines: Vec<&str> = block.lines().collect();
                    let same = |name: &str| {
                        let kept =
                            std::fs::read_to_string(Path::new(ROOT).join("examples").join(name)).expect("it is there");
                        kept.contains(&lines.join("\n"))
                    };
                    assert!(
                        ["life.toml", "blur.toml", "scan.toml"].iter().any(|name| same(name)),
                        "{page}: no example is this:\n{block}"
                    );
                }
                other => panic!("{page} has a block of `{other}`, which nobody runs"),
            }
            ran += 1;
        }
    }
    assert!(ran >= 30, "only {ran} blocks were found");
    for (name, bytes) in [
        ("mandelbrot.png", 10_000),
        ("scene.png", 5_000),
        ("blur.png", 5_000),
        ("life.png", 10_000),
        ("nbody.png", 10_000),
    ] {
        shell.has_picture(name, bytes);
    }
}

/// The pictures and outputs that are kept are those that the commands make.
#[test]
fn what_is_kept_is_what_is_made() {
    let shell = Shell::new();
    let kept = |name: &str| std::fs::read_to_string(Path::new(ROOT).join("examples").join(name)).expect("it is kept");
    let made = shell.run("examples", "cargo run --example search -- \"timed out\"");
    assert_eq!(made, kept("search.txt"));
    shell.run("examples", "vyre run examples/scene.wgsl --shape pixels=240x360 --out pixels=scene.png");
    shell.run("examples", "vyre run examples/blur.wgsl --in image=scene.png --out blurred=blur.png");
    shell.run("examples", "cargo run --example life -- life.png");
    for name in ["scene.png", "blur.png", "life.png"] {
        let made = std::fs::read(shell.home.path().join(name)).expect("it was made");
        let kept = std::fs::read(Path::new(ROOT).join("examples/pictures").join(name)).expect("it is kept");
        assert!(made == kept, "{name} differs from the one in examples/pictures");
    }
}

/// Links between pages lead somewhere.
#[test]
fn links_lead_somewhere() {
    for (page, text) in pages() {
        let folder = Path::new(ROOT).join(&page);
        let folder = folder.parent().expect("a folder");
        // What is shown as code has no links.
        let prose: String = text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2)).collect();
        for part in prose.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default().split('#').next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                assert!(folder.join(target).exists(), "{page} links to {target}, which is not there");
            }
        }
    }
}

/// The map of the code names folders and files that are there.
#[test]
fn the_map_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map");
    let crates = ["", "crates", "crates/vyre/src", "crates/vyre-foundation/src", "crates/vyre-cpu/src"];
    let mut named = 0;
    for word in map.split('`').skip(1).step_by(2) {
        let is_path = word.contains('/') && !word.contains(|c: char| c.is_whitespace() || "*:(){},<>".contains(c));
        if is_path {
            named += 1;
            assert!(crates.iter().any(|place| root.join(place).join(word).exists()), "there is no `{word}`");
        }
    }
    assert!(named > 20, "{named} paths");
}
