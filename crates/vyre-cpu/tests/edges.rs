//! A block of many lanes is tested as a whole before it runs. At the edges of buffers, and of what kernels set as limits
//! themselves, every lane still gets what the reference gives it.

use std::num::NonZero;
use std::time::{Duration, Instant};

use vyre_conform::device::Patient;
use vyre_conform::{Case, Outcome, Rules, check_against, run_reference};
use vyre_cpu::{CpuBackend, CpuOptions, CpuPath};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Math, MathOp, Node, Program};
use vyre_spec::codes;

/// Around one vector, one block of eight and several of them, on every path.
const SIZES: [u32; 13] = [1, 7, 16, 17, 63, 64, 65, 127, 128, 129, 250, 256, 700];

fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

fn agree(what: &str, case: &Case) {
    let expected = run_reference(case).expect("the reference runs it");
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        // Some of these kernels write an element from two workgroups, which come in order on one thread only.
        let mut options = CpuOptions::default();
        (options.path, options.threads) = (Some(path), NonZero::new(1));
        for streams_from in [None, Some(0)] {
            options.streams_from = streams_from;
            let backend = CpuBackend::with_options(&options).expect("a path that is here");
            let outcome = check_against(&backend, case, &expected, &Rules::exact());
            assert!(matches!(outcome, Outcome::Same), "{what} on {path}, {streams_from:?}: {outcome:?}");
        }
    }
}

fn var(name: &str) -> Expr {
    Expr::var(name)
}

/// A kernel of one line over `a` and `out` of the given lengths, in workgroups of 64.
fn line(a: u32, out: u32, groups: u32, body: Vec<Node>) -> Case {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read("limits", 1, DataType::U32),
            BufferDecl::output("out", 2, DataType::U32).with_count(out),
        ],
        [64, 1, 1],
        body,
    );
    let limits = [out / 2, out, 0, 3].into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some([groups, 1, 1]), ..Case::new(program, vec![words(a), limits]) }
}

#[test]
fn buffers_that_end_inside_a_block() {
    let i = || Expr::global_id(0);
    for a in SIZES {
        for out in [a, a + 1, a.div_ceil(2), 700] {
            let groups = a.max(out).div_ceil(64) + 1;
            let near = vec![Node::store("out", i(), Expr::load("a", i()) + 1u32)];
            agree(&format!("{a} in, {out} out"), &line(a, out, groups, near));
            // Before the first and behind the last element.
            let shifted = vec![
                Node::let_bind("left", Expr::load("a", i() - 3u32)),
                Node::let_bind("right", Expr::load("a", i() + 5u32)),
                Node::store("out", i() + 2u32, var("left") ^ var("right")),
            ];
            agree(&format!("{a} shifted, {out} out"), &line(a, out, groups, shifted));
            let apart = vec![Node::store("out", i() * 2u32 + 1u32, Expr::load("a", i() * 3u32) + 1u32)];
            agree(&format!("{a} apart, {out} out"), &line(a, out, groups, apart));
            let signed = vec![
                Node::let_bind("at", i().cast(DataType::I32) - Expr::i32(20)),
                Node::store("out", i(), Expr::load("a", var("at").cast(DataType::U32))),
            ];
            agree(&format!("{a} signed, {out} out"), &line(a, out, groups, signed));
        }
    }
}

