//! A launch in the steady state takes no memory from the heap, on the caller's thread or on others.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use vyre_conform::device::add_one;
use vyre_cpu::CpuBackend;
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, CompileOptions, Launch, Order, Step};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn launches_take_no_memory() {
    let backend = CpuBackend::new().expect("a backend");
    let pipeline =
        backend.compile(&add_one().validate().expect("valid"), &CompileOptions::default()).expect("it compiles");
    let size = 1u64 << 20;
    let bindings = [Binding::from(backend.allocate(size).expect("memory"))];
    let step = |groups| Step::Launch { pipeline: pipeline.clone(), bindings: bindings.to_vec(), grid: [groups, 1, 1] };
    let recording = backend.record(&[step(4), step(4096), step(4)]).expect("a recording");
    let round = || {
        let mut last = None;
        for groups in [4, 4096, 4096, 4, 4] {
            let order = Order { queue: 1, after: last.as_slice(), deadline: None };
            last = Some(
                backend
                    .submit(&pipeline, &Launch { order, ..Launch::new(&bindings, [groups, 1, 1]) })
                    .expect("a launch"),
            );
        }
        backend.wait(last.expect("a ticket"), None).expect("its end");
        let replayed = backend.replay(&recording, &Order::default()).expect("a replay");
        backend.wait(replayed, None).expect("its end");
    };
    for _ in 0..50 {
        round();
    }
    // A launch that takes longer than usual calls for one more thread, of which there are only a few.
    let counts: Vec<usize> = std::iter::repeat_with(|| {
        let before = COUNT.load(Relaxed);
        (0..200).for_each(|_| round());
        COUNT.load(Relaxed) - before
    })
    .take(8)
    .collect();
    let still = counts.iter().filter(|&&count| count == 0).count();
    assert!(still >= 4, "allocations in each 1200 launches: {counts:?}");
}
