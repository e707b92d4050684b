//! A GPU: its context, its streams, what is in use on it, and what happens when a kernel faults.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::{Ledger, Step, Ticket};
use vyre_spec::{Diagnostic, codes};

use crate::api::{Api, CudaError, DevicePointer, Handle, Words};
use crate::batch::Sender;
use crate::memory::Memory;
use crate::queue::{QUEUES, Queue};
use crate::staging::Lanes;
use crate::stop::Stops;

/// Why something on a device failed.
pub(crate) enum Failure {
    /// The driver said no.
    Cuda(CudaError),
    /// Anything else.
    Other(BackendError),
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Failure::Cuda(error)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure::Other(error)
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Failure::Other(diagnostic.into())
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU. Its context is the device's primary one, which other libraries of the process share, so it is never reset.
pub(crate) struct Device {
    pub(crate) api: &'static Api,
    pub(crate) number: i32,
    pub(crate) context: Handle,
    pub(crate) ledger: Ledger,
    pub(crate) queues: Vec<Queue>,
    /// How far each queue, and behind them the memory's stream, has come. Written by the device.
    pub(crate) words: Words,
    pub(crate) memory: Memory,
    pub(crate) stops: Stops,
    pub(crate) lanes: Lanes,
    pub(crate) sender: Sender,
    parked: Mutex<Vec<Parked>>,
    pub(crate) opened: Instant,
    /// When the driver was last asked how the context is, in nanoseconds since it was opened.
    pub(crate) asked: AtomicU64,
    /// What ended the context.
    lost: OnceLock<BackendError>,
}

impl Device {
    pub(crate) fn open(api: &'static Api, number: i32, keep: u64) -> Result<Arc<Device>, CudaError> {
        let context = api.retain_context(number)?;
        let _entered = api.enter(context)?;
        let device = match Device::open_in(api, number, context, keep) {
            // From here on it gives the context back itself.
            Ok(device) => Arc::new(device),
            Err(error) => {
                api.release_context(number)?;
                return Err(error);
            }
        };
        // Drivers load their own kernels, too, when they are first needed, and may wait for everything that runs to do so.
        let (pointer, _) = device.take_memory(16)?;
        device.memory.free(api, pointer)?;
        Ok(device)
    }

    fn open_in(api: &'static Api, number: i32, context: Handle, keep: u64) -> Result<Device, CudaError> {
        let queues = (0..QUEUES).map(|_| Queue::open(api)).collect::<Result<Vec<_>, _>>()?;
        Ok(Device {
            api,
            number,
            context,
            ledger: Ledger::new(QUEUES),
            queues,
            words: Words::new(api, QUEUES as usize + 1)?,
            memory: Memory::open(api, number, keep)?,
            stops: Stops::open(api, number)?,
            lanes: Lanes::open(api)?,
            sender: Sender::default(),
            parked: Mutex::default(),
            opened: Instant::now(),
            asked: AtomicU64::new(0),
            lost: OnceLock::new(),
        })
    }

    /// Calls of the driver in this device's context.
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, BackendError> {
        if let Some(cause) = self.lost.get() {
            return Err(BackendError::with_code(
                &codes::backend::DEVICE_LOST,
                format!(
                    "the device was lost: {} Fix: Start the process anew; driver 580 and others give a process no new context \
                     after a fault.",
                    cause.message()
                ),
            ));
        }
        let done = self.api.enter(self.context).map_err(Failure::Cuda).and_then(|_entered| work());
        done.map_err(|failure| match failure {
            Failure::Other(error) => error,
            Failure::Cuda(error) if error.is_fault() => self.lose(&error),
            Failure::Cuda(error) => describe(&error),
        })
    }

    /// Everything that is not over fails.
    fn lose(&self, error: &CudaError) -> BackendError {
        let cause = self.lost.get_or_init(|| {
            BackendError::with_code(
                &codes::cuda::FAULT,
                format!(
                    "a kernel faulted, and all that this process had on the device is lost: {error}. Fix: Start the process \
                     anew; driver 580 and others give a process no new context after a fault. Report the program."
                ),
            )
        });
        self.lose_work(cause);
        cause.clone()
    }

    fn lose_work(&self, cause: &BackendError) {
        for (index, queue) in self.queues.iter().enumerate() {
            queue.lose(
                &self.ledger,
                &self.stops,
                Ticket { queue: index as u32, number: self.words.load(index) },
                cause,
            );
        }
        self.ledger.lose_all(cause);
    }

    /// Says whether the device is lost. Work that was submitted while that happened is then lost too.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().inspect(|cause| self.lose_work(cause)).is_some()
    }

    /// Gives something back once the work that uses it is over: now, or when somebody comes by later.
    pub(crate) fn park(&self, uses: &Uses, left: Leftover) {
        let parked = Parked { until: uses.0.each_ref().map(|number| number.load(Ordering::Acquire)), left };
        locked(&self.parked).push(parked);
        self.sweep();
    }

