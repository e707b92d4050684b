//! Copies between host and device. They go through pinned memory in pieces, by several threads at once: while the device copies
//! some, the host fills or empties others. Memory that is pinned already is copied as it is.
//!
//! Whatever has to be over before a copy is over when it comes here, so copies have streams of their own, one for each direction, and
//! nothing but other copies is in their way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::api::{Api, CudaError, DevicePointer, Handle, Pinned};
use crate::device::locked;

/// Copies up to this size don't come here: uploads are in order with their queue, downloads go through the driver's own buffers.
pub(crate) const SMALL: usize = 64 << 10;

/// Sizes of a piece: as many as keep all threads busy, but not so small that starting a copy is most of it.
const PIECE: usize = 4 << 20;
const SMALLEST_PIECE: usize = 512 << 10;
/// Threads that work on one copy.
const MOST_THREADS: usize = 8;
/// Tests need several on every machine.
const FEWEST_THREADS: usize = if cfg!(test) { 4 } else { 1 };

/// Streams for copies, and pinned memory that is made when it is first needed.
pub(crate) struct Lanes {
    up: Handle,
    down: Handle,
    lanes: Mutex<Pool>,
    given_back: Condvar,
    /// Lanes for one copy; twice as many are made in all.
    most: usize,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Lane>,
    made: usize,
    idle_events: Vec<Handle>,
}

/// What one thread needs: up to two pieces, one to copy while the other is filled or emptied.
#[derive(Default)]
struct Lane(Vec<Piece>);

impl Lane {
    /// The piece of a turn, which no copy uses any more.
    fn piece(&mut self, api: &Api, turn: usize) -> Result<&mut Piece, CudaError> {
        let index = turn % 2;
        if index == self.0.len() {
            self.0.push(Piece::new(api)?);
        }
        let piece = &mut self.0[index];
        api.wait_event(piece.done)?;
        Ok(piece)
    }
}

struct Piece {
    memory: Pinned,
    /// Recorded behind the last copy that uses the memory.
    done: Handle,
}

impl Piece {
    fn new(api: &Api) -> Result<Piece, CudaError> {
        let memory = api.pin(PIECE)?;
        match api.create_event(false) {
            Ok(done) => Ok(Piece { memory, done }),
            Err(error) => {
                memory.free(api)?;
                Err(error)
            }
        }
    }
}

/// Both ends are; what lies between is one block of the caller's.
pub(crate) fn is_pinned(api: &Api, address: usize, bytes: usize) -> bool {
    bytes > 0 && api.is_pinned(address) && api.is_pinned(address + bytes - 1)
}

