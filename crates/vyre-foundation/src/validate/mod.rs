//! Finds everything that is wrong with a program.
//!
//! First the limits, without recursion; then what is declared; then bodies (names, types, places of jumps); then calls; and
//! last, when there are barriers or subgroup operations, whether all invocations of a workgroup reach them together.

mod body;
mod calls;
mod declarations;
pub mod limits;
mod report;
mod uniformity;

use std::ops::Deref;

use vyre_spec::Diagnostic;

use crate::ir::Program;

/// A program that passed every check. Only [`Program::validate`] makes one, so whoever holds it need not check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidProgram(Program);

impl ValidProgram {
    pub(crate) fn proven(program: Program) -> Self {
        ValidProgram(program)
    }

    /// The program itself.
    pub fn program(&self) -> &Program {
        &self.0
    }
}

impl Deref for ValidProgram {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.0
    }
}

/// All problems of a program; none when it is valid.
pub(crate) fn problems(program: &Program) -> Vec<Diagnostic> {
    let mut report = report::Report::default();
    if !limits::check(program, &mut report) {
        return report.finish();
    }
    let table = declarations::types(program, &mut report);
    declarations::constants(program, &mut report);
    declarations::buffers(program, &table, &mut report);
    declarations::launch(program, &mut report);
    let facts = body::check(program, &table, &mut report);
    if calls::check(program, &facts, &mut report) && facts.meets {
        uniformity::check(program, &mut report);
    }
    report.finish()
}
