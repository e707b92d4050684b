//! Atomics on workgroup memory and on buffers, with and without a use of the old value, at one address, at a few and at many, for all
//! lanes and for some: every path gives what the reference gives.

use vyre_conform::{Case, Outcome, Rules, check_against, run_reference};
use vyre_cpu::{CpuBackend, CpuPath};
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
                // Some of all, with every value of every choice.
                number += 1;
                if number % 17 != 0 {
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
