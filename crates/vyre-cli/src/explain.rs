//! `vyre explain`.

use std::path::{Path, PathBuf};

use serde_json::json;
use vyre::{Diagnostic, Engine, codes};

use crate::args::{Explain, Kernel};
use crate::job::Job;
use crate::report::{Failure, Output};

pub(crate) fn explain(args: &Explain, output: &Output) -> Result<(), Failure> {
    if let Some(code) = vyre::diagnostics::explain(&args.what) {
        if output.json {
            return output.print_json(&json!({
                "code": code.id, "severity": code.severity.to_string(), "meaning": code.meaning, "fix": code.cure,
            }));
        }
        return output.print(&format!("{} ({})\n  {}\n  Fix: {}", code.id, code.severity, code.meaning, code.cure));
    }
    if !Path::new(&args.what).exists() {
        let message = format!("`{}` is neither a known code nor a file", args.what);
        return Err(Diagnostic::new(&codes::command::UNKNOWN_CODE, message).into());
    }
    let kernel = Kernel { kernel: PathBuf::from(&args.what), launch: args.launch.clone() };
    let job = Job::new(&kernel, &args.inputs)?;
    let engine = Engine::open()?;
    let prepared = engine.prepare_with(&job.source.program, &job.config)?;
    job.fill(&prepared)?;
    prepared.run()?;
    let explanation = prepared.explain();
    output.problems(&engine.take_notices());
    if output.json {
        return output.print_json(&serde_json::to_value(&explanation).unwrap_or_default());
    }
    output.print(&explanation.to_string())
}
