//! `vyre devices` and `vyre doctor`.

use serde_json::json;
use vyre::{Engine, pipeline::DiskPipelineCache, tuner};

use crate::report::{Failure, Output, count};

pub(crate) fn devices(output: &Output) -> Result<(), Failure> {
    let engine = Engine::builder().without_disk().open()?;
    let devices = engine.devices();
    if output.json {
        let list: Vec<_> = devices
            .iter()
            .map(|device| match &device.state {
                Ok(able) => json!({
                    "id": device.id.as_str(), "present": true, "name": able.name, "driver": able.driver,
                    "kind": format!("{:?}", able.kind).to_lowercase(), "resident": able.resident,
                    "max_workgroup_invocations": able.limits.max_workgroup_invocations,
                }),
                Err(why) => {
                    json!({ "id": device.id.as_str(), "present": false, "why": vyre::diagnostics::to_json(why) })
                }
            })
            .collect();
        return output.print_json(&json!({ "devices": list }));
    }
    let mut text = Vec::new();
    for device in devices {
        text.push(match &device.state {
            Ok(able) => format!(
                "{:<10} {} ({}, {})",
                device.id.as_str(),
                able.name,
                format!("{:?}", able.kind).to_lowercase(),
                able.driver
            ),
            Err(why) => format!("{:<10} absent: {}\n{:<10} Fix: {}", device.id.as_str(), why.message, "", why.fix),
        });
    }
    output.print(&text.join("\n"))
}

pub(crate) fn doctor(output: &Output) -> Result<(), Failure> {
    let mut lines = Vec::new();
    let mut problems = Vec::new();
    let engine = Engine::open()?;
    match engine.pipelines().disk() {
        Some(disk) if disk.is_read_only() => lines.push(format!("cache: {} can only be read", disk.root().display())),
        Some(disk) => lines.push(format!("cache: {} is usable", disk.root().display())),
        None => lines.push(format!("cache: {} is not usable", DiskPipelineCache::default_root().display())),
    }
    lines.push(match tuner::Mode::from_env_checked().0 {
        tuner::Mode::On => "tuner: launches are compared at first use".to_owned(),
        tuner::Mode::OffUseDefault => "tuner: every kernel runs with its own launch".to_owned(),
        _ => "tuner: launches are learnt from real runs".to_owned(),
    });
    let mut absent = Vec::new();
    for device in engine.devices() {
        match device.state {
            Ok(able) => {
                // This reads the table of what was decided, and a broken one is a notice.
                let known = engine.decisions().on(device.id.as_str())?.len();
                lines.push(format!("{}: {}, {} known", device.id, able.name, count(known as u64, "tuned launch")));
            }
            // A device that is not there is no fault.
            Err(why) => {
                lines.push(format!("{}: absent, {}", device.id, why.message));
                absent.push(json!({ "id": device.id.as_str(), "why": vyre::diagnostics::to_json(&why) }));
            }
        }
    }
    problems.extend(engine.take_notices());
    lines.push(match problems.len() {
        0 => "nothing is wrong".to_owned(),
        1 => "one thing to look at".to_owned(),
        wrong => format!("{wrong} things to look at"),
    });
    if output.json {
        output.print_json(&json!({ "facts": lines, "absent": absent }))?;
    } else {
        output.print(&lines.join("\n"))?;
    }
    output.problems(&problems);
    if problems.is_empty() { Ok(()) } else { Err(Failure::Told) }
}
