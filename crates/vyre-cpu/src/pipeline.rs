//! A kernel made ready to run on the processor.

use std::sync::OnceLock;

use vyre_driver::BackendError;
use vyre_driver::backend::Pipeline;
use vyre_foundation::kernel::{Block, Inst, Kernel, Memory, Op};
use vyre_spec::codes;

use crate::interp::Interpreted;
use crate::launch::{self, Grid, Stop};
use crate::memory::Span;
use crate::path::CpuPath;

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct CpuPipeline {
    kernel: Kernel,
    interpreted: OnceLock<Interpreted>,
    /// Steps of one workgroup, roughly.
    steps: u64,
}

impl Pipeline for CpuPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.kernel.workgroup_size
    }
}

impl CpuPipeline {
    /// Compiles for a path.
    pub(crate) fn new(kernel: Kernel, path: CpuPath) -> CpuPipeline {
        let invocations: u64 = kernel.workgroup_size.iter().map(|&n| u64::from(n)).product();
        let steps = steps(&kernel.body).saturating_mul(invocations);
        let CpuPath::Interpret = path;
        CpuPipeline { kernel, interpreted: OnceLock::new(), steps }
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Elements of each buffer when so many bytes are bound.
    pub(crate) fn lengths(&self, bytes: impl Iterator<Item = u64>) -> Vec<u64> {
        let length = |(buffer, bytes): (&vyre_foundation::kernel::KernelBuffer, u64)| {
            let open = bytes.saturating_sub(u64::from(buffer.header)) / u64::from(buffer.stride.max(1));
            let packed = buffer.element.is_some_and(|(element, _)| element.bits() == 4);
            let open = if packed { open * 2 } else { open };
            match buffer.count {
                Some(count) if buffer.header == 0 => open.min(u64::from(count)),
                _ => open,
            }
        };
        self.kernel.buffers.iter().zip(bytes).map(length).collect()
    }

    /// Runs the grid to its end, or until `stop`.
    pub(crate) fn run(&self, buffers: &[Span], grid: &Grid, stop: &Stop) -> Result<(), BackendError> {
        let interpreted = self.interpreted.get_or_init(|| Interpreted::new(self.kernel.clone()));
        launch::spread(
            grid,
            self.steps.saturating_mul(16),
            stop,
            || interpreted.scratch(),
            |scratch, stretch| {
                for x in stretch.first..stretch.end {
                    if stop.is_set() {
                        return;
                    }
                    interpreted.run(scratch, buffers, grid, [x, stretch.y, stretch.z], stop);
                }
            },
        )
        .map_err(|_| {
            BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                "there is no memory for the workgroup memory and local arrays of the kernel",
            )
        })
    }
}

/// Steps of one invocation, roughly: a loop whose count is not known counts for 16 rounds.
fn steps(block: &Block) -> u64 {
    let of = |inst: &Inst| match inst {
        Inst::If { then, otherwise, .. } => 1 + steps(then).saturating_add(steps(otherwise)),
        Inst::Loop(inner) => steps(&inner.body).saturating_mul(16),
        // A gather or a scatter is many steps, but so is a miss of the cache.
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => match address.memory {
            Memory::Buffer(_) => 4,
            Memory::Shared(_) | Memory::Local(_) => 1,
        },
        _ => 1,
    };
    block.insts.iter().fold(0, |sum: u64, inst| sum.saturating_add(of(inst)))
}
