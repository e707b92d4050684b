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

/// How SPIR-V is written for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spirv {
    /// Version 1.3 is what Vulkan 1.1 takes, and needed for subgroup operations.
    pub version: (u8, u8),
    /// What the device is told about floats.
    pub controls: FloatControls,
    /// The driver may round sums of products once.
    pub contraction: bool,
}

impl Default for Spirv {
    /// Version 1.3, and nothing about floats.
    fn default() -> Self {
        Spirv { version: (1, 3), controls: FloatControls::default(), contraction: false }
    }
}

/// What a device can be told about floats, for f16, f32 and f64 each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloatControls {
    /// Subnormal numbers are kept.
    pub subnormals: [bool; 3],
    /// The sign of zero, infinities and NaN are kept.
    pub specials: [bool; 3],
    /// Results are rounded to nearest, and to even where two are as near.
    pub nearest: [bool; 3],
}

/// The module as SPIR-V for Vulkan. Float arithmetic is marked so that drivers don't contract it, unless they may.
pub fn spirv(module: &Module, options: Spirv) -> Result<Vec<u32>, Diagnostic> {
    let info = validate(module)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let widths = widths(module);
    let Spirv { version, controls, contraction } = options;
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
    let words = if contraction { words } else { forbid_contraction(&words) };
    Ok(control_floats(&words, controls, widths))
}

/// Which floats a module has: f16, f32, f64.
fn widths(module: &Module) -> [bool; 3] {
    let mut widths = [false; 3];
    for (_, ty) in module.types.iter() {
        if let Some(naga::Scalar { kind: naga::ScalarKind::Float, width }) = ty.inner.scalar() {
            match width {
                2 => widths[0] = true,
                8 => widths[2] = true,
                _ => widths[1] = true,
            }
        }
    }
    widths
}

/// The module as WGSL text, for people.
pub fn wgsl(module: &Module) -> Result<String, Diagnostic> {
    let info = validate(module)?;
    wgsl_writer::write_string(module, &info, wgsl_writer::WriterFlags::empty())
        .map_err(|error| failed(&error.to_string()))
}

const HEADER: usize = 5;
const OP_EXTENSION: u32 = 10;
const OP_ENTRY_POINT: u32 = 15;
const OP_EXECUTION_MODE: u32 = 16;
const OP_CAPABILITY: u32 = 17;
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

/// Tells the driver what to keep of floats, which naga has no way to say either.
fn control_floats(words: &[u32], controls: FloatControls, widths: [bool; 3]) -> Vec<u32> {
    // Capability, execution mode, and for which widths.
    let modes = [(4464, 4459, controls.subnormals), (4466, 4461, controls.specials), (4467, 4462, controls.nearest)];
    let (mut capabilities, mut execution, mut entry) = (Vec::new(), Vec::new(), 0);
    let (mut after_capabilities, mut after_modes) = (HEADER, HEADER);
    let mut at = HEADER;
    while at < words.len() {
        let (opcode, length) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        let next = at + length.max(1);
        match opcode {
            OP_CAPABILITY => after_capabilities = next,
            OP_ENTRY_POINT => {
                entry = words.get(at + 2).copied().unwrap_or(0);
                after_modes = next;
            }
            OP_EXECUTION_MODE => after_modes = next,
            // Functions follow, and nothing of interest.
            54 => break,
            _ => {}
        }
        at = next;
    }
    for (capability, mode, able) in modes {
        let wanted = (0..3).filter(|&float| able[float] && widths[float]);
        let before = execution.len();
        execution.extend(wanted.flat_map(|float| [(4 << 16) | OP_EXECUTION_MODE, entry, mode, 16 << float]));
        if execution.len() > before {
            capabilities.extend([(2 << 16) | OP_CAPABILITY, capability]);
        }
    }
    if execution.is_empty() {
        return words.to_vec();
    }
    // Versions before 1.4 have it as an extension.
    let name = b"SPV_KHR_float_controls\0\0";
    capabilities.push((1 + name.len() as u32 / 4) << 16 | OP_EXTENSION);
    capabilities.extend(name.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])));
    [
        &words[..after_capabilities],
        &capabilities,
        &words[after_capabilities..after_modes],
        &execution,
        &words[after_modes..],
    ]
    .concat()
}
