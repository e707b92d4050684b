//! Results that go past the caches: the same bytes as any, wherever buffers begin and rows end, and there for whoever reads them next.

use std::num::NonZero;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use vyre_conform::{Case, Outcome, Rules, check_against, run_reference};
use vyre_cpu::{CpuBackend, CpuOptions, CpuPath};
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, CompileOptions, Launch, Order, Pipeline};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

/// Around a vector, a block, and several of them, on every path.
const SIZES: [u32; 11] = [1, 15, 16, 64, 127, 128, 129, 250, 256, 700, 3000];

/// The paths that have such stores.
fn paths() -> impl Iterator<Item = CpuPath> {
    [CpuPath::Avx512, CpuPath::Avx2].into_iter().filter(|path| path.is_here())
}

/// Everything that can go past the caches does.
fn backend(path: CpuPath, threads: usize) -> CpuBackend {
    let mut options = CpuOptions::default();
    (options.path, options.threads, options.streams_from) = (Some(path), NonZero::new(threads), Some(0));
    CpuBackend::with_options(&options).expect("a path that is here")
}

fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn i() -> Expr {
    Expr::global_id(0)
}

/// `out[i] = a[i] * 3 + 1`, wherever both are.
fn line() -> Program {
    let work = Node::store("out", i(), Expr::load("a", i()) * 3u32 + 1u32);
    let inside = i().lt(Expr::len("a")) & i().lt(Expr::len("out"));
    Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::U32), BufferDecl::read_write("out", 1, DataType::U32)],
        [64, 1, 1],
        vec![Node::if_then(inside, vec![work])],
    )
}

fn compile(backend: &CpuBackend, program: &Program) -> std::sync::Arc<dyn Pipeline> {
    backend.compile(&program.validate().expect("valid"), &CompileOptions::default()).expect("it compiles")
}

fn streams(backend: &CpuBackend, program: &Program) -> usize {
    let code = backend.machine_code(&compile(backend, program)).expect("its own").expect("machine code");
    Decoder::new(64, &code, DecoderOptions::NONE).iter().filter(|i| i.mnemonic() == Mnemonic::Vmovntps).count()
}

fn agree(what: &str, case: &Case) {
    let expected = run_reference(case).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for path in paths() {
        let outcome = check_against(&backend(path, 1), case, &expected, &Rules::exact());
        assert!(matches!(outcome, Outcome::Same), "{what} on {path}: {outcome:?}");
    }
}

/// The kernel whose code is looked at, so that what the others compare is such code.
#[test]
fn short_kernels_have_code_for_it_and_others_do_not() {
    let sum = Node::assign("sum", Expr::var("sum") + Expr::load("a", Expr::var("k")));
    let body = vec![
        Node::var("sum", DataType::U32, 0u32),
        Node::for_range("k", 0u32, Expr::len("a"), vec![sum]),
        Node::store("out", i(), Expr::var("sum")),
    ];
    let buffers = |out: BufferDecl| vec![BufferDecl::read("a", 0, DataType::U32), out];
    let output = || BufferDecl::output("out", 1, DataType::U32).with_count(1 << 10);
    let changed = BufferDecl::read_write("out", 1, DataType::U32);
    let program = |buffers, body| Program::wrapped(buffers, [64, 1, 1], body);
    let others = [
        ("a loop", program(buffers(output()), body)),
        ("in place", program(buffers(changed), vec![Node::store("out", i(), Expr::load("out", i()) + 1u32)])),
        ("apart", program(buffers(output()), vec![Node::store("out", i() * 2u32, Expr::load("a", i()))])),
    ];
    for path in paths() {
        let backend = backend(path, 1);
        assert!(streams(&backend, &line()) >= 4, "{path}");
        for (what, program) in &others {
            assert_eq!(streams(&backend, program), 0, "{what} on {path}");
        }
    }
}

#[test]
fn lines_that_begin_and_end_anywhere() {
    for n in SIZES {
        let groups = n.div_ceil(64) + 1;
        let read = |name, at, ty| BufferDecl::read(name, at, ty);
        let out = |name, at, ty| BufferDecl::output(name, at, ty).with_count(n);
        let x = || Expr::load("a", i());
        let (u32s, u64s) = (DataType::U32, DataType::U64);
        let wide = || x().cast(DataType::U64);
        let four = BufferDecl::output("out", 1, DataType::Vec4U32).with_count(n);
        let cases = [
            (
                "words",
                vec![read("a", 0, u32s.clone()), out("out", 1, u32s.clone())],
                vec![Node::store("out", i(), x())],
            ),
            (
                "two",
                vec![read("a", 0, u32s.clone()), out("out", 1, u32s.clone()), out("more", 2, u32s.clone())],
                vec![Node::store("out", i(), x()), Node::store("more", i(), x() ^ 5u32)],
            ),
            (
                "pairs of words",
                vec![read("a", 0, u32s.clone()), out("out", 1, u64s.clone())],
                vec![Node::store("out", i(), wide() * wide())],
            ),
            (
                "vectors",
                vec![read("a", 0, u32s.clone()), four],
                vec![Node::store(
                    "out",
                    i(),
                    Expr::construct(DataType::Vec4U32, vec![x(), i(), x() + 1u32, i() * x()]),
                )],
            ),
            (
                "by place",
                vec![read("a", 0, u32s.clone()), out("out", 1, u32s.clone())],
                vec![Node::store("out", i() + 1u32, x() + Expr::local_id(0) * Expr::workgroup_id(0))],
            ),
        ];
        for (what, buffers, body) in cases {
            let program = Program::wrapped(buffers, [64, 1, 1], body);
            agree(&format!("{what}, {n}"), &Case { grid: Some([groups, 1, 1]), ..Case::new(program, vec![words(n)]) });
        }
    }
}

