//! Which process this is. Asking the system takes as long as a good part of a small call, so forks are counted instead.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

#[cfg(unix)]
extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

#[cfg(unix)]
fn count_forks() -> bool {
    // SAFETY: the function only counts, which a child may do before anything else.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) == 0 }
}

#[cfg(not(unix))]
fn count_forks() -> bool {
    false
}

/// A number that is another one in a forked child than in its parent.
pub(crate) fn number() -> u32 {
    static COUNTED: OnceLock<bool> = OnceLock::new();
    match *COUNTED.get_or_init(count_forks) {
        true => FORKS.load(Ordering::Relaxed),
        false => std::process::id(),
    }
}
