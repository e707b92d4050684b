//! What happens inside, on standard error: `-v`, or `VYRE_LOG`.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use vyre::{Diagnostic, Severity, codes};

use crate::report::time;

/// Shows events from here on, if somebody asked for them.
pub(crate) fn start(verbose: u8) -> Result<(), Diagnostic> {
    let word = std::env::var("VYRE_LOG").unwrap_or_default();
    let asked = match word.as_str() {
        "" | "off" => LevelFilter::OFF,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        word => {
            let message = format!("`VYRE_LOG` is `{word}`; the words are off, warn, info, debug and trace");
            let mut problem =
                Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix("Use one of them, or unset it.");
            // The command does what it was asked for all the same.
            problem.severity = Severity::Warning;
            return Err(problem);
        }
    };
    let flag = match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let level = asked.max(flag);
    if level != LevelFilter::OFF {
        let log = Log { level, begun: Instant::now(), next: AtomicU64::new(1), spans: Mutex::default() };
        // Nobody else sets one.
        let _ = tracing::subscriber::set_global_default(log);
    }
    Ok(())
}

/// Prints events as they come, and spans with their time when they end.
struct Log {
    level: LevelFilter,
    begun: Instant,
    next: AtomicU64,
    spans: Mutex<HashMap<u64, Span>>,
}

struct Span {
    text: String,
    begun: Instant,
    handles: u64,
}

/// Fields as `name=value`, and the message as it is.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let separator = if self.0.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.0, "{separator}{value:?}"),
            name => write!(self.0, "{separator}{name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl Log {
    fn spans(&self) -> MutexGuard<'_, HashMap<u64, Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, metadata: &Metadata<'_>, text: &str) {
        let at = time(self.begun.elapsed().as_nanos() as f64);
        eprintln!("{at:>10} {:<5} {}: {text}", metadata.level(), metadata.target());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other crates say little that a user of kernels can act on.
        *metadata.level() <= self.level && metadata.target().starts_with("vyre")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Text::default();
        span.record(&mut text);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.spans().insert(id, Span { text: text.0, begun: Instant::now(), handles: 1 });
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut text = Text::default();
        values.record(&mut text);
        if let Some(span) = self.spans().get_mut(&id.into_u64()) {
            span.text = format!("{} {}", span.text, text.0);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.line(event.metadata(), &text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(span) = self.spans().get_mut(&id.into_u64()) {
            span.handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans();
        let Some(span) = spans.get_mut(&id.into_u64()) else { return false };
        span.handles -= 1;
        if span.handles > 0 {
            return false;
        }
        let ended = spans.remove(&id.into_u64());
        drop(spans);
        if let Some(span) = ended {
            let at = time(self.begun.elapsed().as_nanos() as f64);
            eprintln!("{at:>10} DEBUG {} took {}", span.text, time(span.begun.elapsed().as_nanos() as f64));
        }
        true
    }
}
