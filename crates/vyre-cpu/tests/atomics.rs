//! Atomics on workgroup memory and on buffers, with and without a use of the old value, at one address, at a few and at many, for all
//! lanes and for some: every path gives what the reference gives.

use std::num::NonZero;
use std::time::Duration;

use vyre_conform::{Case, Outcome, Rules, check_against, run_reference};
use vyre_cpu::{CpuBackend, CpuOptions, CpuPath};
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, CompileOptions, Launch, Order, Step};
use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, Node, Program};

const OPS: [AtomicOp; 11] = [
    AtomicOp::Load,
    AtomicOp::Store,
    AtomicOp::Add,
    AtomicOp::Sub,
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::And,
    AtomicOp::Or,
    AtomicOp::Xor,
    AtomicOp::Exchange,
    AtomicOp::CompareExchange,
];

/// Elements that the atomics work on.
const CELLS: u32 = 40;

fn literal(ty: &DataType, value: u32) -> Expr {
    if *ty == DataType::I32 { Expr::i32(value as i32) } else { Expr::u32(value) }
}

/// One atomic by each of `size` invocations, with what was there before copied in and what is there after copied out.
fn case(
    op: AtomicOp,
    ty: &DataType,
    shared: bool,
    old: bool,
    [place, value, condition]: [usize; 3],
    size: u32,
) -> Case {
    let lid = || Expr::local_id(0);
    let input = || Expr::load("input", lid());
    let index = match place {
        0 => Expr::u32(7),
        1 => lid() / 5u32 % 8u32,
        2 => input().cast(DataType::U32) % (CELLS + 6),
        _ => lid() % CELLS,
    };
    let value = match value {
        0 => literal(ty, 3),
        1 => Expr::load("input", 1u32),
        _ => input(),
    };
    let memory = if shared { "cells" } else { "out" };
    let result = (op == AtomicOp::Load || old && op != AtomicOp::Store).then(|| "old".into());
    let keeps = result.is_some();
    let atomic = Node::Atomic {
        op,
        buffer: memory.into(),
        index,
        path: Vec::new(),
        value: (op != AtomicOp::Load).then_some(value),
        compare: (op == AtomicOp::CompareExchange).then(|| literal(ty, 9)),
        result,
    };
    let mut body = vec![atomic];
    if keeps {
        body.push(Node::store("olds", lid(), Expr::var("old")));
    }
    let body = match condition {
        0 => body,
        1 => vec![Node::if_then((lid() % 3u32).ne(1u32), body)],
        _ => vec![Node::if_then(input().cast(DataType::U32).gt(1u32 << 30), body)],
    };
    let here = || lid().lt(CELLS);
    let mut all = vec![Node::if_then(here(), vec![Node::store(memory, lid(), literal(ty, 9) - input())])];
    all.push(Node::barrier());
    all.extend(body);
    all.push(Node::barrier());
    if shared {
        all.push(Node::if_then(here(), vec![Node::store("out", lid(), Expr::load("cells", lid()))]));
    }
    let program = Program::wrapped(
        vec![
            BufferDecl::read("input", 0, ty.clone()),
            BufferDecl::read_write("out", 1, ty.clone()),
            BufferDecl::output("olds", 2, ty.clone()).with_count(size),
            BufferDecl::workgroup("cells", 0, ty.clone()).with_count(CELLS),
            BufferDecl::workgroup("others", 0, ty.clone()).with_count(3),
        ],
        [size, 1, 1],
        all,
    );
    let words = |count: u32| (0..count).flat_map(|i| (i + 1).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    Case { grid: Some([1, 1, 1]), ..Case::new(program, vec![words(size), words(CELLS)]) }
}

#[test]
fn atomics_agree() {
    let paths: Vec<_> = CpuPath::ALL.into_iter().filter(|path| path.is_here()).collect();
    let backends: Vec<_> =
        paths.iter().map(|&path| CpuBackend::with_path(path).expect("a path that is here")).collect();
    let mut number = 0;
    for op in OPS {
        for choice in 0..3 * 4 * 3 {
            let (value, place, condition) = (choice % 3, choice / 3 % 4, choice / 12);
            for kind in 0..8 {
                // Some of all, with every value of every choice, and more of those that meet at one place.
                number += 1;
                if number % if place == 0 { 3 } else { 17 } != 0 {
                    continue;
                }
                let (shared, old) = (kind & 1 == 0, kind & 2 == 0);
                let ty = if kind & 4 == 0 { DataType::U32 } else { DataType::I32 };
                let size = [40, 64, 33, 256][number % 4];
                // Which of two lanes stores last is nobody's business on a buffer.
                let case = case(op, &ty, shared, old, [place, value, condition], size);
                let what = format!("{op:?} {ty} shared {shared} old {old} {place} {value} {condition} {size}");
                let expected = run_reference(&case).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                for (path, backend) in paths.iter().zip(&backends) {
                    let outcome = check_against(backend, &case, &expected, &Rules::exact());
                    assert!(matches!(outcome, Outcome::Same), "{what} on {path}: {outcome:?}");
                }
            }
        }
    }
}

/// Several atomics of each invocation on the same memory, of which some are out of bounds or don't take part.
#[test]
fn several_atomics_of_a_lane_agree() {
    let paths: Vec<_> = CpuPath::ALL.into_iter().filter(|path| path.is_here()).collect();
    for (size, kinds) in [
        (64u32, [AtomicOp::Add; 3]),
        (256, [AtomicOp::Add, AtomicOp::Sub, AtomicOp::Add]),
        (512, [AtomicOp::Xor; 3]),
        (96, [AtomicOp::Or, AtomicOp::Add, AtomicOp::Or]),
    ] {
        let lid = || Expr::local_id(0);
        let place = || Expr::load("input", lid()) % Expr::u32(14) * Expr::u32(3);
        let atomic = |op: AtomicOp, add: u32, value: Expr| Node::Atomic {
            op,
            buffer: "cells".into(),
            index: place() + Expr::u32(add),
            path: Vec::new(),
            value: Some(value),
            compare: None,
            result: None,
        };
        let all = vec![
            Node::if_then(lid().lt(CELLS), vec![Node::store("cells", lid(), lid())]),
            Node::barrier(),
            atomic(kinds[0], 0, Expr::load("input", lid())),
            atomic(kinds[1], 1, lid() + Expr::u32(5)),
            atomic(kinds[2], 2, Expr::u32(1)),
            Node::barrier(),
            Node::if_then(lid().lt(CELLS), vec![Node::store("out", lid(), Expr::load("cells", lid()))]),
        ];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("input", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(CELLS),
                BufferDecl::workgroup("cells", 0, DataType::U32).with_count(CELLS),
            ],
            [size, 1, 1],
            all,
        );
        let input = (0..size).flat_map(|i| (i + 1).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let case = Case { grid: Some([1, 1, 1]), ..Case::new(program, vec![input]) };
        let expected = run_reference(&case).unwrap_or_else(|error| panic!("{kinds:?}: {error:?}"));
        for &path in &paths {
            let backend = CpuBackend::with_path(path).expect("a path that is here");
            let outcome = check_against(&backend, &case, &expected, &Rules::exact());
            assert!(matches!(outcome, Outcome::Same), "{kinds:?} of {size} on {path}: {outcome:?}");
        }
    }
}

/// Many workgroups add to and take from a buffer of fixed length that nothing reads, which may be summed up elsewhere first.
fn sums(ty: &DataType, count: u32, place: usize, barrier: bool) -> Case {
    let input = || Expr::load("input", Expr::global_id(0));
    let index = match place {
        0 => Expr::local_id(0),
        1 => Expr::global_id(0) % count,
        2 => Expr::u32(count / 2),
        _ => input().cast(DataType::U32) % (count + 6),
    };
    let atomic = |op, value| Node::Atomic {
        op,
        buffer: "out".into(),
        index: index.clone(),
        path: Vec::new(),
        value: Some(value),
        compare: None,
        result: None,
    };
    let mut body = vec![atomic(AtomicOp::Add, input())];
    body.extend(barrier.then(Node::barrier));
    body.push(Node::if_then(
        (Expr::global_id(0) % 3u32).ne(1u32),
        vec![atomic(AtomicOp::Sub, literal(ty, 5)), atomic(AtomicOp::Add, input())],
    ));
    let program = Program::wrapped(
        vec![BufferDecl::read("input", 0, ty.clone()), BufferDecl::read_write("out", 1, ty.clone()).with_count(count)],
        [64, 1, 1],
        body,
    );
    let words = |count: u32| (0..count).flat_map(|i| (i + 1).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    Case { grid: Some([21, 1, 1]), ..Case::new(program, vec![words(64 * 21), words(count)]) }
}

#[test]
fn sums_of_many_workgroups_agree() {
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = CpuBackend::with_path(path).expect("a path that is here");
        for count in [1, 7, 64, 300] {
            for place in 0..4 {
                for (ty, barrier) in [(DataType::U32, false), (DataType::I32, true)] {
                    let case = sums(&ty, count, place, barrier);
                    let what = format!("{ty} {count} {place} barrier {barrier} on {path}");
                    let expected = run_reference(&case).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    let outcome = check_against(&backend, &case, &expected, &Rules::exact());
                    assert!(matches!(outcome, Outcome::Same), "{what}: {outcome:?}");
                }
            }
        }
    }
}

/// Threads meet at the words of a buffer with every atomic whose order does not matter, with all of their lanes, with some and with one value.
#[test]
fn threads_that_meet_at_a_word_agree() {
    for ty in [DataType::U32, DataType::I32] {
        let i = || Expr::global_id(0);
        let ops =
            [AtomicOp::Add, AtomicOp::Sub, AtomicOp::Min, AtomicOp::Max, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor];
        let atomic = |at: u32, op, value| Node::Atomic {
            op,
            buffer: "out".into(),
            index: Expr::u32(at),
            path: Vec::new(),
            value: Some(value),
            compare: None,
            result: None,
        };
        let mixed = || (i() * 2_654_435_761u32).cast(ty.clone());
        let body = (0..).zip(ops).flat_map(|(at, op)| {
            [
                atomic(3 * at, op, mixed()),
                Node::if_then((i() % 5u32).eq(2u32), vec![atomic(3 * at + 1, op, mixed() + literal(&ty, 77))]),
                Node::if_then((i() / 50u32 % 3u32).ne(0u32), vec![atomic(3 * at + 2, op, literal(&ty, 41))]),
            ]
        });
        let program = Program::wrapped(vec![BufferDecl::read_write("out", 0, ty.clone())], [64, 1, 1], body.collect());
        let words = (1..=21u32).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
        let case = Case { grid: Some([200, 1, 1]), ..Case::new(program, vec![words]) };
        let expected = run_reference(&case).expect("the reference runs it");
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
            let outcome = check_against(&on_threads(path), &case, &expected, &Rules::exact());
            assert!(matches!(outcome, Outcome::Same), "{ty} on {path}: {outcome:?}");
        }
    }
}

