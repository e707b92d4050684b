//! From a program, host bytes and a [`DispatchConfig`] to sizes, grid and compile options.

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{Name, Program};
use vyre_foundation::launch::{self, LaunchPlan, LaunchRequest};
use vyre_spec::{Diagnostic, codes};

use crate::backend::{CompileOptions, DispatchConfig};

/// The program's fingerprint as words, little-endian.
pub fn program_vsa_fingerprint_words(program: &Program) -> [u32; 8] {
    let fingerprint = program.fingerprint();
    std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|j| fingerprint[i * 4 + j])))
}

/// Sizes of all buffers, workgroup size and grid of a dispatch of these inputs, under the configuration's specialization and
/// overrides. Results over `max_output_bytes` are refused before anything is allocated for them.
pub fn plan(program: &ValidProgram, inputs: &[&[u8]], config: &DispatchConfig) -> Result<LaunchPlan, Diagnostic> {
    let input_bytes: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
    let contents: Vec<_> = inputs.iter().map(|input| Some(*input)).collect();
    plan_with(program, &input_bytes, &contents, config)
}

/// [`plan`] where only the inputs' sizes are known. A kernel that compares its ids with a number in an input then needs
/// `domain_override` or `grid_override`.
pub fn plan_sizes(
    program: &ValidProgram,
    input_bytes: &[u64],
    config: &DispatchConfig,
) -> Result<LaunchPlan, Diagnostic> {
    plan_with(program, input_bytes, &[], config)
}

/// [`plan`] where the contents of some inputs are at hand: one entry for each input, in binding order.
pub fn plan_with(
    program: &ValidProgram,
    input_bytes: &[u64],
    contents: &[Option<&[u8]>],
    config: &DispatchConfig,
) -> Result<LaunchPlan, Diagnostic> {
    let specialization = config.specialization.resolve(program)?;
    let output_elements: Vec<(Name, u64)> =
        config.output_elements.iter().map(|(name, elements)| (Name::from(name), *elements)).collect();
    let mut plan = launch::plan(
        program,
        &LaunchRequest {
            input_bytes,
            output_elements: &output_elements,
            specialization: Some(&specialization),
            workgroup: config.workgroup_override,
            contents,
            domain: config.domain_override,
            grid: config.grid_override,
        },
    )?;
    if let Some(limit) = config.max_output_bytes {
        let order = program.binding_order();
        let results = order.iter().zip(&plan.buffer_bytes).filter(|(i, _)| program.buffers()[**i].kind.is_result());
        let total = results.fold(0u64, |total, (_, &bytes)| total.saturating_add(bytes));
        if total > limit as u64 {
            return Err(Diagnostic::new(
                &codes::backend::OUTPUT_LIMIT,
                format!("the results take {total} bytes; `max_output_bytes` is {limit}"),
            ));
        }
    }
    if let Some(variant) = &config.variant {
        plan.grid = variant.grid(&plan);
    }
    Ok(plan)
}

/// What the program has to be compiled for under this configuration.
pub fn compile_options(program: &Program, config: &DispatchConfig) -> Result<CompileOptions, Diagnostic> {
    Ok(CompileOptions {
        specialization: config.specialization.resolve(program)?,
        workgroup_size: config.workgroup_override,
        ulp_budget: config.ulp_budget,
        profile: config.profile.clone(),
        knobs: config.knobs,
        variant: config.variant.clone(),
        interruptible: config.timeout.is_some(),
        label: config.label.clone(),
    })
}