#[test]
fn limits_that_a_kernel_sets() {
    let i = || Expr::global_id(0);
    let limit = |at: u32| Expr::load("limits", at);
    for n in SIZES {
        let groups = n.div_ceil(64) + 2;
        let work = |to: Expr| Node::store("out", i(), Expr::load("a", i()) * 3u32 + to);
        let bodies = [
            ("an early return", vec![Node::if_then(i().ge(limit(0)), vec![Node::Return(None)]), work(i())]),
            ("a late return", vec![Node::if_then(limit(1).le(i()), vec![Node::Return(None)]), work(i())]),
            ("nobody", vec![Node::if_then(i().lt(limit(2)), vec![work(i())])]),
            ("inside", vec![Node::if_then(i().gt(limit(3)) & i().lt(limit(0)), vec![work(i())])]),
            ("all but the first", vec![Node::if_then(i().ne(0u32), vec![work(i())])]),
            ("outside", vec![Node::if_then(i().ge(limit(0)), vec![work(i())]), Node::store("out", i() / 2u32, i())]),
            (
                "a loop after a return",
                vec![
                    Node::if_then(i().ge(limit(0)), vec![Node::Return(None)]),
                    Node::var("sum", DataType::U32, 0u32),
                    Node::for_range(
                        "k",
                        0u32,
                        i() % 5u32,
                        vec![Node::assign("sum", var("sum") + Expr::load("a", i() + var("k")))],
                    ),
                    Node::store("out", i(), var("sum")),
                ],
            ),
        ];
        for (what, body) in bodies {
            agree(&format!("{what}, {n}"), &line(n + 3, n, groups, body));
        }
    }
}

/// Limits with a sign, of which some are less than nothing, and one that is loaded behind a condition from a buffer of known size.
#[test]
fn limits_that_may_be_negative() {
    let i = || Expr::global_id(0).cast(DataType::I32);
    let limit = |at: u32| Expr::load("limits", at);
    for n in SIZES {
        let (most, half) = (n as i32, n as i32 / 2);
        for limits in [[most, half, 0], [half, -1, 7], [-1, most, -20], [i32::MAX, i32::MIN, 1], [most - 1, 3, half]] {
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::read("limits", 1, DataType::I32).with_count(3),
                    BufferDecl::output("out", 2, DataType::U32).with_count(n),
                ],
                [64, 1, 1],
                vec![
                    Node::if_then(i().ge(limit(0)), vec![Node::Return(None)]),
                    Node::if_else(
                        i().gt(limit(1) - Expr::i32(1)) & limit(2).le(i()),
                        vec![Node::store("out", i().cast(DataType::U32), Expr::load("a", Expr::global_id(0)) * 3u32)],
                        vec![Node::store("out", i().cast(DataType::U32), 9u32)],
                    ),
                ],
            );
            let limits_bytes = limits.into_iter().flat_map(i32::to_le_bytes).collect();
            let case = Case::new(program, vec![words(n + 3), limits_bytes]);
            agree(&format!("{limits:?}, {n}"), &Case { grid: Some([n.div_ceil(64) + 2, 1, 1]), ..case });
        }
    }
}

/// What is loaded behind a condition may be inside only because of it, so it is not loaded before.
#[test]
fn a_limit_that_is_loaded_behind_a_condition() {
    let (i, row) = (|| Expr::global_id(0), || Expr::workgroup_id(1));
    let sum = (0..8u32).fold(i(), |sum, by| (sum * 5u32) ^ Expr::load("a", i() + by));
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read("limits", 1, DataType::U32),
            BufferDecl::output("out", 2, DataType::U32).with_count(300),
        ],
        [64, 1, 1],
        vec![
            // Very far away in all but the first row.
            Node::let_bind("at", row() << 28u32),
            Node::if_then(
                var("at").lt(Expr::len("limits")),
                vec![
                    Node::let_bind("limit", Expr::load("limits", var("at"))),
                    Node::if_then(i().lt(var("limit")), vec![Node::store("out", i(), sum)]),
                ],
            ),
        ],
    );
    let inputs = vec![words(300), [290u32, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()];
    agree("a limit behind a return", &Case { grid: Some([5, 3, 1]), ..Case::new(program, inputs) });
}

