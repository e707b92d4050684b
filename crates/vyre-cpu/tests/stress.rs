//! Eight threads with random chains of work on all queues and random cancellations: everybody has the results of a serial run, or an
//! error on exactly what was cancelled.

use std::sync::Arc;

use vyre_cpu::{CpuBackend, CpuPath};
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, Buffer, CompileOptions, Launch, Order, Pipeline, Step, Ticket};
use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

const THREADS: u64 = 8;
const BUFFERS: usize = 3;

struct Kernels {
    step: Arc<dyn Pipeline>,
    slow: Arc<dyn Pipeline>,
    endless: Arc<dyn Pipeline>,
}

fn kernels(backend: &CpuBackend) -> Kernels {
    let compile = |program: Program| {
        let mut options = CompileOptions::default();
        options.interruptible = true;
        backend.compile(&program.validate().expect("valid"), &options).expect("it compiles")
    };
    let data = || vec![BufferDecl::read_write("data", 0, DataType::U32)];
    let x = || Expr::load("data", Expr::global_id(0));
    Kernels {
        step: compile(Program::wrapped(
            data(),
            [64, 1, 1],
            vec![Node::store("data", Expr::global_id(0), x() * 3u32 + 1u32)],
        )),
        // As many rounds as the last digits of the element say, with a loop that looks at its stop word.
        slow: compile(Program::wrapped(
            data(),
            [64, 1, 1],
            vec![
                Node::var("x", DataType::U32, x()),
                Node::var("left", DataType::U32, (x() & 1023u32) + 1u32),
                Node::forever(vec![
                    Node::assign("x", Expr::var("x") * 5u32 + 7u32),
                    Node::assign("left", Expr::var("left") - 1u32),
                    Node::if_then(Expr::var("left").eq(0u32), vec![Node::Break]),
                ]),
                Node::store("data", Expr::global_id(0), Expr::var("x")),
            ],
        )),
        endless: compile(Program::wrapped(
            data(),
            [64, 1, 1],
            vec![Node::forever(vec![Node::atomic(AtomicOp::Add, "data", 0u32, 1u32)])],
        )),
    }
}

fn stepped(x: u32) -> u32 {
    x.wrapping_mul(3).wrapping_add(1)
}

fn slowed(x: u32) -> u32 {
    (0..=(x & 1023)).fold(x, |x, _| x.wrapping_mul(5).wrapping_add(7))
}

/// The next of a chain of random numbers, below a limit.
fn below(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 33) as usize % limit
}

/// One thread's arrays: what is on the device, what should be there, and the last work that used it.
struct Array {
    buffer: Buffer,
    model: Vec<u32>,
    last: Vec<Ticket>,
}

