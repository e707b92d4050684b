//! What the code that [`kernels!`](crate::kernels) writes stands on. Nobody else needs it, and it may change.

use std::sync::OnceLock;

pub use bytemuck::{Pod, Zeroable};
pub use half::f16;
pub use vyre_macros::kernels;

use crate::specialization::SpecValue;
use crate::{DispatchConfig, Engine, Error, ImportOptions, Kernel, Program, import_wgsl};

/// One kernel of a WGSL file, imported when it is first asked for.
pub struct Source {
    text: &'static str,
    file: &'static str,
    entry: &'static str,
    program: OnceLock<Program>,
}

impl Source {
    /// A kernel by the name of its entry point.
    pub const fn new(text: &'static str, file: &'static str, entry: &'static str) -> Source {
        Source { text, file, entry, program: OnceLock::new() }
    }

    /// The kernel with these specialization constants, and the defaults of the others.
    pub fn kernel(
        &self,
        engine: &Engine,
        constants: impl IntoIterator<Item = (&'static str, SpecValue)>,
    ) -> Result<Kernel, Error> {
        let program = match self.program.get() {
            Some(program) => program,
            None => {
                let options = ImportOptions {
                    entry: Some(self.entry.to_owned()),
                    file: Some(self.file.to_owned()),
                    ..ImportOptions::default()
                };
                let program = import_wgsl(self.text, &options)?;
                self.program.get_or_init(|| program)
            }
        };
        let mut config = DispatchConfig::default();
        for (name, value) in constants {
            config.specialization.insert(name, value);
        }
        engine.kernel_with(program, &config)
    }
}
