//! What a backend is: the [`VyreBackend`] trait, what it is asked with and answers with, what backends share, and a null backend
//! to start from.
//!
//! A backend has two ways to run a program. The *host-bytes* way takes and gives bytes and is all that a backend must have:
//! inputs are the bytes of every `read`, `uniform` and `read_write` buffer in binding order; results are the bytes of every
//! `read_write` and `output` buffer in binding order. The *device-resident* way keeps compiled pipelines and buffers on the
//! device: [`compile`](VyreBackend::compile), [`allocate`](VyreBackend::allocate), [`submit`](VyreBackend::submit),
//! [`wait`](VyreBackend::wait). Its methods are answered with "unsupported" until a backend overrides them and says so in its
//! [`Capabilities`].
//!
//! # The order of work
//! A device has one or more queues. Work that is submitted to one queue runs in the order of submission, each piece after the one
//! before it is over, and sees what that wrote. Work on different queues runs in any order, and at once where the device can, but for
//! what [`Order::after`] names. Every piece of work has its own [`Ticket`] and its own fate: it is done, or it failed. A launch that
//! fails or is [cancelled](VyreBackend::cancel) ends alone; work behind it runs all the same, on whatever is in the buffers, and it
//! is for the caller to know whose results are worthless. Only when the device itself is lost does everything fail that is not over.

mod artifact;
mod capabilities;
mod config;
mod error;
mod host;
mod host_memory;
mod knobs;
mod ledger;
mod null;
mod resident;
mod shapes;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

pub use artifact::{Reader, Writer};
pub use capabilities::{Capabilities, DeviceKind, Limits, TypeSet};
pub use config::{CompileOptions, DispatchConfig};
pub use error::BackendError;
pub use host::{HostDispatch, KeptPipelines, borrowed, dispatch_through};
pub use host_memory::{HostMemory, in_huge_pages};
pub use knobs::Knobs;
pub use ledger::Ledger;
pub use null::NullBackend;
pub use resident::{
    Binding, Buffer, Completion, DeviceBuffer, INDIRECT_BYTES, Launch, Order, Pipeline, Recording, Step, Ticket,
    foreign, indirect_grid,
};
pub use shapes::BoundShape;
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_spec::codes;

use crate::variant::Variant;

/// Something that runs programs. `id` and `dispatch` make a complete backend; the rest has defaults.
pub trait VyreBackend: Send + Sync {
    /// The name by which it is registered and asked for.
    fn id(&self) -> &'static str;

    /// Runs a program on the bytes of its inputs and gives the bytes of its results, both in binding order.
    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError>;