/// The middle of a picture is computed and its rim copied; rows begin anywhere in a line of the cache.
#[test]
fn pictures_of_any_width() {
    let y = || Expr::global_id(1);
    for width in [1u32, 20, 128, 150, 256, 333, 1024] {
        let height = 7u32;
        let at = |x: Expr, y: Expr| Expr::load("a", y * width + x);
        let sum = at(i() - 1u32, y()) + at(i() + 1u32, y()) + at(i(), y() - 1u32) + at(i(), y() + 1u32);
        let inner = i().gt(0u32) & i().lt(width - 1) & y().gt(0u32) & y().lt(height - 1);
        let store = |value: Expr| Node::store("out", y() * width + i(), value);
        let body = vec![Node::if_then(
            i().lt(width) & y().lt(height),
            vec![Node::if_else(inner, vec![store(sum * 3u32)], vec![store(at(i(), y()))])],
        )];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(width * height),
            ],
            [16, 4, 1],
            body,
        );
        let grid = Some([width.div_ceil(16), 2, 1]);
        agree(&format!("{width} wide"), &Case { grid, ..Case::new(program, vec![words(width * height)]) });
    }
}

/// Parts of one buffer, at every distance from an aligned place that a binding can have; nothing is written around them.
#[test]
fn parts_of_a_buffer_at_any_alignment() {
    for path in paths() {
        let backend = backend(path, 2);
        let pipeline = compile(&backend, &line());
        let (count, room) = (900u64, 8 * 1024u64);
        let buffer = backend.allocate(room).expect("memory");
        for first in (0..128).step_by(8) {
            let order = Order::default();
            let ticket = backend.upload(&buffer, 0, &words(room as u32 / 4), &order).expect("an upload");
            backend.wait(ticket, None).expect("its end");
            let a = Binding { offset: 0, ..Binding::new(buffer.clone(), count * 4) };
            let out = Binding { offset: 4096 + first, ..Binding::new(buffer.clone(), count * 4) };
            let ticket = backend.submit(&pipeline, &Launch::new(&[a, out], [15, 1, 1])).expect("a launch");
            backend.wait(ticket, None).expect("its end");
            let mut bytes = vec![0; room as usize];
            backend.download(&buffer, 0, &mut bytes, &order).expect("a result");
            let given = words(room as u32 / 4);
            let (at, end) = (4096 + first as usize, 4096 + first as usize + count as usize * 4);
            assert!(bytes[..at] == given[..at] && bytes[end..] == given[end..], "around {first} on {path}");
            for (word, a) in bytes[at..end].chunks_exact(4).zip(given.chunks_exact(4)) {
                let a = u32::from_le_bytes(a.try_into().expect("a word"));
                assert_eq!(word, (a.wrapping_mul(3).wrapping_add(1)).to_le_bytes(), "from {first} on {path}");
            }
        }
    }
}

/// A long chain on several threads: each launch reads what others have just written past the caches of theirs.
#[test]
fn the_next_launch_reads_what_was_written() {
    for path in paths() {
        let backend = backend(path, 4);
        let pipeline = compile(&backend, &line());
        let count = 1u64 << 18;
        let places = [0, 1].map(|_| Binding::new(backend.allocate(count * 4).expect("memory"), count * 4));
        let mut expected: Vec<u32> = (0..count as u32).collect();
        let bytes: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
        let ticket = backend.upload(&places[0].buffer, 0, &bytes, &Order::default()).expect("an upload");
        backend.wait(ticket, None).expect("its end");
        let mut last = None;
        for round in 0..40usize {
            let bindings = [places[round % 2].clone(), places[(round + 1) % 2].clone()];
            // Another queue each time, after the launch before.
            let after: Vec<_> = last.into_iter().collect();
            let order = Order { queue: round as u32 % 4, after: &after, ..Order::default() };
            let launch = Launch { order, ..Launch::new(&bindings, [(count / 64) as u32, 1, 1]) };
            last = Some(backend.submit(&pipeline, &launch).expect("a launch"));
            expected.iter_mut().for_each(|word| *word = word.wrapping_mul(3).wrapping_add(1));
        }
        backend.wait(last.expect("a launch"), None).expect("its end");
        let mut found = vec![0; count as usize * 4];
        backend.download(&places[0].buffer, 0, &mut found, &Order::default()).expect("a result");
        assert!(found.chunks_exact(4).zip(&expected).all(|(word, expected)| word == expected.to_le_bytes()), "{path}");
    }
}
