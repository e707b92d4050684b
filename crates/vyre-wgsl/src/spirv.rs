//! A program as SPIR-V: its WGSL text through naga's back end, so that both say the same.

use naga::back::{PipelineConstants, pipeline_constants, spv};
use naga::{Module, ShaderStage};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{Literal, Specialization};
use vyre_spec::{Diagnostic, codes};

use crate::export::{export_explicit, refuse};
use crate::import::{catch, front, on_big_stack, one_line};

/// SPIR-V with subgroup operations and with 16-bit storage.
const VERSION: (u8, u8) = (1, 3);

/// A program as the bytes of a SPIR-V module for Vulkan, with values for its constants and, where one is given, another workgroup size.
/// What WGSL can't express is refused.
pub fn export_spirv(
    program: &ValidProgram,
    specialization: &Specialization,
    workgroup_size: Option<[u32; 3]>,
) -> Result<Vec<u8>, Diagnostic> {
    let text = export_explicit(program)?;
    let mut constants = PipelineConstants::default();
    for (name, value) in specialization {
        constants.insert(name.to_string(), number(value)?);
    }
    let words = on_big_stack(&|| {
        let refused = |error: &dyn std::error::Error| {
            let message = format!("the program has no SPIR-V: {}", one_line(&error.to_string()));
            vec![Diagnostic::new(&codes::wgsl::EXPORT_UNSUPPORTED, message)]
        };
        let (mut module, info) = front(&text, &crate::import::SourceText::default())
            .map_err(|problems| problems.into_iter().map(|(problem, _)| problem).collect::<Vec<_>>())?;
        let entry = resize(&mut module, workgroup_size);
        let (module, info) = catch(|| {
            let entry_point = Some((ShaderStage::Compute, entry.as_str()));
            pipeline_constants::process_overrides(&module, &info, entry_point, &constants)
                .map_err(|error| refused(&error))
        })??;
        let options = spv::Options {
            lang_version: VERSION,
            // Names make the module readable, here and where it is read again.
            flags: spv::WriterFlags::DEBUG,
            // Compute kernels have no inputs and outputs of stages, so they need no capability for them.
            use_storage_input_output_16: false,
            ..spv::Options::default()
        };
        catch(|| spv::write_vec(&module, &info, &options, None).map_err(|error| refused(&error)))?
    });
    let words = words.map_err(|problems| {
        let none = || Diagnostic::new(&codes::wgsl::WGSL_FRONT_END, "the back end gave no reason");
        problems.into_iter().next().unwrap_or_else(none)
    })?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// Gives the one entry point another workgroup size, and its name.
fn resize(module: &mut Module, workgroup_size: Option<[u32; 3]>) -> String {
    match module.entry_points.first_mut() {
        Some(entry) => {
            if let Some(size) = workgroup_size {
                entry.workgroup_size = size;
                entry.workgroup_size_overrides = None;
            }
            entry.name.clone()
        }
        None => String::new(),
    }
}

fn number(value: &Literal) -> Result<f64, Diagnostic> {
    match value {
        Literal::Bool(value) => Ok(f64::from(u8::from(*value))),
        Literal::U32(value) => Ok(f64::from(*value)),
        Literal::I32(value) => Ok(f64::from(*value)),
        Literal::F32(value) => Ok(f64::from(*value)),
        other => refuse(format!("a constant of type {}", other.data_type())),
    }
}