/// So many invocations add to words of a buffer of any length and take from them, all over it and beyond.
fn scattered(ty: &DataType) -> Program {
    let place = |times: u32| (Expr::global_id(0) * times) % (Expr::len("out") + 3u32);
    let atomic = |op, index, value: Expr| Node::Atomic {
        op,
        buffer: "out".into(),
        index,
        path: Vec::new(),
        value: Some(value),
        compare: None,
        result: None,
    };
    let i = || Expr::global_id(0);
    let body = vec![
        atomic(AtomicOp::Add, place(2_654_435_761), i().cast(ty.clone())),
        Node::if_then((i() % 5u32).ne(2u32), vec![atomic(AtomicOp::Sub, place(40_503), literal(ty, 7))]),
        atomic(AtomicOp::Add, Expr::u32(3), literal(ty, 1)),
    ];
    Program::wrapped(vec![BufferDecl::read_write("out", 0, ty.clone())], [64, 1, 1], body)
}

/// What so many launches of it make of zeros.
fn scattered_sums(words: u32, invocations: u32, launches: u32) -> Vec<u32> {
    let mut sums = vec![0u32; words as usize];
    let mut add = |at: u32, value: u32| {
        if let Some(sum) = sums.get_mut(at as usize) {
            *sum = sum.wrapping_add(value.wrapping_mul(launches));
        }
    };
    for i in 0..invocations {
        add(i.wrapping_mul(2_654_435_761) % (words + 3), i);
        if i % 5 != 2 {
            add(i.wrapping_mul(40_503) % (words + 3), 7u32.wrapping_neg());
        }
        add(3, 1);
    }
    sums
}

