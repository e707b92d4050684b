//! `vyre cache`.

use serde_json::json;
use vyre::pipeline::DiskPipelineCache;
use vyre::{Diagnostic, codes};

use crate::args::{Cache, CacheWhat};
use crate::report::{Failure, Output};

pub(crate) fn cache(args: &Cache, output: &Output) -> Result<(), Failure> {
    let root = DiskPipelineCache::default_root();
    let broken = |error: std::io::Error| {
        let message = format!("the cache at `{}`: {error}", root.display());
        Failure::from(Diagnostic::new(&codes::engine::NO_DISK_CACHE, message))
    };
    let cache = DiskPipelineCache::open(&root).map_err(broken)?;
    let (text, value) = match args.what {
        CacheWhat::Stats => {
            let usage = cache.usage().map_err(broken)?;
            (
                format!(
                    "{}: {} pipelines, {} bytes, {} in quarantine",
                    root.display(),
                    usage.entries,
                    usage.bytes,
                    usage.quarantined
                ),
                json!({ "root": root, "entries": usage.entries, "bytes": usage.bytes, "quarantined": usage.quarantined }),
            )
        }
        CacheWhat::Verify => {
            let report = cache.verify().map_err(broken)?;
            (
                format!("{} pipelines are good, {} were not and are in quarantine now", report.good, report.bad),
                json!({ "good": report.good, "bad": report.bad, "bytes": report.bytes }),
            )
        }
        CacheWhat::Gc => {
            let report = cache.gc().map_err(broken)?;
            (
                format!(
                    "{} pipelines ({} bytes) evicted, {} left-over files removed",
                    report.evicted, report.evicted_bytes, report.swept
                ),
                json!({ "evicted": report.evicted, "evicted_bytes": report.evicted_bytes, "swept": report.swept }),
            )
        }
        CacheWhat::Clear => {
            let removed = cache.clear().map_err(broken)?;
            (format!("{removed} pipelines removed"), json!({ "removed": removed }))
        }
    };
    output.problems(&cache.take_diagnostics());
    if output.json { output.print_json(&value) } else { output.print(&text) }
}