/// Five points of a plane, in blocks of several rows and one.
#[test]
fn the_inside_of_a_plane() {
    for (width, height, size) in
        [(200u32, 9u32, [32, 8, 1]), (130, 16, [64, 4, 1]), (33, 5, [16, 1, 1]), (5, 40, [8, 8, 1])]
    {
        let at = |x: Expr, y: Expr| Expr::load("a", y * width + x);
        let (x, y) = (|| var("x"), || var("y"));
        let inside = x().gt(0u32) & x().lt(width - 1) & y().gt(0u32) & y().lt(height - 1);
        let sum = at(x(), y()) * 5u32 + at(x() - 1u32, y()) + at(x() + 1u32, y()) + at(x(), y() - 1u32);
        let sum = sum + at(x(), y() + 1u32);
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(width * height - 7),
            ],
            size,
            vec![
                Node::let_bind("x", Expr::global_id(0)),
                Node::let_bind("y", Expr::global_id(1)),
                Node::if_then(inside, vec![Node::store("out", y() * width + x(), sum)]),
            ],
        );
        let grid = Some([width.div_ceil(size[0]), height.div_ceil(size[1]), 1]);
        for missing in [0, 1, 50, width * 2] {
            let case = Case { grid, ..Case::new(program.clone(), vec![words(width * height - missing)]) };
            agree(&format!("{width} x {height} without {missing}"), &case);
        }
    }
}

/// Sums of a workgroup, the last of which is not full.
#[test]
fn a_workgroup_at_the_edge() {
    let lid = || Expr::local_id(0);
    for (count, size) in
        [(1u32, 256u32), (255, 256), (256, 256), (257, 256), (1000, 256), (1024, 256), (500, 96), (90, 40)]
    {
        let half = size.next_power_of_two() / 2;
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(count.div_ceil(size)),
                BufferDecl::workgroup("part", 0, DataType::U32).with_count(half * 2),
            ],
            [size, 1, 1],
            vec![
                Node::store("part", lid(), Expr::load("a", Expr::global_id(0))),
                Node::barrier(),
                Node::var("half", DataType::U32, half),
                Node::forever(vec![
                    Node::if_then(var("half").eq(0u32), vec![Node::Break]),
                    Node::if_then(
                        lid().lt(var("half")),
                        vec![Node::store(
                            "part",
                            lid(),
                            Expr::load("part", lid()) + Expr::load("part", lid() + var("half")),
                        )],
                    ),
                    Node::barrier(),
                    Node::assign("half", var("half") / 2u32),
                ]),
                Node::if_then(
                    lid().eq(0u32),
                    vec![Node::store("out", Expr::workgroup_id(0), Expr::load("part", 0u32))],
                ),
            ],
        );
        let case = Case { grid: Some([count.div_ceil(size) + 1, 1, 1]), ..Case::new(program, vec![words(count)]) };
        agree(&format!("{count} in workgroups of {size}"), &case);
    }
}

/// Loops that would take hours end soon after their time is up: counted ones in each other, of lengths that are known, given or
/// different in each lane, with and without barriers.
#[test]
fn long_counted_loops_end_when_their_time_is_up() {
    let many = 1_000_000u32;
    let given = || Expr::load("a", 0u32) | 0x000f_0000u32;
    let own = || given() + (Expr::global_id(0) & 7u32);
    let round = || Node::assign("x", (var("x") * 5u32) ^ (var("k") + Expr::load("a", var("x") & 63u32)));
    let nest = |to: Expr, inner: Vec<Node>| {
        let inner = Node::for_range("k", 0u32, to.clone(), inner);
        Node::for_range("j", 0u32, to.clone(), vec![Node::for_range("i", 0u32, to, vec![inner])])
    };
    let share = || vec![round(), Node::store("s", Expr::local_id(0), var("x")), Node::barrier()];
    for (what, work) in [
        ("known", nest(Expr::u32(many), vec![round()])),
        ("given", nest(given(), vec![round()])),
        ("own", nest(own(), vec![round()])),
        ("with barriers", nest(Expr::u32(many), share())),
    ] {
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(256),
                BufferDecl::workgroup("s", 0, DataType::U32).with_count(64),
            ],
            [64, 1, 1],
            vec![
                Node::var("x", DataType::U32, Expr::global_id(0)),
                work,
                Node::store("out", Expr::global_id(0), var("x")),
            ],
        );
        let mut config = DispatchConfig::default();
        config.timeout = Some(Duration::from_millis(50));
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
            let started = Instant::now();
            let error =
                CpuBackend::with_path(path).expect("it is here").dispatch(&program, &[words(64)], &config).unwrap_err();
            assert_eq!(error.code(), codes::backend::TIMEOUT.id, "{what} on {path}: {error}");
            assert!(started.elapsed() < Duration::from_secs(20), "{what} on {path} took {:?}", started.elapsed());
        }
    }
}

