//! Bytes in, out, and from one buffer to another, each in its place in the order of the work.
//!
//! wgpu moves whole words. Bytes that share words with others are moved by a kernel, so that nobody waits for them on the host and
//! others' bytes in the same words are safe whoever changes them meanwhile.

use std::sync::PoisonError;
use std::time::Instant;

use vyre_driver::BackendError;
use vyre_driver::backend::Ticket;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

use crate::context::Context;
use crate::work::Work;

/// Bytes that are read from the device, or given to wgpu to be written, at once.
const PIECE: usize = 64 << 20;

/// Buffers for reading that are kept.
const KEPT_STAGING: usize = 4;

impl Context {
    /// Writes to a buffer; offset and size are multiples of four.
    pub(crate) fn upload(&self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<Ticket, BackendError> {
        let mut guard = self.work();
        let work = &mut *guard;
        // What the queue is told to write, it writes before the commands of its next submission.
        if work.has_commands() {
            self.flush(work);
        }
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            if work.has_commands() || self.is_full(work) {
                self.copy_in(work, to, at, piece)?;
            } else {
                self.alone(|| self.queue.write_buffer(to, at, piece))?;
                work.written += piece.len() as u64;
            }
            at += piece.len() as u64;
            if work.written >= PIECE as u64 && at < offset + bytes.len() as u64 {
                self.flush(work);
            }
        }
        let ticket = self.ticket(work)?;
        if work.written >= PIECE as u64 {
            self.flush(work);
        }
        Ok(ticket)
    }

    /// Writes to a buffer behind commands that the queue does not have yet.
    fn copy_in(&self, work: &mut Work, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let failed = |why: String| BackendError::with_code(&codes::wgpu::CALL_FAILED, why);
        let staging = self.scoped(&codes::backend::OUT_OF_MEMORY, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: bytes.len() as u64,
                usage: wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        })?;
        let mut view = staging.get_mapped_range_mut(..).map_err(|error| failed(error.to_string()))?;
        view.copy_from_slice(bytes);
        drop(view);
        staging.unmap();
        self.encoder(work).copy_buffer_to_buffer(&staging, 0, to, offset, bytes.len() as u64);
        work.count_command();
        Ok(())
    }

    /// Nothing, in its place in the order.
    pub(crate) fn nothing(&self) -> Result<Ticket, BackendError> {
        self.ticket(&self.work())
    }

    /// A copy or something like it, alone in its submission if it has to be.
    pub(crate) fn command(
        &self,
        alone: bool,
        record: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<Ticket, BackendError> {
        let mut guard = self.work();
        let work: &mut Work = &mut guard;
        if alone {
            self.flush(work);
        }
        record(self.encoder(work));
        let ticket = self.ticket(work)?;
        work.count_command();
        self.gathered(work, alone);
        Ok(ticket)
    }

    /// Reads a buffer after all work that was submitted; the offset is a multiple of four.
    pub(crate) fn download(
        &self,
        from: &wgpu::Buffer,
        offset: u64,
        bytes: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(), BackendError> {
        let mut at = offset;
        for piece in bytes.chunks_mut(PIECE) {
            let size = piece.len().next_multiple_of(8) as u64;
            let staging = self.take_staging(size)?;
            let length = (piece.len() as u64).next_multiple_of(4);
            let ticket = self.command(false, |encoder| {
                encoder.copy_buffer_to_buffer(from, at, &staging, 0, length);
            })?;
            let copied = self.wait(ticket, deadline);
            self.ledger.forget(ticket);
            if copied?.is_none() {
                // The staging buffer is dropped: it is still in use.
                return Err(BackendError::with_code(
                    &codes::backend::TIMEOUT,
                    "what has to be over before the buffer can be read was not over in time",
                ));
            }
            staging.map_async(wgpu::MapMode::Read, 0..size, |_| {});
            self.read_mapped(&staging, piece)?;
            let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_STAGING {
                kept.push(staging);
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn take_staging(&self, size: u64) -> Result<wgpu::Buffer, BackendError> {
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &wgpu::Buffer| buffer.size() >= size && buffer.size() / 4 <= size.max(1 << 16);
        if let Some(at) = kept.iter().position(fits) {
            return Ok(kept.swap_remove(at));
        }
        // Those that don't fit make room.
        if kept.len() >= KEPT_STAGING {
            kept.remove(0);
        }
        drop(kept);
        self.create_buffer(
            size.max(4096).next_power_of_two(),
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        )
    }
}

/// wgpu can move these offsets and sizes.
pub(crate) fn are_words(numbers: &[u64]) -> bool {
    numbers.iter().all(|number| number.is_multiple_of(4))
}

/// Copies bytes of one buffer to another, each invocation one word of the target; `span` holds where they are, where they go, and how
/// many they are.
pub(crate) fn byte_copy_program() -> Program {
    let span = |at: u32| Expr::load("span", at);
    let (word, merged) = (|| Expr::var("word"), || Expr::var("merged"));
    // Bytes before the first have large numbers.
    let position = |byte: u32| word() * 4u32 + byte - span(1);
    let is_copied = |byte: u32| position(byte).lt(span(2));
    let any_is = (1..4).fold(is_copied(0), |any, byte| any | is_copied(byte));
    let mut merge = vec![Node::var("merged", DataType::U32, Expr::load("to", word()))];
    for byte in 0..4 {
        let from = || span(0) + position(byte);
        let value = (Expr::load("from", from() >> 2u32) >> ((from() & 3u32) * 8u32)) & 255u32;
        let others = merged() & !(255u32 << (8 * byte));
        merge.push(Node::if_then(is_copied(byte), vec![Node::assign("merged", others | (value << (8 * byte)))]));
    }
    merge.push(Node::store("to", word(), merged()));
    Program::wrapped(
        vec![
            BufferDecl::read("span", 0, DataType::U32).with_count(3),
            BufferDecl::read("from", 1, DataType::U32),
            BufferDecl::read_write("to", 2, DataType::U32),
        ],
        [64, 1, 1],
        vec![Node::let_bind("word", (span(1) >> 2u32) + Expr::global_id(0)), Node::if_then(any_is, merge)],
    )
}
