//! `vyre decisions`: what was decided, for its owner.

use std::path::Path;

use serde_json::{Value, json};
use vyre::tuner::{Lock, Source, Timed, Verdict};
use vyre::{Decided, Diagnostic, Engine, codes};

use crate::args::{Decisions, DecisionsWhat};
use crate::report::{Failure, Output, count, time};

pub(crate) fn decisions(args: &Decisions, output: &Output) -> Result<(), Failure> {
    let engine = Engine::open()?;
    let done = match &args.what {
        DecisionsWhat::List => list(&engine, output),
        DecisionsWhat::Show { name } => show(&engine, name, output, false),
        DecisionsWhat::Why { name } => show(&engine, name, output, true),
        DecisionsWhat::Forget { name, all } => forget(&engine, name.as_deref(), *all, output),
        DecisionsWhat::Pin { name, undo } => pin(&engine, name, !undo, output),
        DecisionsWhat::Diff { one, other } => diff(&engine, one, other.as_deref(), output),
        DecisionsWhat::Freeze { output: file } => freeze(&engine, file, output),
    };
    output.problems(&engine.take_notices());
    done
}

/// The first digits are enough to tell decisions apart.
fn short(key: &str) -> &str {
    let digits = key.strip_prefix("v1-").unwrap_or(key);
    digits.get(..10).unwrap_or(digits)
}

fn gain(decided: &Decided) -> String {
    let evidence = &decided.decision.evidence;
    match decided.decision.verdict {
        Verdict::Winner if evidence.samples > 0 => format!("{:+.1}%", 100.0 * evidence.difference),
        _ => "-".to_owned(),
    }
}

fn state(decided: &Decided) -> &'static str {
    let decision = &decided.decision;
    match (decision.pinned, decision.subject.proven, decision.evidence.source) {
        (true, ..) => "pinned",
        (_, false, _) => "not used",
        (_, _, Source::Tuned) => "tuned",
        (_, _, Source::Learnt) => "learnt",
        (_, _, Source::Owner) => "written",
    }
}

fn grid(decided: &Decided) -> String {
    decided.decision.subject.grid.map(|groups| groups.to_string()).join("x")
}

fn list(engine: &Engine, output: &Output) -> Result<(), Failure> {
    let found = engine.decisions().launches()?;
    let routes = engine.decisions().freeze()?.routes;
    if output.json {
        let launches: Vec<Value> = found.iter().map(|decided| as_json(decided, false)).collect();
        return output.print_json(&json!({ "launches": launches, "routes": routes }));
    }
    let mut text = Vec::new();
    let mut adapter = "";
    for decided in &found {
        if decided.adapter != adapter {
            adapter = &decided.adapter;
            text.push(format!("{adapter}:"));
        }
        text.push(format!(
            "  {:<10}  {:<20} {:>14} workgroups  {:<16} {:>8}  {}",
            short(&decided.key),
            decided.decision.subject.program,
            grid(decided),
            decided.decision.candidate.to_string(),
            gain(decided),
            state(decided)
        ));
    }
    if !routes.is_empty() {
        text.push("routes:".to_owned());
    }
    for (op, spans) in &routes {
        let spans: Vec<String> = spans.iter().map(|span| format!("{} from n = {}", span.backend, span.from)).collect();
        text.push(format!("  {op}: {}", spans.join(", ")));
    }
    if text.is_empty() {
        text.push("Nothing is decided yet. Kernels are learnt as they run, or now with `vyre tune`.".to_owned());
    }
    output.print(&text.join("\n"))
}

fn show(engine: &Engine, name: &str, output: &Output, why: bool) -> Result<(), Failure> {
    let found = engine.decisions().find(name)?;
    if output.json {
        let launches: Vec<Value> = found.iter().map(|decided| as_json(decided, why)).collect();
        return output.print_json(&json!({ "launches": launches }));
    }
    let mut text = Vec::new();
    for decided in &found {
        text.extend(in_words(decided, why));
    }
    output.print(&text.join("\n"))
}

