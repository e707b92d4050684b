//! Progress on the terminal: a bar with the time left for anything that takes over a second, and nothing where nobody looks.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes less is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(1);
const REDRAWN: Duration = Duration::from_millis(120);

/// A bar that appears after a second and is gone when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    waiting: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// A bar for so many steps; where their number is not known, a spinner with the time so far.
    pub(crate) fn new(what: impl Into<Cow<'static, str>>, steps: Option<u64>) -> Progress {
        let shown = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::hidden()).with_message(what);
        if !shown {
            return Progress { bar, waiting: None };
        }
        let template = match steps {
            Some(_) => "{msg} [{bar:30}] {pos}/{len}, {elapsed} so far, {eta} left",
            None => "{msg} {spinner} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let (stop, stopped) = channel();
        let revealed = bar.clone();
        let reveal = move || {
            if let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PATIENCE) {
                revealed.set_draw_target(ProgressDrawTarget::stderr());
                revealed.enable_steady_tick(REDRAWN);
            }
        };
        // Without a thread there is no bar, and that is all.
        let thread = std::thread::Builder::new().name("vyre-progress".to_owned()).spawn(reveal).ok();
        Progress { bar, waiting: thread.map(|thread| (stop, thread)) }
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// So many steps of so many are done.
    pub(crate) fn set(&self, done: usize, steps: usize) {
        self.bar.set_length(steps as u64);
        self.bar.set_position(done as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.waiting.take() {
            drop(stop);
            drop(thread.join());
            self.bar.finish_and_clear();
        }
    }
}