/// The counter is right after every stretch of rounds between two looks, up to the ends of its type.
#[test]
fn long_counted_loops_that_can_be_ended_count_right() {
    let unsigned = [(0, 20_000, 1), (5, 60_001, 3), (u32::MAX - 20_000, u32::MAX, 1), (u32::MAX - 90_000, u32::MAX, 7)];
    let signed = [(-10_000, 10_001, 1), (i32::MAX - 50_000, i32::MAX, 3), (i32::MIN, i32::MIN + 20_000, 1)];
    let (limit, own) = (40_000u32, 20_000u32);
    let round = |var: &str| Node::assign("x", (Expr::var("x") * 3u32) ^ Expr::var(var).cast(DataType::U32));
    let count = |from: Expr, to: Expr, step: u32| Node::For { var: "k".into(), from, to, step, body: vec![round("k")] };
    let mut body = vec![Node::var("x", DataType::U32, Expr::global_id(0))];
    body.extend(unsigned.map(|(from, to, step)| count(Expr::u32(from), Expr::u32(to), step)));
    body.extend(signed.map(|(from, to, step)| count(Expr::i32(from), Expr::i32(to), step)));
    // One that is left early, and one whose length differs from lane to lane.
    let leave = Node::if_then(var("k").gt(Expr::load("limits", 1u32) * 2000u32), vec![Node::Break]);
    body.push(Node::for_range("k", 0u32, 50_000u32, vec![leave, round("k")]));
    body.push(count(Expr::u32(0), Expr::u32(own) + Expr::global_id(0), 1));
    body.push(Node::store("out", Expr::global_id(0), var("x")));
    let case = line(4, 20, 1, body);

    let mix = |x: u32, k: u32| x.wrapping_mul(3) ^ k;
    let expected: Vec<u8> = (0..20u32)
        .flat_map(|lane| {
            let mut x = lane;
            for (from, to, step) in unsigned {
                x = (from..to).step_by(step as usize).fold(x, mix);
            }
            for (from, to, step) in signed {
                x = (from..to).step_by(step as usize).fold(x, |x, k| mix(x, k as u32));
            }
            x = (0..=limit).fold(x, mix);
            (0..own + lane).fold(x, mix).to_le_bytes()
        })
        .collect();
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = CpuBackend::with_path(path).expect("it is here");
        let outcome = check_against(&Patient(&backend), &case, std::slice::from_ref(&expected), &Rules::exact());
        assert!(matches!(outcome, Outcome::Same), "{path}: {outcome:?}");
    }
}

/// `inverseSqrt` is correctly rounded: for every significand with an even and an odd exponent, and for all exponents, signs and
/// special values. In f64 it is rounded twice, and to f32 still correctly, because no value lies that close to the middle of two.
#[test]
fn every_inverse_square_root_is_correctly_rounded() {
    let count = 1u32 << 24;
    let i = || Expr::global_id(0);
    for (what, bits) in
        [("significands", i() + 0x3f80_0000u32), ("exponents", (i() << 8u32) | ((i() * 0x9e37_79b9u32) >> 24u32))]
    {
        let program = Program::wrapped(
            vec![BufferDecl::output("out", 0, DataType::F32).with_count(count)],
            [256, 1, 1],
            vec![Node::store("out", i(), Expr::math(MathOp::InverseSqrt, vec![bits.bit_cast(DataType::F32)]))],
        );
        let of = |i: u32| match what {
            "significands" => f32::from_bits(i + 0x3f80_0000),
            _ => f32::from_bits((i << 8) | (i.wrapping_mul(0x9e37_79b9) >> 24)),
        };
        // The interpreter would take minutes.
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_here() && *path != CpuPath::Interpret) {
            let results = CpuBackend::with_path(path)
                .expect("it is here")
                .dispatch(&program, &[], &DispatchConfig::default())
                .expect("runs");
            for (i, word) in (0..count).zip(results[0].chunks_exact(4)) {
                let actual = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                let expected = (1.0 / f64::from(of(i)).sqrt()) as f32;
                let same = actual.to_bits() == expected.to_bits() || (actual.is_nan() && expected.is_nan());
                assert!(same, "{what} on {path}: inverseSqrt({:e}) is {actual:e}, not {expected:e}", of(i));
            }
        }
    }
}