fn in_words(decided: &Decided, why: bool) -> Vec<String> {
    let (decision, evidence) = (&decided.decision, &decided.decision.evidence);
    let subject = &decision.subject;
    let mut text = vec![
        format!("{} ({})", subject.program, decided.key),
        format!("  device: {} ({}, {})", decided.adapter, evidence.device, evidence.driver),
        format!("  launch: {}, for up to {} workgroups of {}", decision.candidate, grid(decided), words(subject.own)),
        format!("  state: {}", state(decided)),
    ];
    if evidence.samples == 0 {
        text.push("  nothing was measured".to_owned());
        return text;
    }
    text.push(match decision.verdict {
        Verdict::Winner => format!(
            "  {} against {} for the kernel's own launch: {:+.1}% (between {:+.1}% and {:+.1}%, 19 times of 20)",
            time(evidence.chosen_ns as f64),
            time(evidence.default_ns as f64),
            100.0 * evidence.difference,
            100.0 * evidence.interval[0],
            100.0 * evidence.interval[1]
        ),
        _ => format!("  {}; no other launch is clearly faster", time(evidence.default_ns as f64)),
    });
    text.push(format!(
        "  {} of {} candidates, {} beside the kernel's own, build {}",
        count(evidence.samples as u64, "timing"),
        evidence.candidates,
        count(evidence.pairs as u64, "run"),
        evidence.build
    ));
    if !why {
        return text;
    }
    if let Some(prior) = &evidence.prior {
        text.push(format!("  began with {prior}"));
    }
    text.push("  candidates:".to_owned());
    for timed in &evidence.timings {
        text.push(candidate_line(timed));
    }
    if evidence.candidates > evidence.timings.len() {
        text.push(format!(
            "    and {} slower ones",
            evidence.candidates - evidence.timings.len() - evidence.rejected.len()
        ));
    }
    text.extend(evidence.rejected.iter().map(|reason| format!("    rejected {reason}")));
    for rival in &decision.rivals {
        text.push(format!(
            "  elsewhere {} was decided for, from {}",
            rival.candidate,
            count(rival.evidence.samples as u64, "timing")
        ));
    }
    text.push("  what would change it:".to_owned());
    text.extend(changes(decided).into_iter().map(|change| format!("    {change}")));
    text
}

fn candidate_line(timed: &Timed) -> String {
    let interval = match timed.interval {
        Some([low, high]) => format!("{:+.1}% to {:+.1}% of the kernel's own", 100.0 * low, 100.0 * high),
        None => "dropped early, or the kernel's own".to_owned(),
    };
    format!(
        "    {:<20} {:>10}  {interval}, {}",
        timed.candidate.to_string(),
        time(timed.ns as f64),
        count(timed.samples as u64, "timing")
    )
}

/// What would make another launch be used.
fn changes(decided: &Decided) -> Vec<String> {
    let decision = &decided.decision;
    if decision.pinned {
        return vec![format!("only its owner: `vyre decisions pin {} --undo`", short(&decided.key))];
    }
    let mut text = Vec::new();
    if !decision.subject.proven {
        text.push(format!(
            "results agreed when it was measured, but may not always: `vyre decisions pin {}` uses it for exactly this size",
            short(&decided.key)
        ));
    }
    let next = decision.evidence.timings.iter().find(|timed| timed.candidate != decision.candidate);
    if let Some(next) = next.filter(|_| decision.evidence.chosen_ns > 0) {
        let behind = next.ns as f64 / decision.evidence.chosen_ns as f64 - 1.0;
        text.push(match behind > 0.0 {
            true => format!("{} becoming {:.1}% faster than it was", next.candidate, 100.0 * behind / (1.0 + behind)),
            false => format!("{} being faster beyond doubt; now it can't be told apart", next.candidate),
        });
    }
    text.push("another build of driver or compiler, live timings that leave the interval, or `vyre tune`".to_owned());
    text
}

fn as_json(decided: &Decided, why: bool) -> Value {
    let (decision, evidence) = (&decided.decision, &decided.decision.evidence);
    let mut value = json!({
        "key": decided.key, "adapter": decided.adapter, "program": decision.subject.program,
        "grid": decision.subject.grid, "own": decision.subject.own, "proven": decision.subject.proven,
        "workgroup_size": decision.candidate.workgroup_size, "launch": decision.candidate.to_string(),
        "verdict": decision.verdict, "state": state(decided), "pinned": decision.pinned,
        "difference": evidence.difference, "interval": evidence.interval, "samples": evidence.samples,
        "measured_at": evidence.measured_at,
    });
    if why {
        value["evidence"] = serde_json::to_value(evidence).unwrap_or_default();
        value["rivals"] = serde_json::to_value(&decision.rivals).unwrap_or_default();
        value["changes"] = json!(changes(decided));
    }
    value
}