fn on_threads(path: CpuPath) -> CpuBackend {
    let mut options = CpuOptions::default();
    (options.path, options.threads) = (Some(path), NonZero::new(4));
    CpuBackend::with_options(&options).expect("a path that is here")
}

/// Launches that threads sum up apart: one after the other, of two buffers at once, of one buffer on several queues, and replayed.
#[test]
fn sums_of_many_threads_agree() {
    const GROUPS: u32 = 1 << 10;
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = on_threads(path);
        for (ty, words) in [(DataType::U32, 1000), (DataType::I32, 4099), (DataType::U32, 1 << 16)] {
            let program = scattered(&ty).validate().expect("valid");
            let pipeline = backend.compile(&program, &CompileOptions::default()).expect("it compiles");
            let buffers = [0, 1].map(|_| backend.allocate(u64::from(words) * 4).expect("memory"));
            let bound = buffers.each_ref().map(|buffer| [Binding::from(buffer.clone())]);
            let step = |at: usize| Step::Launch {
                pipeline: pipeline.clone(),
                bindings: bound[at].to_vec(),
                grid: [GROUPS, 1, 1],
            };
            let recording = backend.record(&[step(0), step(1), step(0)]).expect("a recording");
            let mut tickets = Vec::new();
            for round in 0..12usize {
                let order = Order { queue: round as u32 % 3, ..Order::default() };
                let launch = Launch { order, ..Launch::new(&bound[round % 2], [GROUPS, 1, 1]) };
                tickets.push(backend.submit(&pipeline, &launch).expect("a launch"));
                if round % 4 == 0 {
                    let order = Order { queue: 3, ..Order::default() };
                    tickets.push(backend.replay(&recording, &order).expect("a replay"));
                }
            }
            for ticket in tickets {
                backend.wait(ticket, None).expect("its end");
            }
            for (buffer, launches) in buffers.iter().zip([6 + 2 * 3, 6 + 3]) {
                let mut found = vec![0; words as usize * 4];
                backend.download(buffer, 0, &mut found, &Order::default()).expect("a result");
                let expected = scattered_sums(words, 64 * GROUPS, launches);
                let same = found.chunks_exact(4).zip(&expected).all(|(found, sum)| found == sum.to_le_bytes());
                assert!(same, "{words} words of {ty} on {path}");
            }
        }
    }
}