fn worker(backend: &CpuBackend, kernels: &Kernels, seed: u64, rounds: usize) -> [usize; 2] {
    let mut random = seed * 0x9E37_79B9 + 12345;
    let (mut done, mut stopped) = (0, 0);
    let sizes = [256usize, 4096, 1 << 15];
    let fresh = |size: usize| {
        let buffer = backend.allocate(size as u64 * 4).expect("memory");
        Array { buffer, model: vec![0; size], last: Vec::new() }
    };
    let mut arrays: Vec<Array> = (0..BUFFERS).map(|at| fresh(sizes[at])).collect();
    for _ in 0..rounds {
        let at = below(&mut random, BUFFERS);
        let queue = below(&mut random, 4) as u32;
        let after = arrays[at].last.clone();
        let order = Order { queue, after: &after, deadline: None };
        let size = arrays[at].model.len();
        let whole = |array: &Array| Binding::from(array.buffer.clone());
        let groups = [(size / 64) as u32, 1, 1];
        match below(&mut random, 9) {
            kind @ 0..4 => {
                let (pipeline, model): (_, fn(u32) -> u32) =
                    if kind < 3 { (&kernels.step, stepped) } else { (&kernels.slow, slowed) };
                let bindings = [whole(&arrays[at])];
                let launch = Launch { order, ..Launch::new(&bindings, groups) };
                let ticket = backend.submit(pipeline, &launch).expect("a launch");
                let cancel = below(&mut random, 4) == 0;
                if cancel {
                    backend.cancel(ticket).expect("a known ticket");
                    match backend.wait(ticket, None) {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("waiting has no limit"),
                        Err(error) => {
                            assert_eq!(error.code(), codes::backend::STOPPED.id, "{error}");
                            backend.forget(ticket);
                            stopped += 1;
                            arrays[at] = fresh(size);
                            continue;
                        }
                    }
                }
                done += 1;
                arrays[at].model.iter_mut().for_each(|x| *x = model(*x));
                arrays[at].last = vec![ticket];
            }
            4 => {
                // Somebody else's endless launch on the same queue, cancelled at once or while it runs.
                let bindings = [Binding::from(backend.allocate(4).expect("memory"))];
                let launch = Launch { order: Order { queue, ..Order::default() }, ..Launch::new(&bindings, groups) };
                let ticket = backend.submit(&kernels.endless, &launch).expect("a launch");
                if below(&mut random, 2) == 0 {
                    std::thread::yield_now();
                }
                backend.cancel(ticket).expect("a known ticket");
                assert_eq!(backend.wait(ticket, None).unwrap_err().code(), codes::backend::STOPPED.id);
                backend.forget(ticket);
                stopped += 1;
            }
            5 => {
                let values: Vec<u32> = (0..size).map(|_| below(&mut random, 1 << 30) as u32).collect();
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                let ticket = backend.upload(&arrays[at].buffer, 0, &bytes, &order).expect("an upload");
                (arrays[at].model, arrays[at].last) = (values, vec![ticket]);
            }
            6 => {
                let other = (at + 1) % BUFFERS;
                let bytes = size.min(arrays[other].model.len()) as u64 * 4;
                let part = |array: &Array| Binding::new(array.buffer.clone(), bytes);
                let both = [after.as_slice(), &arrays[other].last].concat();
                let order = Order { queue, after: &both, deadline: None };
                let ticket = backend.copy(&part(&arrays[at]), &part(&arrays[other]), &order).expect("a copy");
                let copied = arrays[at].model[..bytes as usize / 4].to_vec();
                arrays[other].model[..copied.len()].copy_from_slice(&copied);
                arrays[other].last = vec![ticket];
                arrays[at].last.push(ticket);
            }
            7 => {
                let steps = [
                    Step::Launch {
                        pipeline: Arc::clone(&kernels.step),
                        bindings: vec![whole(&arrays[at])],
                        grid: groups,
                    },
                    Step::Clear(Binding { buffer: arrays[at].buffer.clone(), offset: 64, bytes: 128 }),
                    Step::Launch {
                        pipeline: Arc::clone(&kernels.step),
                        bindings: vec![whole(&arrays[at])],
                        grid: groups,
                    },
                ];
                let recording = backend.record(&steps).expect("a recording");
                let ticket = backend.replay(&recording, &order).expect("a replay");
                arrays[at].model.iter_mut().for_each(|x| *x = stepped(*x));
                arrays[at].model[16..48].fill(0);
                arrays[at].model.iter_mut().for_each(|x| *x = stepped(*x));
                arrays[at].last = vec![ticket];
            }
            _ => {
                let mut bytes = vec![0; size * 4];
                backend.download(&arrays[at].buffer, 0, &mut bytes, &order).expect("a download");
                let expected: Vec<u8> = arrays[at].model.iter().flat_map(|x| x.to_le_bytes()).collect();
                assert!(bytes == expected, "thread {seed} has not the results of a serial run");
            }
        }
    }
    for Array { buffer, model, last } in &arrays {
        let mut bytes = vec![0; model.len() * 4];
        let order = Order { queue: 0, after: last, deadline: None };
        backend.download(buffer, 0, &mut bytes, &order).expect("a download");
        let expected: Vec<u8> = model.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert!(bytes == expected, "thread {seed} has not the results of a serial run at the end");
    }
    [done, stopped]
}

#[test]
fn everybody_has_the_results_of_a_serial_run() {
    let rounds = std::env::var("VYRE_STRESS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    for path in [CpuPath::best(), CpuPath::Interpret] {
        let rounds = if path == CpuPath::Interpret { rounds / 10 } else { rounds };
        let backend = CpuBackend::with_path(path).expect("a path that is here");
        let kernels = kernels(&backend);
        let totals = std::thread::scope(|scope| {
            let (backend, kernels) = (&backend, &kernels);
            let workers: Vec<_> =
                (0..THREADS).map(|seed| scope.spawn(move || worker(backend, kernels, seed, rounds))).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Vec<_>>()
        });
        let [done, stopped] = totals.iter().fold([0, 0], |sum, total| [sum[0] + total[0], sum[1] + total[1]]);
        println!("{path}: {done} launches done, {stopped} stopped");
        assert!(done > 0 && stopped > 0);
    }
}
