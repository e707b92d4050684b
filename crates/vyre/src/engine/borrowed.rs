//! Launches on the caller's own memory: used in place where the device works on the host's memory, else brought to it and back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Order, Ticket};
use vyre_driver::metrics::Counter;
use vyre_spec::codes;

use super::Inner;
use super::core::{Arg, Slot, StopWhen};
use super::dispatch::Temporary;
use crate::Error;
use crate::runtime::{Deps, Device, Job, Loan, foreign_mut, foreign_ref};

/// Memory of the caller that starts at multiples of this is used in place.
const PLACED: usize = 8;

impl Inner {
    /// The caller's bytes for a launch that reads them: in place where the device works on the host's memory.
    pub(super) fn lend(
        self: &Arc<Inner>,
        device: &Arc<Device>,
        bytes: &[u8],
        at: usize,
        temporaries: &mut SmallVec<[Temporary; 2]>,
        deps: &mut Deps,
    ) -> Result<Binding, Error> {
        if device.place != Device::HOST {
            let mut loan = self.borrow_memory(device, bytes.len() as u64, deps)?;
            let binding = loan.binding(bytes.len() as u64);
            loan.used_by(self.upload(device, &binding, bytes, deps)?);
            temporaries.push(Temporary::Loan(at, loan));
            return Ok(binding);
        }
        deps.is_lent = true;
        let memory = if bytes.as_ptr().addr().is_multiple_of(PLACED) {
            foreign_ref(bytes)
        } else {
            let copy = self.host.take(bytes.len() as u64, false)?;
            copy.fill(0, bytes);
            copy
        };
        Ok(Binding { buffer: device.backend.adopt(&memory)?, offset: 0, bytes: bytes.len() as u64 })
    }

    /// The caller's memory for a launch that writes it.
    #[allow(clippy::too_many_arguments, reason = "one call, beside the loop that it belongs to")]
    pub(super) fn lend_mut(
        self: &Arc<Inner>,
        device: &Arc<Device>,
        bytes: &mut [u8],
        at: usize,
        is_input: bool,
        keep: bool,
        temporaries: &mut SmallVec<[Temporary; 2]>,
        deps: &mut Deps,
    ) -> Result<Binding, Error> {
        let size = bytes.len() as u64;
        if device.place != Device::HOST {
            let mut loan = self.borrow_memory(device, size, deps)?;
            let binding = loan.binding(size);
            if is_input {
                loan.used_by(self.upload(device, &binding, bytes, deps)?);
            } else if keep && size > 0 {
                let queue = *deps.queue.get_or_insert_with(|| device.fresh_queue());
                let order = Order { queue, after: &deps.after, deadline: deps.deadline };
                let ticket = device.backend.clear(&binding, &order)?;
                loan.used_by(ticket);
                deps.after.push(ticket);
            }
            temporaries.push(Temporary::Loan(at, loan));
            return Ok(binding);
        }
        deps.is_lent = true;
        let memory = if bytes.as_ptr().addr().is_multiple_of(PLACED) {
            foreign_mut(bytes)
        } else {
            let copy = self.host.take(size, false)?;
            copy.fill(0, bytes);
            temporaries.push(Temporary::Host(at, copy.clone()));
            copy
        };
        Ok(Binding { buffer: device.backend.adopt(&memory)?, offset: 0, bytes: size })
    }

    /// Memory of a device for one launch. Where it is full, idle arrays make room as they do for arrays.
    fn borrow_memory(&self, device: &Arc<Device>, bytes: u64, deps: &Deps) -> Result<Loan, Error> {
        loop {
            match device.memory.take(bytes) {
                Ok(block) => return Ok(Loan::new(device, block)),
                Err(error) if error.code() == codes::backend::OUT_OF_MEMORY.id => {
                    if !self.make_room(device, None, deps.deadline)? {
                        return Err(self.name_holders(device, error));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn upload(&self, device: &Device, to: &Binding, bytes: &[u8], deps: &mut Deps) -> Result<Ticket, Error> {
        let started = Instant::now();
        let queue = *deps.queue.get_or_insert_with(|| device.fresh_queue());
        let order = Order { queue, after: &deps.after, deadline: deps.deadline };
        let ticket = device.backend.upload(&to.buffer, to.offset, bytes, &order)?;
        deps.after.push(ticket);
        deps.moved_bytes += bytes.len() as u64;
        deps.move_ns += started.elapsed().as_nanos() as u64;
        deps.is_lent = true;
        self.metrics.add(Counter::BytesUploaded, bytes.len() as u64);
        Ok(ticket)
    }

    /// Waits for a launch on the caller's memory and brings its results there. The memory is the caller's again when this returns, so
    /// nothing ends it before the work is over.
    #[allow(clippy::too_many_arguments, reason = "one call, at the end of the launch that it belongs to")]
    pub(super) fn finish_borrowed(
        &self,
        device: &Arc<Device>,
        job: &Arc<Job>,
        args: &mut [Arg<'_>],
        slots: &[Slot],
        temporaries: SmallVec<[Temporary; 2]>,
        stop: Option<&StopWhen>,
    ) -> Result<(), Error> {
        let outcome = match stop {
            Some(stop) => wait_or_stop(job, stop),
            None => job.wait(None).map(drop),
        };
        for temporary in temporaries {
            match temporary {
                Temporary::Loan(at, loan) => {
                    if let Arg::Into(bytes) = &mut args[at]
                        && slots[at].kind.is_result()
                        && outcome.is_ok()
                    {
                        let order = Order { queue: job.ticket.queue, ..Order::default() };
                        let from = loan.binding(bytes.len() as u64);
                        device.backend.download(&from.buffer, from.offset, bytes, &order)?;
                        self.metrics.add(Counter::BytesDownloaded, bytes.len() as u64);
                    }
                }
                Temporary::Host(at, memory) => {
                    if let Arg::Into(bytes) = &mut args[at] {
                        memory.copy_to(0, bytes);
                    }
                }
                Temporary::Copy(copy, back) => {
                    copy.launched(job, &(0..copy.bytes), back.is_some());
                    if let Some((storage, range)) = back {
                        storage.copy_from(&copy, 0, range.start, copy.bytes, device)?;
                    }
                }
            }
        }
        outcome
    }
}

/// Waits for a launch, and ends it where it is asked to. It returns when the work is over in any case.
fn wait_or_stop(job: &Job, stop: &StopWhen) -> Result<(), Error> {
    const BETWEEN_QUESTIONS: Duration = Duration::from_millis(50);
    loop {
        if job.wait(Instant::now().checked_add(BETWEEN_QUESTIONS))? {
            return Ok(());
        }
        if stop() {
            job.cancel(false)?;
            return job.wait(None).map(drop);
        }
    }
}
