//! What a backend is: the [`VyreBackend`] trait, what it is asked with and answers with, and a null backend to start from.
//!
//! A backend has two ways to run a program. The *host-bytes* way takes and gives bytes and is all that a backend must have:
//! inputs are the bytes of every `read`, `uniform` and `read_write` buffer in binding order; results are the bytes of every
//! `read_write` and `output` buffer in binding order. The *device-resident* way keeps compiled pipelines and buffers on the
//! device: [`compile`](VyreBackend::compile), [`allocate`](VyreBackend::allocate), [`submit`](VyreBackend::submit),
//! [`wait`](VyreBackend::wait). Its methods are answered with "unsupported" until a backend overrides them and says so in its
//! [`Capabilities`].

mod capabilities;
mod config;
mod error;
mod host;
mod null;
mod pool;
mod resident;

use std::sync::Arc;
use std::time::Duration;

pub use capabilities::{Capabilities, DeviceKind, Limits, TypeSet};
pub use config::{CompileOptions, DispatchConfig};
pub use error::BackendError;
pub use host::{HostDispatch, KeptPipelines, borrowed, dispatch_through};
pub use null::NullBackend;
pub use pool::{BufferPool, PooledBuffer};
pub use resident::{Binding, Buffer, Completion, DeviceBuffer, Launch, Pending, Pipeline};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_spec::codes;

/// Something that runs programs. `id` and `dispatch` make a complete backend; the rest has defaults.
///
/// Work that is submitted to one backend runs in the order of submission, and sees what earlier work and earlier uploads and
/// copies wrote: chaining is submitting again before waiting.
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

    /// Makes a pipeline from a program.
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

    /// Runs a pipeline on host bytes, as [`dispatch_borrowed`](Self::dispatch_borrowed) runs a program. The default goes
    /// through buffers; a backend that shares memory with the host works on the caller's bytes instead.
    fn dispatch_compiled(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        dispatch: &HostDispatch,
        inputs: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        dispatch_through(self, dispatch, pipeline, inputs, timeout)
    }

    /// A new buffer, all zeros. It is freed when its last handle is dropped and the work that uses it is done.
    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let _ = bytes;
        Err(self.not_resident("allocate"))
    }

    /// Writes host bytes to a buffer, in order with submitted work. The bytes may be reused when it returns.
    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let _ = (buffer, offset, bytes);
        Err(self.not_resident("upload"))
    }

    /// Waits for the work submitted so far and reads a buffer.
    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let _ = (buffer, offset, bytes);
        Err(self.not_resident("download"))
    }

    /// Copies between two buffers of this backend, in order with submitted work. The ranges don't overlap.
    fn copy(
        &self,
        from: &Buffer,
        from_offset: u64,
        to: &Buffer,
        to_offset: u64,
        bytes: u64,
    ) -> Result<(), BackendError> {
        let _ = (from, from_offset, to, to_offset, bytes);
        Err(self.not_resident("copy"))
    }

    /// Makes a part of a buffer zero, in order with submitted work. The default uploads zeros.
    fn clear(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(), BackendError> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        buffer.check_range(offset, bytes)?;
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(ZEROS.len() as u64);
            self.upload(buffer, offset + done, &ZEROS[..part as usize])?;
            done += part;
        }
        Ok(())
    }

    /// Queues one launch and returns at once. Needs no heap memory in the steady state.
    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Pending, BackendError> {
        let _ = (pipeline, launch);
        Err(self.not_resident("submit"))
    }

    /// Waits until a launch and all work before it is done. A launch that failed, or that is not done in time, is an error.
    fn wait(&self, pending: Pending, timeout: Option<Duration>) -> Result<Completion, BackendError> {
        let _ = (pending, timeout);
        Err(self.not_resident("wait"))
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
