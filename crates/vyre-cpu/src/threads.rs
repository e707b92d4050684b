//! How many threads the backend works with.

use std::num::NonZero;

use vyre_spec::{Diagnostic, codes};

/// Most threads that can be asked for.
const MOST: usize = 4096;

/// As many as `VYRE_THREADS` says, else as many processors as this process may use: affinity and quota count.
pub(crate) fn from_env() -> Result<NonZero<usize>, Diagnostic> {
    match std::env::var_os("VYRE_THREADS") {
        None => Ok(std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)),
        Some(word) => from_word(&word.to_string_lossy()),
    }
}

fn from_word(word: &str) -> Result<NonZero<usize>, Diagnostic> {
    word.trim().parse().ok().filter(|threads: &NonZero<usize>| threads.get() <= MOST).ok_or_else(|| {
        Diagnostic::new(
            &codes::cpu::THREADS,
            format!("`VYRE_THREADS` is `{word}`, which is no number from 1 to {MOST}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_understood_and_all_else_refused() {
        assert_eq!(from_word("3").unwrap().get(), 3);
        assert_eq!(from_word(" 16 ").unwrap().get(), 16);
        for word in ["", "0", "-1", "many", "1.5", "99999999999999999999", "4097"] {
            assert_eq!(from_word(word).unwrap_err().code.id, codes::cpu::THREADS.id, "{word}");
        }
    }
}
