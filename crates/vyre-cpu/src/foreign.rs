//! Launches of a Rust function in the place of a program.

use vyre_driver::variant::{HostFunction, HostSlice, Workers};

use crate::launch::Stop;
use crate::memory::Span;
use crate::pool::{Crew, Failure, PANICKED};
use crate::work::CpuWork;

/// The threads of the backend, for a function that runs on one of them until it is told to stop.
pub(crate) struct Helpers<'a> {
    pub(crate) crew: &'a Crew<CpuWork>,
    pub(crate) stop: &'a Stop,
    pub(crate) buffers: &'a [Span],
}

/// Functions that leave all work that takes long to others, in short parts, are done with so many bytes before another thread would come.
const SMALL: usize = 8 << 10;

/// A function has so little to do that it does it on the thread that calls it.
pub(crate) fn is_small(buffers: &[Span]) -> bool {
    buffers.iter().map(Span::bytes).sum::<usize>() <= SMALL
}

impl Workers for Helpers<'_> {
    fn threads(&self) -> usize {
        if is_small(self.buffers) { 1 } else { self.crew.width() }
    }

    fn leaves_zeros(&self, buffer: usize, from: usize) {
        self.buffers[buffer].tell_zeros(from);
    }

    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
        let one = |at: usize| {
            if !self.stop.is_set() {
                part(at);
            }
        };
        let outcome = match parts > 1 && self.threads() > 1 {
            // SAFETY: the function lives here, and work is cleared before it is over, which `help` waits for.
            true => self.crew.help(self.stop, |work| unsafe { work.call(parts, &one) }),
            false => Ok(Ok(None)).inspect(|_| (0..parts).for_each(one)),
        };
        match outcome {
            Ok(Ok(_)) => !self.stop.is_set(),
            Ok(Err(Failure::Stopped)) => false,
            // The launch fails as if this thread had panicked.
            Ok(Err(Failure::Broke(error))) => {
                let message = error.message().trim_start_matches(PANICKED).to_owned();
                std::panic::resume_unwind(Box::new(message))
            }
            // There is no memory for helpers, and nothing was begun.
            Err(_) => {
                (0..parts).for_each(one);
                !self.stop.is_set()
            }
        }
    }
}

/// Calls a function on the buffers of a launch.
pub(crate) fn call(function: &HostFunction, buffers: &[Span], written: &[bool], workers: &Helpers<'_>) {
    if !are_apart(buffers, written) {
        return call_on_copies(function, buffers, written, workers);
    }
    let mut slices: Vec<HostSlice<'_>> = buffers
        .iter()
        .zip(written)
        .map(|(span, &written)| match written {
            // SAFETY: the launch has its results for itself, and this one overlaps no other buffer of it.
            true => HostSlice::Write(unsafe { std::slice::from_raw_parts_mut(span.start(), span.bytes()) }),
            // SAFETY: nobody writes to what a launch reads before the launch is over.
            false => HostSlice::Read(unsafe { std::slice::from_raw_parts(span.start(), span.bytes()) }),
        })
        .collect();
    function(&mut slices, workers);
}

/// No buffer that is written shares bytes with another.
fn are_apart(buffers: &[Span], written: &[bool]) -> bool {
    let overlap = |a: &Span, b: &Span| {
        let (a_start, b_start) = (a.start().addr(), b.start().addr());
        a.bytes() > 0 && b.bytes() > 0 && a_start < b_start + b.bytes() && b_start < a_start + a.bytes()
    };
    let pairs = (0..buffers.len()).flat_map(|at| (0..at).map(move |other| (at, other)));
    pairs.filter(|&(a, b)| written[a] || written[b]).all(|(a, b)| !overlap(&buffers[a], &buffers[b]))
}

/// Buffers that share bytes can't be slices; the function works on copies, and what it wrote is copied back.
fn call_on_copies(function: &HostFunction, buffers: &[Span], written: &[bool], workers: &Helpers<'_>) {
    // Words, so that the copies are aligned as the buffers are.
    let mut copies: Vec<Vec<u64>> = buffers.iter().map(|span| vec![0; span.bytes().div_ceil(8)]).collect();
    for (copy, span) in copies.iter_mut().zip(buffers) {
        // SAFETY: both have so many bytes, and the copy is fresh memory.
        unsafe { std::ptr::copy_nonoverlapping(span.start(), copy.as_mut_ptr().cast(), span.bytes()) }
    }
    let mut slices: Vec<HostSlice<'_>> = copies
        .iter_mut()
        .zip(buffers.iter().zip(written))
        .map(|(copy, (span, &written))| {
            // SAFETY: the words have at least so many bytes, and every pattern of bits is a byte.
            let bytes = unsafe { std::slice::from_raw_parts_mut(copy.as_mut_ptr().cast(), span.bytes()) };
            if written { HostSlice::Write(bytes) } else { HostSlice::Read(bytes) }
        })
        .collect();
    function(&mut slices, workers);
    drop(slices);
    for ((copy, span), _) in copies.iter().zip(buffers).zip(written).filter(|(_, written)| **written) {
        // SAFETY: as above, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(copy.as_ptr().cast(), span.start(), span.bytes()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vyre_driver::backend::HostMemory;

    use super::*;
    use crate::pool::Pool;

    #[test]
    fn buffers_that_share_bytes_are_copied() {
        let memory = HostMemory::new(64).expect("there is memory");
        memory.fill(0, &[1; 32]);
        let function: HostFunction = Arc::new(|slices, _| {
            let first = slices[0].bytes().to_vec();
            slices[1].bytes_mut().iter_mut().zip(first).for_each(|(to, from)| *to += from);
        });
        let shared = [Span::of(&memory, 0, 32), Span::of(&memory, 16, 32)];
        assert!(!are_apart(&shared, &[false, true]) && are_apart(&shared, &[false, false]));
        let pool = Pool::new(1, 1);
        let workers = Helpers { crew: &pool.crew(), stop: &Stop::default(), buffers: &shared };
        call(&function, &shared, &[false, true], &workers);
        let mut bytes = [0; 64];
        memory.copy_to(0, &mut bytes);
        assert_eq!((&bytes[..16], &bytes[16..32], &bytes[32..48]), (&[1; 16][..], &[2; 16][..], &[1; 16][..]));
    }
}
