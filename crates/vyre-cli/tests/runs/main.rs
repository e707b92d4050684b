//! Runs of the command as a user would make them: how it launches kernels, what it says of that, and pipelines.

mod domains;
mod launches;
mod messages;
mod pipelines;

use std::path::PathBuf;
use std::process::{Command, Output};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// A folder with its own caches.
struct Home(tempfile::TempDir);

/// What a command printed, when it did what it was asked for.
struct Done {
    out: String,
    /// What went to standard error.
    said: String,
}

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    /// `vyre` with these words, which stand apart.
    fn vyre(&self, words: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vyre"));
        command
            .args(words.split_whitespace().map(|word| word.replace("EXAMPLES", EXAMPLES)))
            .current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_CONFIG_HOME", self.path("config"));
        // Without it drivers complain on standard error.
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command.output().expect("the command starts")
    }

    #[track_caller]
    fn done(&self, words: &str) -> Done {
        let output = self.vyre(words);
        let [out, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "`vyre {words}` ended with {}\n{out}{said}", output.status);
        Done { out, said }
    }

    /// It is refused with this code, and what it says.
    #[track_caller]
    fn refused(&self, words: &str, code: &str) -> String {
        let output = self.vyre(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "`vyre {words}`\n{said}");
        assert!(said.contains(&format!("[{code}]")) && said.contains("Fix: "), "`vyre {words}`\n{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// The numbers of a result that was written as bytes.
    fn numbers(&self, name: &str) -> Vec<u32> {
        let bytes = std::fs::read(self.path(name)).expect("a result");
        bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
    }
}

/// The bytes of numbers.
fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Numbers that look like chance and are the same every time.
fn chance(count: usize) -> Vec<u32> {
    let mut state = 0x9e37_79b9u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    (0..count).map(|_| next()).collect()
}
