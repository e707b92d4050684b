//! A module as SPIR-V words and as WGSL text.

use naga::Module;
use naga::back::{spv, wgsl as wgsl_writer};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use vyre_spec::{Diagnostic, codes};

/// What is wrong with a module, if anything. Uniformity was checked on the program, where it can be seen better.
fn validate(module: &Module) -> Result<ModuleInfo, Diagnostic> {
    let flags = ValidationFlags::all() - ValidationFlags::CONTROL_FLOW_UNIFORMITY;
    Validator::new(flags, Capabilities::all())
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all())
        .validate(module)
        .map_err(|error| failed(&error.emit_to_string("")))
}

fn failed(what: &str) -> Diagnostic {
    Diagnostic::new(&codes::wgpu::MALFORMED, format!("naga refuses the module of a kernel: {}", what.trim()))
}

/// The module as SPIR-V for Vulkan. Float arithmetic is marked so that drivers don't contract it. Version 1.3 is what Vulkan 1.1
/// takes, and needed for subgroup operations.
pub fn spirv(module: &Module, version: (u8, u8)) -> Result<Vec<u32>, Diagnostic> {
    let info = validate(module)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = spv::Options {
        lang_version: version,
        flags: spv::WriterFlags::empty(),
        // Every access that is not proven has its own guard in the module, and every division its own checks.
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        emit_int_div_checks: false,
        // Loops that may not end have their own bound.
        force_loop_bounding: false,
        // The kernel clears it, with all invocations.
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        ..spv::Options::default()
    };
    let words = spv::write_vec(module, &info, &options, None).map_err(|error| failed(&error.to_string()))?;
    Ok(forbid_contraction(&words))
}

/// The module as WGSL text, for people.
pub fn wgsl(module: &Module) -> Result<String, Diagnostic> {
    let info = validate(module)?;
    wgsl_writer::write_string(module, &info, wgsl_writer::WriterFlags::empty())
        .map_err(|error| failed(&error.to_string()))
}

const HEADER: usize = 5;
const OP_EXT_INST: u32 = 12;
const OP_DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;

/// Decorates the results of float arithmetic, as naga has no way to say it.
fn forbid_contraction(words: &[u32]) -> Vec<u32> {
    let mut decorations = Vec::new();
    let mut before = None;
    let mut at = HEADER;
    while at < words.len() {
        let (opcode, length) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        match opcode {
            // Decorations, and types where there are none: where decorations may stand.
            71..=75 | 19..=39 => _ = before.get_or_insert(at),
            // Negation, + - * / remainders, comparisons; the id of the result is the second operand.
            127 | 129 | 131 | 133 | 136 | 140 | 141 | 142 | 148 | 180..=191 | OP_EXT_INST => {
                if let Some(&id) = words.get(at + 2) {
                    decorations.extend([(3 << 16) | OP_DECORATE, id, NO_CONTRACTION]);
                }
            }
            _ => {}
        }
        at += length.max(1);
    }
    let at = before.unwrap_or(words.len());
    [&words[..at], &decorations, &words[at..]].concat()
}