    /// No memory is parked any more, or what is will be in use for long: an allocation that waits beats one that fails for want of memory
    /// that nobody holds.
    pub(crate) fn sweep_all(&self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        const BUSY: Duration = Duration::from_millis(1);
        let begin = Instant::now();
        loop {
            self.sweep();
            let holds_memory = locked(&self.parked).iter().any(|parked| !matches!(parked.left, Leftover::Module(_)));
            match begin.elapsed() {
                _ if !holds_memory => return,
                waited if waited > PATIENCE => return,
                waited if waited > BUSY => std::thread::sleep(Duration::from_micros(200)),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Gives back what is parked and no longer in use.
    pub(crate) fn sweep(&self) {
        let idle = (0..QUEUES)
            .all(|queue| self.ledger.submitted(queue).is_ok_and(|number| self.words.load(queue as usize) >= number));
        // The driver may wait for all that runs before it unloads a module, and idle graphs may still name what is in it.
        let has_modules = locked(&self.parked).iter().any(|parked| matches!(parked.left, Leftover::Module(_)));
        let unloads = idle && has_modules && self.drop_graphs();
        let over = |parked: &mut Parked| {
            let mut until = parked.until.iter().enumerate();
            let may_go = unloads || !matches!(parked.left, Leftover::Module(_));
            may_go && until.all(|(queue, &number)| self.words.load(queue) >= number)
        };
        // Giving one back may park others, so the lock is not held meanwhile.
        let (over, last) = {
            let mut parked = locked(&self.parked);
            let over: Vec<Parked> = parked.extract_if(.., over).collect();
            let last: [u64; QUEUES as usize] = std::array::from_fn(|queue| {
                let until = |parked: &Parked| match parked.left {
                    Leftover::Module(_) => self.ledger.submitted(queue as u32).unwrap_or(0),
                    _ => parked.until[queue],
                };
                parked.iter().map(until).max().unwrap_or(0)
            });
            (over, last)
        };
        for (queue, number) in (0..).zip(last).filter(|(_, number)| *number > 0) {
            // A fault of earlier work is for the next call to report.
            drop(self.with(|| self.ask_in_passing(Ticket { queue, number })));
        }
        for Parked { left, .. } in over {
            let given_back = self.with(|| {
                match left {
                    Leftover::Memory(pointer) => self.memory.free(self.api, pointer)?,
                    Leftover::Module(module) => self.api.unload_module(module)?,
                    Leftover::Graph { ready, graph } => {
                        self.api.destroy_ready(ready)?;
                        self.api.destroy_graph(graph)?;
                    }
                    Leftover::Steps(steps) => drop(steps),
                    Leftover::Foreign(owner) => drop(owner),
                }
                Ok(())
            });
            // A fault of earlier work is for the next call to report.
            drop(given_back);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        /// How long work that is nearly over is waited for.
        const SOON: Duration = Duration::from_millis(20);
        let soon = Instant::now() + SOON;
        let closed = self.with(|| {
            for queue in 0..QUEUES {
                let number = self.ledger.submitted(queue)?;
                // What is in use stays for as long as the process lives; so does all that a lost context had.
                if number > 0 && !self.wait_over(Ticket { queue, number }, Some(soon))? || self.is_lost() {
                    return Err(BackendError::new("the device is in use").into());
                }
            }
            self.sweep();
            self.queues.iter().try_for_each(|queue| queue.close(self.api))?;
            self.memory.close(self.api)?;
            self.stops.close(self.api)?;
            self.lanes.close(self.api)?;
            Ok(self.words.close(self.api)?)
        });
        if closed.is_ok() {
            // There is nobody left to tell.
            _ = self.api.release_context(self.number);
        }
    }
}

/// What a caller is told about a failed call.
pub(crate) fn describe(error: &CudaError) -> BackendError {
    let code = if error.is_out_of_memory() {
        &codes::backend::OUT_OF_MEMORY
    } else if error.is_fault() {
        &codes::cuda::FAULT
    } else {
        &codes::cuda::CALL_FAILED
    };
    BackendError::with_code(code, error.to_string())
}

/// The last work on each queue that uses something.
#[derive(Default)]
pub(crate) struct Uses([AtomicU64; QUEUES as usize]);

impl Uses {
    pub(crate) fn mark(&self, ticket: Ticket) {
        self.0[ticket.queue as usize].fetch_max(ticket.number, Ordering::AcqRel);
    }
}

/// What is left of something when its last handle is gone.
pub(crate) enum Leftover {
    Memory(DevicePointer),
    Module(Handle),
    Graph {
        ready: Handle,
        graph: Handle,
    },
    /// What nodes of a graph used.
    Steps(Vec<Step>),
    Foreign(Box<dyn Any + Send>),
}

struct Parked {
    until: [u64; QUEUES as usize],
    left: Leftover,
}