/// Words of interest to a division by `d`: the limits, and multiples of it and what is next to them, with a sign and without.
fn hostile(d: u32, count: usize) -> Vec<u32> {
    let mut found = vec![0, 1, 2, i32::MAX as u32, 1 << 31, (1 << 31) + 1, u32::MAX - 1, u32::MAX, d, d.wrapping_neg()];
    let mut random = u64::from(d);
    for round in 0.. {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        for (by, most) in [(d, u32::MAX), ((d as i32).unsigned_abs(), 1 << 31)] {
            let quotients = most / by.max(1);
            let quotient =
                if round < 2 { quotients - round.min(quotients) } else { (random >> 33) as u32 % quotients.max(1) };
            let whole = quotient.wrapping_mul(by);
            for near in [whole.wrapping_sub(1), whole, whole.wrapping_add(1)] {
                found.extend([near, near.wrapping_neg()]);
            }
        }
        if found.len() >= count {
            break;
        }
    }
    found.truncate(count);
    found
}

const DIVISORS: [u32; 24] = [
    0,
    1,
    2,
    3,
    7,
    10,
    640,
    1000,
    65535,
    65536,
    65537,
    46341,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
    -3i32 as u32,
    -7i32 as u32,
    -10i32 as u32,
    -640i32 as u32,
    -65535i32 as u32,
    -65536i32 as u32,
];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Dividends from `a`, divisors from `d`, and as many results as the body has, one array after the other.
fn quotients(a: &[u32], d: &[u32], results: &[Expr], mut body: Vec<Node>) -> Case {
    let n = a.len() as u32;
    let program = |body| {
        Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::read("d", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(n * results.len() as u32),
            ],
            [64, 1, 1],
            body,
        )
    };
    for (place, result) in results.iter().enumerate() {
        body.push(Node::store("out", Expr::global_id(0) + n * place as u32, result.clone().cast(DataType::U32)));
    }
    Case { grid: Some([n / 64, 1, 1]), ..Case::new(program(body), vec![bytes(a), bytes(d)]) }
}

/// Divisors that are the same for all lanes of a vector, different ones for each workgroup.
#[test]
fn quotients_by_a_number_of_the_workgroup() {
    let mut divisors = DIVISORS.to_vec();
    let mut random = 1u64;
    for bits in 0..232 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        divisors.push((random >> 32) as u32 >> (bits % 31));
    }
    let dividends: Vec<u32> = divisors.iter().flat_map(|&d| hostile(d, 64)).collect();
    let signed = |name: &str| var(name).cast(DataType::I32);
    let body = vec![
        Node::let_bind("x", Expr::load("a", Expr::global_id(0))),
        Node::let_bind("y", Expr::load("d", Expr::workgroup_id(0))),
    ];
    // The quotient for itself, the remainder for itself, both in either order.
    let (quotient, rest) = (|| var("x") / var("y"), || var("x") % var("y"));
    let (signed_quotient, signed_rest) = (|| signed("x") / signed("y"), || signed("x") % signed("y"));
    for results in [
        vec![quotient()],
        vec![rest()],
        vec![signed_quotient()],
        vec![signed_rest()],
        vec![quotient(), rest(), signed_quotient(), signed_rest()],
        vec![signed_rest(), rest(), quotient(), signed_quotient()],
        // Dividends that are known to be below 2³¹.
        vec![(var("x") >> 1u32) / var("y"), (var("x") >> 1u32) % var("y")],
    ] {
        agree(&format!("{results:?}"), &quotients(&dividends, &divisors, &results, body.clone()));
    }
}

