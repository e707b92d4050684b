//! `vyre explain`.

use std::path::{Path, PathBuf};

use serde_json::json;
use vyre::{Diagnostic, Engine, Explanation, codes};

use crate::args::{Explain, Kernel};
use crate::job::Job;
use crate::pipeline;
use crate::report::{Failure, Output};
use crate::run::prepare;

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
    if let Some(spec) = pipeline::Spec::of(&kernel, &args.passes, &args.inputs)? {
        return pipeline::explain(args, spec, output);
    }
    let job = Job::new(&kernel, &args.inputs)?;
    let engine = Engine::open()?;
    let prepared = prepare(&engine, &job, &args.inputs.backend)?;
    job.fill(&prepared)?;
    prepared.run()?;
    let mut explanation = prepared.explain();
    mark_absent(&engine, &mut explanation);
    output.problems(&job.warnings);
    output.problems(&engine.take_notices());
    if output.json {
        return output.print_json(&serde_json::to_value(&explanation).unwrap_or_default());
    }
    output.print(&explanation.to_string())
}

/// A backend that was never timed here may not be here at all; then nothing is expected of it.
pub(crate) fn mark_absent(engine: &Engine, explanation: &mut Explanation) {
    for choice in explanation.others.iter_mut().filter(|choice| choice.samples == 0 && choice.excluded.is_none()) {
        if let Err(error) = engine.backend(&choice.backend) {
            choice.excluded = Some(error.message().to_owned());
        }
    }
}
