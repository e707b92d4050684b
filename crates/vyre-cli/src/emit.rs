//! `vyre emit`.

use std::io::Write;

#[cfg(not(all(feature = "wgpu", feature = "cuda", feature = "disasm")))]
use vyre::{Diagnostic, codes};
use vyre::{kernel, wire};

use crate::args::{Emit, Form};
use crate::files;
use crate::job::Job;
use crate::report::{Failure, Output, cant_print};

pub(crate) fn emit(args: &Emit, output: &Output) -> Result<(), Failure> {
    let job = Job::without_inputs(&args.kernel)?;
    let program = job.source.validate()?;
    let options = kernel::Options {
        specialization: job.config.specialization.resolve(&program)?,
        workgroup_size: job.config.workgroup_override,
        ..kernel::Options::default()
    };
    let bytes = match args.to {
        Form::Wgsl => vyre::to_wgsl(&program)?.into_bytes(),
        Form::Vyre => vyre::text::print(&program).into_bytes(),
        Form::Wire => wire::encode(&program),
        Form::Kernel => kernel::lower(&program, &options)?.to_string().into_bytes(),
        Form::Spirv => vyre::to_spirv(&program, &options)?,
        #[cfg(feature = "wgpu")]
        Form::Wgpu => vyre::to_kernel_wgsl(&program, &options)?.into_bytes(),
        #[cfg(feature = "cuda")]
        Form::Ptx => vyre::to_ptx(&program, &options, 90)?.into_bytes(),
        #[cfg(feature = "disasm")]
        Form::Asm => vyre::to_asm(&program, &options)?.into_bytes(),
        #[cfg(not(all(feature = "wgpu", feature = "cuda", feature = "disasm")))]
        form => return Err(not_built(form).into()),
    };
    match &args.output {
        Some(path) if !files::is_standard_output(path) => {
            let same = [("the kernel".to_owned(), args.kernel.kernel.as_path()), ("the output".to_owned(), path)];
            files::distinct(&same)?;
            Ok(files::replace(path, bytes)?)
        }
        _ if matches!(args.to, Form::Wire | Form::Spirv) => {
            let mut out = std::io::stdout().lock();
            out.write_all(&bytes).and_then(|()| out.flush()).map_err(|error| cant_print(&error).into())
        }
        _ => output.print_bytes(bytes.trim_ascii_end()),
    }
}

#[cfg(not(all(feature = "wgpu", feature = "cuda", feature = "disasm")))]
fn not_built(form: Form) -> Diagnostic {
    let feature = match form {
        Form::Wgpu => "wgpu",
        Form::Ptx => "cuda",
        _ => "disasm",
    };
    Diagnostic::new(&codes::command::NOT_BUILT_IN, "this build of the command can't write that form")
        .with_fix(format!("Build it with `--features {feature}`."))
}