impl Lanes {
    pub(crate) fn open(api: &Api) -> Result<Lanes, CudaError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Lanes {
            up: api.create_stream(true)?,
            down: api.create_stream(true)?,
            lanes: Mutex::default(),
            given_back: Condvar::new(),
            most: (cores / 2).clamp(FEWEST_THREADS, MOST_THREADS),
        })
    }

    pub(crate) fn close(&self, api: &Api) -> Result<(), CudaError> {
        let pool = std::mem::take(&mut *locked(&self.lanes));
        for piece in pool.idle.into_iter().flat_map(|lane| lane.0) {
            piece.memory.free(api)?;
            api.destroy_event(piece.done)?;
        }
        pool.idle_events.into_iter().try_for_each(|event| api.destroy_event(event))?;
        api.destroy_stream(self.up)?;
        api.destroy_stream(self.down)
    }

    /// How large the pieces of a copy are.
    fn piece(&self, bytes: usize) -> usize {
        (bytes / (4 * self.most)).clamp(SMALLEST_PIECE, PIECE)
    }

    /// Lanes for a copy of so many bytes: at least one.
    fn take(&self, bytes: usize) -> Vec<Lane> {
        let wanted = bytes.div_ceil(2 * self.piece(bytes)).clamp(1, self.most);
        let mut pool = locked(&self.lanes);
        loop {
            let idle = pool.idle.len();
            let mut lanes = pool.idle.split_off(idle - wanted.min(idle));
            while lanes.len() < wanted && pool.made < 2 * self.most {
                pool.made += 1;
                lanes.push(Lane::default());
            }
            if !lanes.is_empty() {
                return lanes;
            }
            pool = self.given_back.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, lanes: Vec<Lane>) {
        locked(&self.lanes).idle.extend(lanes);
        self.given_back.notify_all();
    }

    /// Runs the same work with every lane at once, one of them on this thread.
    fn with_lanes(
        &self,
        api: &Api,
        context: Handle,
        bytes: usize,
        work: impl Fn(&mut Lane) -> Result<(), CudaError> + Sync,
    ) -> Result<(), CudaError> {
        let mut lanes = self.take(bytes);
        let done = std::thread::scope(|scope| {
            let Some((own, others)) = lanes.split_first_mut() else { return Ok(()) };
            let work = &work;
            let others: Vec<_> = others
                .iter_mut()
                .filter_map(|lane| {
                    let run = move || api.enter(context).and_then(|_entered| work(lane));
                    // Where there is no other thread this one does it all.
                    std::thread::Builder::new().name("vyre-cuda copy".to_owned()).spawn_scoped(scope, run).ok()
                })
                .collect();
            let mut done = work(own);
            for other in others {
                match other.join() {
                    Ok(result) => done = done.and(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        self.give_back(lanes);
        done
    }

    /// Copies to the device, and waits until it is there.
    pub(crate) fn upload(&self, api: &Api, context: Handle, to: DevicePointer, bytes: &[u8]) -> Result<(), CudaError> {
        let address = bytes.as_ptr() as usize;
        if is_pinned(api, address, bytes.len()) {
            return self.direct(api, self.up, |stream| api.upload_async(to, address, bytes.len(), stream));
        }
        let (size, next) = (self.piece(bytes.len()), AtomicUsize::new(0));
        self.with_lanes(api, context, bytes.len(), |lane| {
            for turn in 0.. {
                let first = next.fetch_add(1, Ordering::Relaxed).saturating_mul(size);
                if first >= bytes.len() {
                    break;
                }
                let part = &bytes[first..(first + size).min(bytes.len())];
                let piece = lane.piece(api, turn)?;
                piece.memory.write_at(0, part);
                api.upload_async(to + first as u64, piece.memory.address(), part.len(), self.up)?;
                api.record(piece.done, self.up)?;
            }
            lane.0.iter().try_for_each(|piece| api.wait_event(piece.done))
        })
    }

    /// Copies from the device, and waits until it is here.
    pub(crate) fn download(
        &self,
        api: &Api,
        context: Handle,
        bytes: &mut [u8],
        from: DevicePointer,
    ) -> Result<(), CudaError> {
        let address = bytes.as_mut_ptr() as usize;
        if bytes.len() <= SMALL {
            return api.download(bytes, from, self.down);
        }
        if is_pinned(api, address, bytes.len()) {
            return self.direct(api, self.down, |stream| api.download_async(address, from, bytes.len(), stream));
        }
        let (all, size) = (bytes.len(), self.piece(bytes.len()));
        let parts = Mutex::new(bytes.chunks_mut(size).enumerate());
        self.with_lanes(api, context, all, |lane| {
            let mut under_way: VecDeque<(usize, &mut [u8])> = VecDeque::with_capacity(2);
            for turn in 0.. {
                if under_way.len() == 2
                    && let Some((piece, part)) = under_way.pop_front()
                {
                    api.wait_event(lane.0[piece].done)?;
                    lane.0[piece].memory.read(part);
                }
                let Some((index, part)) = locked(&parts).next() else { break };
                let piece = lane.piece(api, turn)?;
                let address = piece.memory.address();
                api.download_async(address, from + (index * size) as u64, part.len(), self.down)?;
                api.record(piece.done, self.down)?;
                under_way.push_back((turn % 2, part));
            }
            for (piece, part) in under_way {
                api.wait_event(lane.0[piece].done)?;
                lane.0[piece].memory.read(part);
            }
            Ok(())
        })
    }

    /// One copy of memory that the device reaches by itself.
    fn direct(
        &self,
        api: &Api,
        stream: Handle,
        copy: impl FnOnce(Handle) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let idle = locked(&self.lanes).idle_events.pop();
        let done = idle.map_or_else(|| api.create_event(false), Ok)?;
        let copied = copy(stream).and_then(|()| api.record(done, stream)).and_then(|()| api.wait_event(done));
        locked(&self.lanes).idle_events.push(done);
        copied
    }
}