/// Divisors that are the same for the whole launch: of places, in loops whose variables are divided, and behind conditions.
#[test]
fn quotients_by_a_number_of_the_launch() {
    let i = || Expr::global_id(0);
    for d in DIVISORS {
        let dividends = hostile(d, 256);
        let signed = |e: Expr| e.cast(DataType::I32);
        let body = vec![
            Node::let_bind("y", Expr::load("d", 0u32)),
            Node::let_bind("x", Expr::load("a", i())),
            Node::var("rest", DataType::U32, var("x")),
            Node::var("sum", DataType::I32, Expr::i32(0)),
            Node::for_range(
                "k",
                0u32,
                Expr::load("d", 1u32),
                vec![
                    Node::assign("sum", var("sum") * Expr::i32(31) + signed(var("rest")) % signed(var("y"))),
                    Node::assign("rest", var("rest") / var("y") + var("k")),
                    Node::assign("sum", var("sum") + signed(var("rest")) / signed(var("y"))),
                    Node::if_then(
                        var("rest").gt(var("x") % var("y")),
                        vec![Node::assign("rest", var("rest") - var("rest") % var("y"))],
                    ),
                ],
            ),
        ];
        let results = [
            i() / var("y"),
            i() % var("y"),
            signed(i() * 3u32 - 100u32) / signed(var("y")),
            signed(i() * 3u32 - 100u32) % signed(var("y")),
            var("rest"),
            var("sum"),
            var("x") / var("y"),
        ];
        agree(&format!("by {d}"), &quotients(&dividends, &[d, 5], &results, body));
    }
}

/// Roots and reciprocals of fast arithmetic: near for all exponents and many significands, and right where there is nothing to round.
#[test]
fn fast_roots_and_reciprocals_are_near_and_right_at_the_ends() {
    let i = || Expr::global_id(0);
    let ends = [0.0f32, -0.0, f32::INFINITY, -1.0, f32::NAN, 1e-45, 1e-40, f32::MIN_POSITIVE, f32::MAX, 1.0, 4.0];
    let count = 1 << 16;
    let spread = (0..count as u32).map(|n| f32::from_bits(n.wrapping_mul(0x0000_9e37) & 0x7fff_ffff));
    let numbers: Vec<f32> = ends.into_iter().chain(spread.filter(|x| x.is_normal() && *x < 1e38)).collect();
    type Function = (&'static str, fn(Expr) -> Expr, fn(f64) -> f64, f64);
    let functions: [Function; 3] = [
        ("sqrt", |x| Expr::math(MathOp::Sqrt, vec![x]), f64::sqrt, 2.0),
        ("inverseSqrt", |x| Expr::math(MathOp::InverseSqrt, vec![x]), |x| 1.0 / x.sqrt(), 2.0),
        ("reciprocal", |x| Expr::f32(1.0) / x, |x| 1.0 / x, 2.5),
    ];
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let mut options = CpuOptions::default();
        options.path = Some(path);
        let backend = CpuBackend::with_options(&options).expect("a path that is here");
        for (what, function, exact, units) in functions {
            let program = Program::wrapped(
                vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
                [64, 1, 1],
                vec![Node::store("out", i(), function(Expr::load("a", i())))],
            )
            .with_math(Math::Fast);
            let input: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let results = backend.dispatch(&program, &[input], &DispatchConfig::default()).expect("runs");
            for (x, bytes) in numbers.iter().zip(results[0].chunks(4)) {
                let actual = f32::from_le_bytes(bytes.try_into().expect("four"));
                let expected = exact((*x).into());
                let rounded = expected as f32;
                let unit = f64::from(f32::from_bits(rounded.abs().to_bits() + 1)) - f64::from(rounded.abs());
                let near = (f64::from(actual) - expected).abs() <= units * unit || rounded.abs() < 1.5e-38;
                // Subnormal numbers may be taken for zero.
                let tiny = x.abs() < f32::MIN_POSITIVE && *x != 0.0;
                let same = actual == rounded || (actual.is_nan() && rounded.is_nan()) || (tiny && !actual.is_nan());
                assert!(near || same, "{path}: {what}({x:e}) is {actual:e}, not {expected:e}");
            }
        }
    }
}