/// What a launch that was stopped has summed up goes to no other launch.
#[test]
fn sums_of_a_stopped_launch_are_gone() {
    const WORDS: u32 = 2048;
    let mut stopped = 0;
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = on_threads(path);
        let program = scattered(&DataType::U32).validate().expect("valid");
        let pipeline = backend.compile(&program, &CompileOptions::default()).expect("it compiles");
        let [lost, kept] = [0, 1].map(|_| [Binding::from(backend.allocate(u64::from(WORDS) * 4).expect("memory"))]);
        for round in 0..8 {
            let ticket = backend.submit(&pipeline, &Launch::new(&lost, [1 << 16, 1, 1])).expect("a launch");
            std::thread::sleep(Duration::from_micros(100 << round));
            backend.cancel(ticket).expect("its own ticket");
            stopped += u32::from(backend.wait(ticket, None).is_err());
            let ticket = backend.submit(&pipeline, &Launch::new(&kept, [1 << 10, 1, 1])).expect("a launch");
            backend.wait(ticket, None).expect("its end");
        }
        let mut found = vec![0; WORDS as usize * 4];
        backend.download(&kept[0].buffer, 0, &mut found, &Order::default()).expect("a result");
        let expected = scattered_sums(WORDS, 1 << 16, 8);
        let same = found.chunks_exact(4).zip(&expected).all(|(found, sum)| found == sum.to_le_bytes());
        assert!(same, "on {path}");
    }
    assert!(stopped > 0, "no launch was stopped");
}
