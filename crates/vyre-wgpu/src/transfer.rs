//! Bytes in, out, and from one buffer to another, each in its place in the order of the work.
//!
//! wgpu moves whole words. Bytes that share words with others are moved by a kernel, so that nobody waits for them on the host and
//! others' bytes in the same words are safe whoever changes them meanwhile.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::Ticket;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

use crate::context::Context;
use crate::work::Work;

/// Bytes that are moved at once: while the device copies some, the host fills or empties others.
const PIECE: usize = 16 << 20;
/// Pieces that are under way at once.
const UNDER_WAY: usize = 3;
/// Uploads that are smaller go through wgpu's own memory.
const LARGE: usize = 1 << 20;
/// Bytes that wgpu is given to be written before its next submission.
const GIVEN: usize = 64 << 20;
/// So long an upload waits for memory that an earlier one uses. Behind a long launch it takes more memory instead.
const PATIENCE: Duration = Duration::from_millis(20);

/// Buffers for reading that are kept.
const KEPT_STAGING: usize = 4;

/// Threads that fill or empty a piece, and what is worth a thread.
const MOST_THREADS: usize = 8;
const WORTH_A_THREAD: usize = 1 << 20;

/// Memory that an upload went through, for the next one.
pub(crate) struct Used {
    staging: wgpu::Buffer,
    /// When it is over, the memory is mapped again; absent when it was over at once.
    reads_it: Option<wgpu::SubmissionIndex>,
}