    /// [`dispatch`](Self::dispatch) without owning the inputs. Real backends override it and copy nothing; this one copies.
    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let owned: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_vec()).collect();
        self.dispatch(program, &owned, config)
    }

    /// What the device can do. The default claims nothing but the host-bytes path.
    fn capabilities(&self) -> &Capabilities {
        Capabilities::unknown()
    }

    /// What the device gives for this program are the bits of the reference. A device for which that does not hold is used for exact
    /// arithmetic only when it is asked for by name.
    fn gives_exact(&self, program: &ValidProgram) -> bool {
        let _ = program;
        true
    }

    /// Whether [`compile`](Self::compile) takes such a variant in the options on this device, or why not.
    fn takes(&self, variant: &Variant) -> Result<(), String> {
        Err(format!("`{}` can't run {variant}", self.id()))
    }

    /// Makes a pipeline from a program, or of the variant that the options name.
    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        let _ = (program, options);
        Err(self.not_resident("compile"))
    }

    /// Makes a pipeline from the bytes that [`Pipeline::artifact`] gave for the same program, options and device
    /// fingerprint. The bytes were authenticated by the caller.
    fn load(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let _ = (program, options, artifact);
        Err(self.not_resident("load"))
    }

    /// A new buffer, all zeros for whatever work uses it. Its memory is given back when its last handle is dropped and the work that
    /// uses it is over.
    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let _ = bytes;
        Err(self.not_resident("allocate"))
    }

    /// Memory of the host as a buffer, without a copy. Only backends whose capabilities say `unified_memory` can.
    fn adopt(&self, memory: &Arc<HostMemory>) -> Result<Buffer, BackendError> {
        let _ = memory;
        Err(self.not_resident("adopt"))
    }

    /// Writes host bytes to a buffer. The bytes may be reused when it returns.
    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        let _ = (buffer, offset, bytes, order);
        Err(self.not_resident("upload"))
    }

    /// Queues an [`upload`](Self::upload) of `bytes` bytes of host memory from `at` on and returns at once, where the device reaches that
    /// memory by itself; `None` where it does not. Until the work is over the backend keeps the memory alive, and nobody else writes
    /// what is copied.
    fn upload_queued(
        &self,
        buffer: &Buffer,
        offset: u64,
        memory: &Arc<HostMemory>,
        at: u64,
        bytes: u64,
        order: &Order<'_>,
    ) -> Result<Option<Ticket>, BackendError> {
        let _ = (buffer, offset, memory, at, bytes, order);
        Ok(None)
    }

    /// Reads a buffer once the work that `order` names, and what is before it on its queue, is over. Whether that work succeeded is
    /// for the caller to ask.
    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], order: &Order<'_>) -> Result<(), BackendError> {
        let _ = (buffer, offset, bytes, order);
        Err(self.not_resident("download"))
    }

    /// Copies between two parts of the same size that don't overlap.
    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let _ = (from, to, order);
        Err(self.not_resident("copy"))
    }

    /// Makes a part of a buffer zero.
    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let _ = (part, order);
        Err(self.not_resident("clear"))
    }

    /// Queues one launch and returns at once. Needs no heap memory in the steady state.
    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        let _ = (pipeline, launch);
        Err(self.not_resident("submit"))
    }

    /// [`submit`](Self::submit) of a launch whose grid is known only when its turn comes: three u32 in a buffer that earlier work may
    /// write. `launch.grid` is the most along each axis, and whoever writes the three sees to it that they are not more; where they are read
    /// on the host, the smaller number counts.
    ///
    /// This default waits on the host for the three numbers; backends that can read them when the launch runs override it.
    fn submit_indirect(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        launch: &Launch<'_>,
        grid: &Binding,
    ) -> Result<Ticket, BackendError> {
        let mut bytes = [0; INDIRECT_BYTES];
        grid.check_indirect()?;
        self.download(&grid.buffer, grid.offset, &mut bytes, &launch.order)?;
        self.submit(pipeline, &Launch { grid: indirect_grid(&bytes, launch.grid), ..*launch })
    }

    /// What became of a piece of work: `None` while it is not over, what is known of it when it is done, or the error that it ended
    /// with. The answer stays the same until it is [forgotten](Self::forget). Never waits.
    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        let _ = ticket;
        Err(self.not_resident("poll"))
    }

    /// Whether work is known to be over, as far as that can be told without asking the device. It may be over and not known to be until
    /// somebody [polls](Self::poll).
    fn is_over(&self, ticket: Ticket) -> bool {
        !matches!(self.poll(ticket), Ok(None))
    }

    /// [`poll`](Self::poll) that waits until the work is over, or for so long. Giving up does not end the work. Work that comes after
    /// this ticket is not waited for.
    fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        let _ = (ticket, timeout);
        Err(self.not_resident("wait"))
    }

    /// Tells one launch to end, and no other: one that has not begun does not begin, one that was compiled as interruptible ends
    /// soon, any other goes on to its end. Unless it did all its work, it then has failed with
    /// [`STOPPED`](vyre_spec::codes::backend::STOPPED). Never waits.
    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        let _ = ticket;
        Err(self.not_resident("cancel"))
    }

    /// Nobody will ask about this work again, so its fate need not be kept. The work itself goes on.
    fn forget(&self, ticket: Ticket) {
        let _ = ticket;
    }

    /// Whether all work that a queue was given is known to be over: new work would not wait behind another's there. Never waits.
    fn is_idle(&self, queue: u32) -> bool {
        let _ = queue;
        true
    }

    /// [Forgets](Self::forget) work that is done, and well; false leaves everything as it is. Never waits.
    fn forget_done(&self, ticket: Ticket) -> bool {
        let is_done = matches!(self.poll(ticket), Ok(Some(_)));
        if is_done {
            self.forget(ticket);
        }
        is_done
    }

    /// Records steps that [`replay`](Self::replay) runs as one piece of work. Only backends whose capabilities say `recordings` can.
    fn record(&self, steps: &[Step]) -> Result<Arc<dyn Recording>, BackendError> {
        let _ = steps;
        Err(self.not_resident("record"))
    }

    /// Puts other steps in place of some, by position, from the next replay on; each is of the kind that it replaces, and a launch is of
    /// the same pipeline.
    fn revise(&self, recording: &Arc<dyn Recording>, steps: &[(usize, Step)]) -> Result<(), BackendError> {
        let _ = (recording, steps);
        Err(self.not_resident("revise"))
    }

    /// Queues a recording. It has one ticket and one fate, and can't be cancelled once it has begun.
    fn replay(&self, recording: &Arc<dyn Recording>, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let _ = (recording, order);
        Err(self.not_resident("replay"))
    }

    /// The backend's own type, for what only it can do.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// The error that the default methods give.
    #[doc(hidden)]
    fn not_resident(&self, method: &str) -> BackendError {
        BackendError::with_code(
            &codes::backend::NOT_RESIDENT,
            format!("backend `{}` has no device-resident path: `{method}` is unsupported", self.id()),
        )
    }
}