fn forget(engine: &Engine, name: Option<&str>, all: bool, output: &Output) -> Result<(), Failure> {
    let decisions = engine.decisions();
    let mut forgotten = 0;
    match (name, all) {
        (Some(name), _) => forgotten = decisions.forget(name)?,
        (None, true) => {
            for decided in decisions.launches()? {
                forgotten += decisions.forget(&decided.key)?;
            }
        }
        (None, false) => {
            let message = "`vyre decisions forget` takes a name, the beginning of a key, or `--all`";
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).into());
        }
    }
    if output.json {
        return output.print_json(&json!({ "forgotten": forgotten }));
    }
    output.print(&format!("Forgot {}.", count(forgotten as u64, "decision")))
}

fn pin(engine: &Engine, name: &str, pinned: bool, output: &Output) -> Result<(), Failure> {
    let changed = engine.decisions().pin(name, pinned)?;
    if output.json {
        return output.print_json(&json!({ "changed": changed, "pinned": pinned }));
    }
    let what = if pinned { "Pinned" } else { "Let go of" };
    output.print(&format!("{what} {}.", count(changed as u64, "decision")))
}

fn freeze(engine: &Engine, file: &Path, output: &Output) -> Result<(), Failure> {
    let lock = engine.decisions().freeze()?;
    lock.save(file)?;
    let launches: usize = lock.launches.values().map(|launches| launches.len()).sum();
    if output.json {
        return output.print_json(&json!({ "file": file, "launches": launches, "routes": lock.routes.len() }));
    }
    output.print(&format!(
        "{} has {} and {}. VYRE_DECISIONS={} uses exactly these.",
        file.display(),
        count(launches as u64, "launch"),
        count(lock.routes.len() as u64, "route"),
        file.display()
    ))
}

/// Two lock files, or one and what is used now.
fn diff(engine: &Engine, one: &Path, other: Option<&Path>, output: &Output) -> Result<(), Failure> {
    let before = Lock::load(one)?;
    let after = match other {
        Some(other) => Lock::load(other)?,
        None => engine.decisions().freeze()?,
    };
    let mut lines = Vec::new();
    let launches = |lock: &Lock| {
        let each = |(adapter, launches): (&String, &std::collections::BTreeMap<String, vyre::tuner::Decision>)| {
            let named = |(key, decision): (&String, &vyre::tuner::Decision)| {
                let name = format!("{adapter} {} {}", decision.subject.program, short(key));
                (name, decision.candidate.to_string())
            };
            launches.iter().map(named).collect::<Vec<_>>()
        };
        lock.launches.iter().flat_map(each).collect::<std::collections::BTreeMap<_, _>>()
    };
    let routes = |lock: &Lock| {
        let spans = |spans: &Vec<vyre::tuner::Span>| {
            spans.iter().map(|span| format!("{} from {}", span.backend, span.from)).collect::<Vec<_>>().join(", ")
        };
        lock.routes.iter().map(|(op, list)| (format!("route {op}"), spans(list))).collect()
    };
    for (before, after) in [(launches(&before), launches(&after)), (routes(&before), routes(&after))] {
        let before: std::collections::BTreeMap<String, String> = before;
        for name in before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))) {
            if before.get(name) != after.get(name) {
                lines.push((name.clone(), before.get(name).cloned(), after.get(name).cloned()));
            }
        }
    }
    if output.json {
        let changes: Vec<Value> = lines
            .iter()
            .map(|(name, before, after)| json!({ "name": name, "before": before, "after": after }))
            .collect();
        return output.print_json(&json!({ "changes": changes }));
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let mut text: Vec<String> =
        lines.iter().map(|(name, before, after)| format!("{name}: {} -> {}", shown(before), shown(after))).collect();
    if text.is_empty() {
        text.push("No difference.".to_owned());
    }
    output.print(&text.join("\n"))
}

fn words(shape: [u32; 3]) -> String {
    shape.map(|size| size.to_string()).join("x")
}
