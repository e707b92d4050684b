//! `vyre devices` and `vyre doctor`.

use serde_json::json;
use vyre::{Engine, pipeline::DiskPipelineCache, tuner};

use crate::report::{Failure, Output};

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
        return output.print_json(&json!(list));
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
    problems.extend(engine.take_notices());
    match engine.pipelines().disk() {
        Some(disk) => lines.push(format!("cache: {} is usable", disk.root().display())),
        None => lines.push(format!("cache: {} is not usable", DiskPipelineCache::default_root().display())),
    }
    let (mode, warning) = tuner::Mode::from_env_checked();
    lines.push(format!("tuner: {mode:?}"));
    problems.extend(warning);
    for device in engine.devices() {
        match device.state {
            Ok(able) => lines.push(format!("{}: {}", device.id, able.name)),
            Err(why) => {
                lines.push(format!("{}: absent", device.id));
                problems.push(why);
            }
        }
    }
    lines.push(match problems.len() {
        0 => "nothing is wrong".to_owned(),
        1 => "one thing to look at".to_owned(),
        n => format!("{n} things to look at"),
    });
    if output.json {
        return output.print_json(&json!({ "facts": lines, "problems": vyre::diagnostics::to_json_all(&problems) }));
    }
    output.print(&lines.join("\n"))?;
    output.problems(&problems);
    Ok(())
}