impl Context {
    /// Writes to a buffer; offset and size are multiples of four.
    pub(crate) fn upload(&self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<Ticket, BackendError> {
        let (mut at, mut rest) = (offset, bytes);
        while rest.len() >= LARGE {
            let Some(staging) = self.take_upload_staging()? else { break };
            let (piece, others) = rest.split_at(rest.len().min(PIECE));
            self.fill(&staging, piece)?;
            let ticket = self.upload_from(staging, to, at, piece.len() as u64)?;
            if others.is_empty() {
                return Ok(ticket);
            }
            let so_far = self.ledger.outcome(ticket);
            self.ledger.forget(ticket);
            so_far?;
            (at, rest) = (at + piece.len() as u64, others);
        }
        self.give(to, at, rest)
    }

    /// Writes to a buffer through wgpu's own memory.
    fn give(&self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<Ticket, BackendError> {
        let mut guard = self.work();
        let work = &mut *guard;
        // What the queue is told to write, it writes before the commands of its next submission.
        if work.has_commands() {
            self.flush(work);
        }
        let mut at = offset;
        for piece in bytes.chunks(GIVEN) {
            if work.has_commands() || self.is_full(work) {
                self.copy_in(work, to, at, piece)?;
            } else {
                self.alone(|| self.queue.write_buffer(to, at, piece))?;
                work.written += piece.len() as u64;
            }
            at += piece.len() as u64;
            if work.written >= GIVEN as u64 && at < offset + bytes.len() as u64 {
                self.flush(work);
            }
        }
        let ticket = self.ticket(work)?;
        if work.written >= GIVEN as u64 {
            self.flush(work);
        }
        Ok(ticket)
    }

    /// Mapped memory for an upload; none where it would have to be waited for too long.
    fn take_upload_staging(&self) -> Result<Option<wgpu::Buffer>, BackendError> {
        let mut used = locked(&self.uploads);
        let is_over = |index: &wgpu::SubmissionIndex| self.is_over(index.clone(), Duration::ZERO);
        let is_free = |used: &Used| used.reads_it.as_ref().is_none_or(is_over);
        if used.len() >= UNDER_WAY || used.front().is_some_and(is_free) {
            let Some(first) = used.pop_front() else { return Ok(None) };
            drop(used);
            let is_over = match &first.reads_it {
                Some(index) => self.wait_for(index, Some(Instant::now() + PATIENCE))?,
                None => true,
            };
            if is_over {
                return Ok(Some(first.staging));
            }
            locked(&self.uploads).push_front(first);
            return Ok(None);
        }
        drop(used);
        let made = self.scoped(&codes::backend::OUT_OF_MEMORY, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: PIECE as u64,
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        });
        // Where there is no memory for it wgpu may have some.
        Ok(made.ok())
    }

    /// Copies to mapped memory.
    fn fill(&self, staging: &wgpu::Buffer, bytes: &[u8]) -> Result<(), BackendError> {
        let mut parts = Vec::new();
        let mut at = 0;
        for part in bytes.chunks(share(bytes.len())) {
            let end = at + part.len() as u64;
            parts.push((self.mapped(|| staging.get_mapped_range_mut(at..end))?, part));
            at = end;
        }
        by_several(parts, |(mut view, part)| view.copy_from_slice(part));
        staging.unmap();
        Ok(())
    }

    /// Has the device copy from memory that was filled, and keeps that for another upload.
    fn upload_from(
        &self,
        staging: wgpu::Buffer,
        to: &wgpu::Buffer,
        offset: u64,
        bytes: u64,
    ) -> Result<Ticket, BackendError> {
        let mut guard = self.work();
        let work = &mut *guard;
        self.encoder(work).copy_buffer_to_buffer(&staging, 0, to, offset, bytes);
        work.count_command();
        let ticket = self.ticket(work)?;
        self.flush(work);
        // What the queue does not have yet must not be mapped.
        if !work.has_commands() {
            staging.map_async(wgpu::MapMode::Write, .., |_| {});
            locked(&self.uploads).push_back(Used { staging, reads_it: work.submission_of(ticket) });
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
        let all = bytes.len() as u64;
        let mut at = offset;
        let mut under_way: VecDeque<(Ticket, wgpu::Buffer, &mut [u8])> = VecDeque::new();
        let mut pieces = bytes.chunks_mut(PIECE);
        loop {
            while under_way.len() < UNDER_WAY
                && let Some(piece) = pieces.next()
            {
                let staging = self.take_staging(piece.len().next_multiple_of(8) as u64)?;
                let length = (piece.len() as u64).next_multiple_of(4);
                let ticket = self.command(false, |encoder| {
                    encoder.copy_buffer_to_buffer(from, at, &staging, 0, length);
                })?;
                at += piece.len() as u64;
                if !under_way.is_empty() || at < offset + all {
                    // The device copies the next ones while the first is emptied.
                    self.flush(&mut self.work());
                }
                under_way.push_back((ticket, staging, piece));
            }
            let Some((ticket, staging, piece)) = under_way.pop_front() else { return Ok(()) };
            let copied = self.wait(ticket, deadline);
            self.ledger.forget(ticket);
            if copied.as_ref().is_ok_and(Option::is_some) {
                staging.map_async(wgpu::MapMode::Read, 0..piece.len().next_multiple_of(8) as u64, |_| {});
                self.read_mapped(&staging, piece)?;
                let mut kept = locked(&self.staging);
                if kept.len() < KEPT_STAGING {
                    kept.push(staging);
                }
                continue;
            }
            // The staging buffers are dropped: they are still in use.
            under_way.iter().for_each(|(ticket, ..)| self.ledger.forget(*ticket));
            copied?;
            return Err(BackendError::with_code(
                &codes::backend::TIMEOUT,
                "what has to be over before the buffer can be read was not over in time",
            ));
        }
    }

    fn take_staging(&self, size: u64) -> Result<wgpu::Buffer, BackendError> {
        let mut kept = locked(&self.staging);
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

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much of a copy each thread does; a multiple of what views of mapped memory have to begin at.
pub(crate) fn share(bytes: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores / 2).clamp(1, MOST_THREADS);
    bytes.div_ceil(threads).max(WORTH_A_THREAD).next_multiple_of(64)
}

/// Does parts of a copy on as many threads as there are parts, one of them this one.
pub(crate) fn by_several<T: Send>(parts: Vec<T>, copy: impl Fn(T) + Sync) {
    let threads = parts.len();
    let parts = Mutex::new(parts.into_iter());
    let next = || locked(&parts).next();
    let run = || {
        while let Some(part) = next() {
            copy(part);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where there is no other thread this one does it all.
            let _ = std::thread::Builder::new().name("vyre-wgpu copy".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
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
