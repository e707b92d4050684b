//! The meaning of a program: an interpreter that is plain, exact and deterministic, and by which every backend is judged.
//!
//! It reads the IR itself and knows neither the optimiser nor any backend. To read it as the definition, start with
//! `operation.rs`, `function.rs` and `matrix.rs` (what the operations compute), `stored.rs` and `memory.rs` (what lies in buffers) and
//! `execute.rs` (in which order things happen).
//!
//! Invocations run one after the other, workgroup by workgroup; those of a workgroup take turns where they wait for each
//! other. So a program whose invocations race has an answer here too, but not the only right one.
//!
//! ```
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(2))],
//! );
//! let valid = program.validate().unwrap();
//! let results = vyre_reference::run(&valid, &[], &vyre_reference::RunOptions::default()).unwrap();
//! assert_eq!(results, [[0, 2, 4, 6].map(u32::to_le_bytes).concat()]);
//! ```
#![forbid(unsafe_code)]

mod code;
mod execute;
mod function;
mod matrix;
mod memory;
mod operation;
mod resolve;
mod stored;
mod types;
mod value;

use std::borrow::Cow;

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferKind, Name, Program, Specialization};
use vyre_foundation::launch::{self, Constants, LaunchRequest};
use vyre_spec::{Diagnostic, codes};

use crate::execute::Machine;
use crate::memory::Buffer;
use crate::resolve::Launch;
use crate::types::Types;

/// How to run a program.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Values of specialization constants.
    pub specialization: Specialization,
    /// Replaces the workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// Replaces the number of workgroups; comes before `domain`.
    pub grid: Option<[u32; 3]>,
    /// Replaces the number of invocations.
    pub domain: Option<[u64; 3]>,
    /// Elements of results whose length is open, by buffer name.
    pub output_elements: Vec<(Name, u64)>,
    /// Most instructions to run, where every statement and every operation counts as one.
    pub budget: u64,
    /// Most bytes that buffers and variables may take.
    pub memory: u64,
    /// Invocations in a subgroup, from 1 to 128.
    pub subgroup_size: u32,
}

impl Default for RunOptions {
    fn default() -> Self {
        RunOptions {
            specialization: Specialization::new(),
            workgroup: None,
            grid: None,
            domain: None,
            output_elements: Vec::new(),
            budget: 1 << 32,
            memory: 1 << 30,
            subgroup_size: 32,
        }
    }
}

/// Runs a program. `inputs` are the bytes of every read, uniform and read_write buffer, in binding order; the results are the
/// bytes of every read_write and output buffer, in binding order.
pub fn run(program: &ValidProgram, inputs: &[&[u8]], options: &RunOptions) -> Result<Vec<Vec<u8>>, Diagnostic> {
    interpret(program.program(), inputs, options)
}

fn interpret(program: &Program, inputs: &[&[u8]], options: &RunOptions) -> Result<Vec<Vec<u8>>, Diagnostic> {
    if !(1..=128).contains(&options.subgroup_size) {
        let message = format!("a subgroup can't have {} invocations", options.subgroup_size);
        return Err(Diagnostic::new(&codes::reference::SUBGROUP_SIZE, message));
    }
    let input_bytes: Vec<u64> = inputs.iter().map(|input| input.len() as u64).collect();
    let contents: Vec<_> = inputs.iter().map(|input| Some(*input)).collect();
    let plan = launch::plan(
        program,
        &LaunchRequest {
            input_bytes: &input_bytes,
            output_elements: &options.output_elements,
            specialization: Some(&options.specialization),
            workgroup: options.workgroup,
            contents: &contents,
            domain: options.domain,
            grid: options.grid,
        },
    )?;
    let constants = Constants::new(program, Some(&options.specialization))?;
    let types = Types::new(program, &constants)?;

    let order = program.binding_order();
    let mut host_bytes = vec![None; program.buffers().len()];
    for (&position, &bytes) in order.iter().zip(&plan.buffer_bytes) {
        host_bytes[position] = Some(bytes);
    }
    let mut memory = options.memory;
    let mut lengths = Vec::with_capacity(program.buffers().len());
    let mut buffers = Vec::with_capacity(program.buffers().len());
    for (position, decl) in program.buffers().iter().enumerate() {
        let ty = types.get(&decl.ty)?;
        let declared = types::declared_count(decl, &constants)?.map(u64::from);
        let (bytes, length) = match host_bytes[position] {
            Some(bytes) => {
                let shape = launch::shape_of(program, position)?;
                let declared = declared.filter(|_| !ty.has_open_tail());
                (bytes, declared.unwrap_or_else(|| shape.elements_in(bytes)))
            }
            None => {
                let count = declared.unwrap_or(0);
                (count.saturating_mul(ty.stride()), count)
            }
        };
        if decl.kind.is_writable() {
            memory = memory.checked_sub(bytes).ok_or_else(|| {
                let message = format!("buffer `{}` takes {bytes} bytes, and {memory} are left", decl.name);
                Diagnostic::new(&codes::reference::MEMORY, message)
            })?;
        }
        lengths.push(u32::try_from(length).unwrap_or(u32::MAX));
        let open = ty.has_open_tail();
        let (count, tail) = if open { (1, length) } else { (length, 0) };
        let zeroed = if decl.kind.is_input() { 0 } else { bytes as usize };
        buffers.push(Buffer { bytes: Cow::Owned(vec![0; zeroed]), count, tail });
    }
    let inputs_of = order.iter().filter(|&&position| program.buffers()[position].kind.is_input());
    for (&position, &input) in inputs_of.zip(inputs) {
        buffers[position].bytes = Cow::Borrowed(input);
    }

    let launch = Launch {
        workgroup_size: plan.workgroup_size,
        grid: plan.grid,
        subgroup_size: options.subgroup_size,
        lengths,
        memory,
    };
    let code = resolve::resolve(program, &types, &constants, &launch)?;
    let shared = (0..buffers.len()).filter(|&i| program.buffers()[i].kind == BufferKind::Workgroup).collect();
    let mut machine = Machine { code: &code, launch: &launch, buffers, shared, budget: options.budget };
    machine.run()?;
    let mut buffers = machine.buffers;
    let results = order.into_iter().filter(|&position| program.buffers()[position].kind.is_result());
    Ok(results.map(|position| std::mem::take(&mut buffers[position].bytes).into_owned()).collect())
}

#[cfg(test)]
mod tests;
