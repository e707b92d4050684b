//! `vyre cache`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vyre::pipeline::{DiskPipelineCache, PackKey};
use vyre::{Diagnostic, Engine, PackReport, Severity, codes};

use crate::args::{Cache, CacheWhat, Pack};
use crate::files::Outbox;
use crate::progress::Progress;
use crate::report::{Failure, Output, count};

pub(crate) fn cache(args: &Cache, output: &Output) -> Result<(), Failure> {
    let root = DiskPipelineCache::default_root();
    let cache = DiskPipelineCache::open(&root).map_err(|error| broken(&root, &error))?;
    let broken = |error: io::Error| broken(&root, &error);
    let (text, value) = match &args.what {
        CacheWhat::Stats => {
            let usage = cache.usage().map_err(broken)?;
            (
                format!(
                    "{}: {}, {} bytes, {} in quarantine",
                    root.display(),
                    count(usage.entries, "pipeline"),
                    usage.bytes,
                    usage.quarantined
                ),
                json!({ "root": root, "entries": usage.entries, "bytes": usage.bytes, "quarantined": usage.quarantined }),
            )
        }
        CacheWhat::Verify => {
            let progress = Progress::new("checking pipelines", Some(cache.usage().map_err(broken)?.entries));
            let report = cache.verify_watched(|| progress.step()).map_err(broken)?;
            (
                format!("{} good, {} bad and in quarantine now", count(report.good, "pipeline"), report.bad),
                json!({ "good": report.good, "bad": report.bad, "bytes": report.bytes }),
            )
        }
        CacheWhat::Gc => {
            let report = cache.gc().map_err(broken)?;
            (
                format!(
                    "{} ({} bytes) evicted, {} removed",
                    count(report.evicted, "pipeline"),
                    report.evicted_bytes,
                    count(report.swept, "left-over file")
                ),
                json!({ "evicted": report.evicted, "evicted_bytes": report.evicted_bytes, "swept": report.swept }),
            )
        }
        CacheWhat::Clear => {
            let removed = cache.clear().map_err(broken)?;
            // What was learnt is text that people may keep; it says where it is.
            let kept: Vec<PathBuf> = root.parent().map_or_else(Vec::new, |folder| {
                ["tuner", "routes.toml"].iter().map(|name| folder.join(name)).filter(|path| path.exists()).collect()
            });
            let names: Vec<String> = kept.iter().map(|path| path.display().to_string()).collect();
            let left = match names[..] {
                [] => String::new(),
                _ => format!("; what was learnt stays in {}", names.join(" and ")),
            };
            (format!("{} removed{left}", count(removed, "file")), json!({ "removed": removed, "kept": kept }))
        }
        CacheWhat::Export(pack) => export(pack)?,
        CacheWhat::Import(pack) => import(pack)?,
    };
    if output.json {
        output.print_json(&value)?
    } else {
        output.print(&text)?
    }
    let problems = cache.take_diagnostics();
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    output.problems(&problems);
    // What is bad was put aside and told; whoever asked for a check should learn of it.
    let bad = value["bad"].as_u64().is_some_and(|bad| bad > 0);
    if failed || bad { Err(Failure::Told) } else { Ok(()) }
}

/// What the cache says of itself, or else what the system says of it.
fn broken(root: &Path, error: &io::Error) -> Failure {
    let told = vyre::diagnostics::inside(error).cloned();
    let untold = || {
        let message = format!("the cache at `{}`: {error}", root.display());
        Diagnostic::new(&codes::engine::NO_DISK_CACHE, message)
    };
    told.unwrap_or_else(untold).into()
}

fn export(pack: &Pack) -> Result<(String, Value), Failure> {
    let secret = secret(pack)?;
    let _progress = Progress::new("packing", None);
    let engine = Engine::open()?;
    let mut outbox = Outbox::default();
    let report = outbox.stage_with(&pack.file, |file| {
        engine
            .export_pack(BufWriter::new(file), key(&secret))
            .map_err(|error| io::Error::other(error.diagnostic().clone()))
    })?;
    outbox.deliver()?;
    Ok((format!("{} holds {}", pack.file.display(), contents(&report)), summary(&report)))
}

fn import(pack: &Pack) -> Result<(String, Value), Failure> {
    let secret = secret(pack)?;
    let file = File::open(&pack.file).map_err(|error| cant_read(&pack.file, &error))?;
    let _progress = Progress::new("unpacking", None);
    let report = Engine::open()?.import_pack(BufReader::new(file), key(&secret))?;
    Ok((format!("{} taken in", contents(&report)), summary(&report)))
}

fn contents(report: &PackReport) -> String {
    let routes = if report.routes { ", and the router's knowledge" } else { "" };
    format!("{}, {}{routes}", count(report.pipelines, "pipeline"), count(report.decisions, "tuning decision"))
}

fn summary(report: &PackReport) -> Value {
    json!({ "pipelines": report.pipelines, "decisions": report.decisions, "routes": report.routes })
}

fn key(secret: &Option<[u8; 32]>) -> PackKey<'_> {
    match secret {
        Some(secret) => PackKey::Secret(secret),
        None => PackKey::Open,
    }
}

/// The key from its file: as bytes, or in hexadecimal digits.
fn secret(pack: &Pack) -> Result<Option<[u8; 32]>, Diagnostic> {
    let Some(path) = &pack.key.key else { return Ok(None) };
    let bytes = std::fs::read(path).map_err(|error| cant_read(path, &error))?;
    if let Ok(secret) = <[u8; 32]>::try_from(bytes.as_slice()) {
        return Ok(Some(secret));
    }
    let digits = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    let mut secret = [0; 32];
    let good = digits.len() == 64
        && digits.is_ascii()
        && secret
            .iter_mut()
            .enumerate()
            .all(|(at, byte)| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map(|value| *byte = value).is_ok());
    if good {
        return Ok(Some(secret));
    }
    Err(Diagnostic::new(&codes::command::BAD_FILE, format!("`{}` holds no key", path.display()))
        .with_fix("A key is 32 random bytes: `head -c 32 /dev/urandom > fleet.key`."))
}

fn cant_read(path: &Path, error: &io::Error) -> Diagnostic {
    Diagnostic::new(&codes::command::CANT_READ, format!("`{}` can't be read: {error}", path.display()))
}
