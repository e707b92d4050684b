use crate::ir::{BinaryOp, BufferDecl, DataType, Expr, MathOp, Node, Program};
use crate::kernel::{Interpret, Options, Passes, Unrolling, interpret, lower};

fn text(buffers: Vec<BufferDecl>, size: u32, body: Vec<Node>) -> String {
    let program = Program::wrapped(buffers, [size, 1, 1], body);
    let valid = program.validate().expect("valid");
    lower(&valid, &Options::default()).expect("lowers").to_string()
}

/// Accesses that still have a guard.
fn guards(text: &str) -> usize {
    text.lines().filter(|line| (line.contains("load ") || line.contains("store ")) && line.contains(" if %")).count()
}

fn data() -> Vec<BufferDecl> {
    vec![BufferDecl::read_write("a", 0, DataType::F32)]
}

fn shared() -> Vec<BufferDecl> {
    vec![
        BufferDecl::output("out", 0, DataType::F32).with_count(64),
        BufferDecl::workgroup("s", 0, DataType::F32).with_count(64),
    ]
}

fn i() -> Expr {
    Expr::global_id(0)
}

#[test]
fn a_test_against_the_length_replaces_the_guards() {
    let change = Node::store("a", i(), Expr::load("a", i()) * Expr::f32(2.0));
    assert_eq!(guards(&text(data(), 64, vec![change.clone()])), 2);
    let inside = text(data(), 64, vec![Node::if_then(i().lt(Expr::len("a")), vec![change.clone()])]);
    assert_eq!(guards(&inside), 0, "{inside}");
    let early = text(data(), 64, vec![Node::if_then(i().ge(Expr::len("a")), vec![Node::Return(None)]), change]);
    assert_eq!(guards(&early), 0, "{early}");
}

#[test]
fn a_loop_up_to_the_length_needs_no_guards() {
    let sum = |var: &str| Node::assign("x", Expr::var("x") + Expr::load("a", Expr::var(var)));
    let finish = Node::store("a", Expr::u32(0), Expr::var("x"));
    let begin = Node::var("x", DataType::F32, Expr::f32(0.0));
    let counted = text(
        data(),
        1,
        vec![begin.clone(), Node::for_range("k", Expr::u32(0), Expr::len("a"), vec![sum("k")]), finish.clone()],
    );
    assert_eq!(guards(&counted), 1, "only the store at the end:\n{counted}");
    // As a WGSL `for` is imported.
    let general = Node::Loop {
        body: vec![Node::if_else(Expr::var("k").lt(Expr::len("a")), vec![], vec![Node::Break]), sum("k")],
        continuing: vec![Node::assign("k", Expr::var("k") + Expr::u32(1))],
        break_if: None,
    };
    let general = text(data(), 1, vec![begin, Node::var("k", DataType::U32, Expr::u32(0)), general, finish]);
    assert!(general.contains("for %"), "{general}");
    assert_eq!(guards(&general), 1, "{general}");
}

#[test]
fn masks_remainders_minima_and_local_ids_stay_in_their_arrays() {
    let n = Expr::u32(64);
    for index in [
        i() & Expr::u32(63),
        i() % n.clone(),
        i().min(Expr::u32(63)),
        Expr::local_id(0),
        Expr::local_id(0) >> Expr::u32(1),
        Expr::local_id(0) / Expr::u32(2) + Expr::u32(3),
    ] {
        let text = text(shared(), 64, vec![Node::store("s", index.clone(), Expr::load("s", index.clone()))]);
        assert_eq!(guards(&text), 0, "{index:?}\n{text}");
    }
    let outside = text(shared(), 65, vec![Node::store("s", Expr::local_id(0), Expr::f32(1.0))]);
    assert_eq!(guards(&outside), 1, "{outside}");
}

#[test]
fn a_tree_reduction_needs_no_guards() {
    let l = || Expr::local_id(0);
    let step = Node::if_then(
        l().lt(Expr::var("n")),
        vec![Node::store("s", l(), Expr::load("s", l()) + Expr::load("s", l() + Expr::var("n")))],
    );
    let reduce = Node::Loop {
        body: vec![Node::if_then(Expr::var("n").eq(Expr::u32(0)), vec![Node::Break]), step, Node::barrier()],
        continuing: vec![Node::assign("n", Expr::var("n") >> Expr::u32(1))],
        break_if: None,
    };
    let text = text(shared(), 64, vec![Node::var("n", DataType::U32, Expr::u32(32)), reduce]);
    assert_eq!(guards(&text), 0, "{text}");
}

#[test]
fn short_loops_are_unrolled_and_invariants_leave_loops() {
    let add = |index: Expr| Node::assign("x", Expr::var("x") + Expr::load("a", index));
    let around = |to: u32, node: Node| {
        let body = Node::for_range("k", Expr::u32(0), Expr::u32(to), vec![node]);
        let begin = Node::var("x", DataType::F32, Expr::f32(0.0));
        vec![begin, body, Node::store("a", i(), Expr::var("x"))]
    };
    let short = text(data(), 64, around(4, add(Expr::var("k"))));
    assert!(!short.contains("for %") && short.matches("load f32").count() == 4, "{short}");
    let long = text(data(), 64, around(400, add(i() * Expr::u32(3))));
    let before = long.split("for %").next().expect("text");
    assert!(before.contains("load f32"), "{long}");
}

/// A loop that is tested at its start and does not count.
#[test]
fn loads_leave_loops_that_are_tested_at_their_start() {
    let test = Node::if_then(Expr::var("k").gt(Expr::u32(1000)), vec![Node::Break]);
    let load = Node::assign("x", Expr::var("x") * Expr::load("a", i() & Expr::u32(7)));
    let next = Node::assign("k", Expr::var("k") * Expr::u32(3) + Expr::u32(1));
    let body = vec![
        Node::var("x", DataType::F32, Expr::f32(1.0)),
        Node::var("k", DataType::U32, Expr::len("a")),
        Node::Loop { body: vec![test, load], continuing: vec![next], break_if: None },
        Node::store("out", i(), Expr::var("x")),
    ];
    let buffers = vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)];
    let text = text(buffers, 64, body);
    assert!(text.split("loop").next().is_some_and(|before| before.contains("load f32")), "{text}");
}

#[test]
fn uniforms_leave_loops_even_from_branches() {
    let branch = |kind: fn(&'static str, u32, DataType) -> BufferDecl| {
        let near = Expr::var("k").gt(Expr::load("a", Expr::var("k")));
        let add = Node::store("a", Expr::var("k"), Expr::var("k") * Expr::load("limit", Expr::u32(0)));
        let body = vec![Node::for_range("k", Expr::u32(0), Expr::len("a"), vec![Node::if_then(near, vec![add])])];
        text(vec![kind("limit", 0, DataType::U32), BufferDecl::read_write("a", 1, DataType::U32)], 64, body)
    };
    let before_loop = |text: &str| text.split("for %").next().is_some_and(|before| before.contains("load u32"));
    let uniform = branch(BufferDecl::uniform);
    assert!(before_loop(&uniform), "{uniform}");
    // What may lie far away is loaded only where it is wanted.
    let storage = branch(BufferDecl::read);
    assert!(!before_loop(&storage), "{storage}");
}

#[test]
fn neighbours_in_workgroup_memory_differ_by_an_offset() {
    let l = || Expr::local_id(0);
    let sum = Expr::load("s", l()) + Expr::load("s", l() + Expr::u32(1)) + Expr::load("s", l() + Expr::u32(2));
    let text = text(shared(), 32, vec![Node::store("out", l(), sum)]);
    assert!(text.contains("*4 + 4]") && text.contains("*4 + 8]"), "{text}");
    assert_eq!(guards(&text), 0, "{text}");
}

#[test]
fn constants_within_sums_of_signed_numbers_become_offsets() {
    let l = || Expr::local_id(0).cast(DataType::I32);
    let at = |place: i32| Expr::load("s", (l() + Expr::i32(place)) + (l() & Expr::i32(7)));
    let sum = at(3) + at(4);
    let text = text(shared(), 32, vec![Node::store("out", Expr::local_id(0), sum)]);
    let index = |offset: &str| {
        let line = text.lines().find(|line| line.contains("load f32 shared") && line.ends_with(offset));
        line.and_then(|line| line.split(['[', '*']).nth(1)).map(str::to_owned)
    };
    assert!(index("*4 + 12]").is_some() && index("*4 + 12]") == index("*4 + 16]"), "{text}");
    assert_eq!(guards(&text), 0, "{text}");
    // What may be negative is no index and an offset.
    let below = Expr::load("s", (l() - Expr::i32(9)) + Expr::i32(3));
    let text = self::text(shared(), 32, vec![Node::store("out", Expr::local_id(0), below)]);
    assert!(!text.contains("*4 + 12]"), "{text}");
}

#[test]
fn the_same_value_is_computed_once() {
    let square = Expr::load("a", i()) * Expr::load("a", i());
    let text = text(data(), 64, vec![Node::store("a", i(), square.clone() + square)]);
    assert_eq!(text.matches("load f32").count(), 1, "{text}");
    assert_eq!(text.matches("mul ").count(), 1, "{text}");
}

/// Words of all sizes.
fn samples() -> Vec<u8> {
    let words = (0..200u32).map(|n| n.wrapping_mul(0x9e37_79b9)).chain([
        0,
        1,
        2,
        6,
        7,
        8,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        u32::MAX - 1,
        u32::MAX,
    ]);
    words.flat_map(|n| n.to_le_bytes()).collect()
}

/// What a program makes of an input without the optimiser and with it, and its kernel.
fn with_and_without_passes(program: &Program, input: &[u8]) -> (Vec<u8>, Vec<u8>, String) {
    let valid = program.validate().expect("valid");
    let run = |passes| {
        let kernel = lower(&valid, &Options { passes, ..Options::default() }).expect("lowers");
        let mut buffers = [input.to_vec(), vec![0; input.len()]];
        let how = Interpret { grid: [4, 1, 1], subgroup_size: 32, budget: u64::MAX, noise: None };
        interpret(&kernel, &mut buffers, &how).expect("runs");
        (buffers[1].clone(), kernel.to_string())
    };
    let (expected, _) = run(Passes::none());
    let (actual, kernel) = run(Passes::all());
    (expected, actual, kernel)
}

#[test]
fn places_of_bytes_in_words_are_sums_of_words_and_of_bytes() {
    let input = samples();
    let word = || Expr::load("in", i());
    let at = || word() * Expr::u32(4) + ((i() & Expr::u32(7)) + Expr::u32(5));
    for (what, value) in [
        ("word", at() / Expr::u32(4)),
        ("byte", at() % Expr::u32(4)),
        ("far", (word() * Expr::u32(4) + Expr::u32(u32::MAX)) / Expr::u32(4)),
    ] {
        let buffers = vec![BufferDecl::read("in", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32)];
        let program = Program::wrapped(buffers, [64, 1, 1], vec![Node::store("out", i(), value)]);
        let (expected, actual, kernel) = with_and_without_passes(&program, &input);
        assert!(actual == expected, "{what}\n{kernel}");
        let loads = kernel.matches("load u32 in").count();
        assert_eq!(loads, usize::from(what != "byte"), "the low bits are not those of the word:\n{kernel}");
    }
}

#[test]
fn divisions_by_constants_give_the_quotients() {
    let input = samples();
    let divisors =
        [1u32, 2, 3, 5, 6, 7, 9, 10, 25, 64, 100, 641, 1 << 20, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX];
    for divisor in divisors {
        for (signed, op) in
            [(false, BinaryOp::Div), (false, BinaryOp::Rem), (true, BinaryOp::Div), (true, BinaryOp::Rem)]
        {
            let (ty, constant) =
                if signed { (DataType::I32, Expr::i32(divisor as i32)) } else { (DataType::U32, Expr::u32(divisor)) };
            let program = Program::wrapped(
                vec![BufferDecl::read("in", 0, ty.clone()), BufferDecl::output("out", 1, ty)],
                [64, 1, 1],
                vec![Node::store("out", i(), Expr::binary(op, Expr::load("in", i()), constant))],
            );
            let (expected, actual, kernel) = with_and_without_passes(&program, &input);
            assert!(actual == expected, "{op:?} by {divisor} (signed: {signed})\n{kernel}");
            assert!(signed || !kernel.contains("= div ") && !kernel.contains("= rem "), "{kernel}");
        }
    }
}

#[test]
fn only_kernels_that_ask_for_global_ids_alone_may_be_resized() {
    let resizable =
        |index: Expr, size| text(data(), size, vec![Node::store("a", index, Expr::f32(1.0))]).contains("resizable");
    assert!(resizable(i(), 64));
    assert!(!resizable(Expr::local_id(0), 64));
    // Folded to zero here, but another size would show.
    assert!(!resizable(Expr::local_id(0), 1));
    assert!(!resizable(Expr::workgroup_id(0), 64));
}

#[test]
fn bit_casts_of_f16_stay_two() {
    let half = DataType::vector(DataType::F16, 2);
    let buffers = vec![BufferDecl::read("h", 0, half), BufferDecl::output("out", 1, DataType::I32)];
    // verify, which runs at the end of the passes, refuses a cast of f16 to i32.
    let kernel = text(buffers, 64, vec![Node::store("out", i(), Expr::load("h", i()).bit_cast(DataType::I32))]);
    assert!(kernel.contains("bits"), "{kernel}");
    let one = vec![BufferDecl::read("h", 0, DataType::F16), BufferDecl::output("out", 1, DataType::F32)];
    let pair =
        Expr::construct(DataType::vector(DataType::F16, 2), vec![Expr::load("h", i()), Expr::f16(half::f16::ZERO)]);
    text(one, 64, vec![Node::store("out", i(), pair.bit_cast(DataType::F32))]);
}

/// `for i in 0..rows { for j in from..columns { step } }`, over a private array of arrays.
fn grid_loops(rows: u32, columns: u32, from: Expr, step: Vec<Node>) -> String {
    use crate::ir::{Access, Count, TypeDef, TypeId};
    let row = DataType::Handle(TypeId(0));
    let types = vec![
        TypeDef::Array { element: DataType::F32, count: Count::Fixed(columns), stride: 4 },
        TypeDef::Array { element: row, count: Count::Fixed(rows), stride: 4 * columns },
    ];
    let inner = Node::for_range("j", from, Expr::u32(columns), step);
    let at = |i: Expr, j: Expr| vec![Access::Index(i), Access::Index(j)];
    let read = Expr::Part { value: Box::new(Expr::var("g")), path: at(Expr::u32(rows - 1), Expr::u32(columns - 1)) };
    let body = vec![
        Node::var_zero("g", DataType::Handle(TypeId(1))),
        Node::for_range(
            "r",
            Expr::u32(0),
            Expr::len("a"),
            vec![Node::for_range("i", Expr::u32(0), Expr::u32(rows), vec![inner])],
        ),
        Node::store("a", i(), read),
    ];
    let program = Program::wrapped(data(), [64, 1, 1], body).with_types(types);
    let valid = program.validate().expect("valid");
    lower(&valid, &Options { passes: Passes::all().without(Passes::UNROLL), ..Options::default() })
        .expect("lowers")
        .to_string()
}

fn add_to_grid(row: Expr, column: Expr) -> Node {
    use crate::ir::Access;
    let path = vec![Access::Index(row), Access::Index(column)];
    let old = Expr::Part { value: Box::new(Expr::var("g")), path: path.clone() };
    Node::Assign { name: "g".into(), path, value: old + Expr::load("a", Expr::var("j")) }
}

#[test]
fn private_arrays_in_loops_of_known_length_become_carried_values() {
    let (row, column) = (|| Expr::var("i"), || Expr::var("j"));
    let square = grid_loops(4, 4, Expr::u32(0), vec![add_to_grid(row(), column())]);
    assert!(!square.contains("local"), "{square}");
    assert_eq!(square.matches("for %").count(), 1, "{square}");
    let triangle = grid_loops(4, 4, row(), vec![add_to_grid(row(), Expr::u32(3) - column())]);
    assert!(!triangle.contains("local"), "{triangle}");
    let choice =
        vec![Node::if_then(Expr::load("a", Expr::u32(0)).lt(Expr::f32(0.5)), vec![add_to_grid(row(), column())])];
    let choice = grid_loops(4, 4, Expr::u32(0), choice);
    assert!(!choice.contains("local"), "{choice}");
}

#[test]
fn private_arrays_stay_memory_where_an_index_is_not_known_or_they_are_large() {
    let column = || Expr::var("j");
    let dynamic = grid_loops(4, 4, Expr::u32(0), vec![add_to_grid(Expr::local_id(0), column())]);
    assert!(dynamic.contains("local 0 g: 64 bytes"), "{dynamic}");
    assert_eq!(dynamic.matches("for %").count(), 3, "nothing is gained by unrolling:\n{dynamic}");
    let large = grid_loops(40, 40, Expr::u32(0), vec![add_to_grid(Expr::var("i"), column())]);
    assert!(large.contains("local 0 g: 6400 bytes"), "{large}");
    assert_eq!(large.matches("for %").count(), 3, "{large}");
}

/// Which of some words is the greatest is known when it runs only, and what it is, too, without a place.
#[test]
fn private_arrays_whose_greatest_word_is_looked_for_become_values() {
    let program = |first: &str| {
        let source = format!(
            "type 0 = array<u32, 9> stride 4;
            read a: u32[90] @0;
            read_write b: u32[20] @1;
            workgroup_size [5, 1, 1];
            domain [10, 1, 1];
            entry main {{
                var v: type<0>;
                var best: i32 = {first};
                for i in 0..9 {{
                    v[i] = a[i * 10 + global_id.x];
                    if v[i] > v[best] {{ best = cast<i32>(i); }}
                }}
                b[global_id.x] = v[best];
                b[global_id.x + 10] = cast<u32>(best);
            }}"
        );
        crate::text::parse(&source).expect("parses")
    };
    let outcome = |first: &str| {
        let program = program(first);
        let valid = program.validate().expect("valid");
        let run = |passes| {
            let options = Options { passes, array_values: 16, unrolling: Unrolling::FAR, ..Options::default() };
            let kernel = lower(&valid, &options).expect("lowers");
            let mut buffers = [samples(), vec![0; 80]];
            let how = Interpret { grid: [2, 1, 1], subgroup_size: 32, budget: u64::MAX, noise: None };
            interpret(&kernel, &mut buffers, &how).expect("runs");
            (buffers[1].clone(), kernel.to_string())
        };
        let ((plain, _), (optimised, text)) = (run(Passes::none()), run(Passes::all()));
        assert_eq!(plain, optimised, "{text}");
        text
    };
    let known = outcome("0i32");
    assert!(!known.contains("local 0"), "{known}");
    // One choice a round of the place, and one of what lies there.
    assert!(known.matches("= select").count() <= 2 * 9, "{known}");
    assert!(outcome("cast<i32>(a[0] % 9)").contains("local 0"));
}

/// Places that a table of constants gives are known where its own are.
#[test]
fn private_arrays_whose_places_stand_in_tables_become_values() {
    let text = |change: &str| {
        let source = format!(
            "type 0 = array<u32, 8> stride 4;
            read_write b: u32 @0;
            workgroup_size [64, 1, 1];
            entry main {{
                var order: type<0> = type<0>(0, 4, 2, 6, 1, 5, 3, 7);
                var v: type<0>;
                for i in 0..8 {{ v[i] = b[i * 64 + global_id.x]; }}
                {change}
                for i in 0..8 {{ b[i * 64 + global_id.x] = v[order[i]]; }}
            }}"
        );
        let valid = crate::text::parse(&source).expect("parses").validate().expect("valid");
        let passes = Passes::all().without(Passes::UNROLL);
        lower(&valid, &Options { passes, array_values: 8, ..Options::default() }).expect("lowers").to_string()
    };
    assert!(!text("").contains("local 0"), "{}", text(""));
    // A place that is only known when it runs.
    assert!(text("order[3] = b[0];").contains("local 0"));
}

/// Which memories must be cleared, of a workgroup of 64 with 64 words.
fn cleared(body: Vec<Node>) -> bool {
    let valid = Program::wrapped(shared(), [64, 1, 1], body).validate().expect("valid");
    lower(&valid, &Options::default()).expect("lowers").shared[0].cleared
}

#[test]
fn workgroup_memory_is_cleared_only_where_it_may_be_read_first() {
    let l = || Expr::local_id(0);
    let fill = |at: Expr| Node::store("s", at, Expr::f32(1.0));
    let read = || Node::store("out", l(), Expr::load("s", Expr::u32(63) - l()));
    assert!(!cleared(vec![fill(l()), Node::barrier(), read()]));
    assert!(!cleared(vec![fill(Expr::u32(63) - l()), Node::barrier(), read()]));
    // Nobody writes the last word, half of them write, others' words are read before they meet, or nobody writes at all.
    assert!(cleared(vec![fill(l() % Expr::u32(63)), Node::barrier(), read()]));
    assert!(cleared(vec![Node::if_then(l().lt(Expr::u32(32)), vec![fill(l())]), Node::barrier(), read()]));
    assert!(cleared(vec![fill(l()), read()]));
    assert!(cleared(vec![read()]));
    // In a loop that may have no rounds, and after it.
    let round = vec![fill(l()), Node::barrier(), read(), Node::barrier()];
    let rounds = Node::for_range("k", Expr::u32(0), Expr::workgroup_id(0), round);
    assert!(!cleared(vec![rounds.clone()]));
    assert!(cleared(vec![rounds, read()]));
    // Each invocation fills several.
    let step = Node::For {
        var: "k".into(),
        from: l() / Expr::u32(4),
        to: Expr::u32(64),
        step: 16,
        body: vec![fill(Expr::var("k"))],
    };
    assert!(!cleared(vec![step, Node::barrier(), read()]));
    // What was written by who reads it, whose rounds and ways are known from its place.
    let own = || Node::store("out", l(), Expr::load("s", l()));
    assert!(!cleared(vec![fill(l()), own()]));
    assert!(cleared(vec![Node::if_then(l().lt(Expr::u32(32)), vec![fill(l())]), own()]));
    let half = |less: bool, then: Vec<Node>| {
        let less_than = l().lt(Expr::u32(32));
        if less { Node::if_then(less_than, then) } else { Node::if_then(!less_than, then) }
    };
    let both = [half(true, vec![fill(l())]), half(false, vec![fill(Expr::u32(95) - l())])];
    assert!(!cleared([both.to_vec(), vec![Node::barrier(), read()]].concat()));
    let one = vec![half(true, vec![fill(l())]), half(false, vec![fill(l() - Expr::u32(1))]), Node::barrier(), read()];
    assert!(cleared(one));
    // Nobody reads what nobody writes.
    let few = vec![half(true, vec![fill(l())]), Node::barrier(), half(true, vec![read_of(Expr::u32(31) - l())])];
    assert!(!cleared(few));
    let more = vec![half(true, vec![fill(l())]), Node::barrier(), half(true, vec![read_of(Expr::u32(32) - l())])];
    assert!(cleared(more));
    // Both ways write the same place, or each its own: nobody knows who takes which.
    let way = || Expr::workgroup_id(0).lt(l());
    let two =
        |first: Expr, second: Expr| Node::If { cond: way(), then: vec![fill(first)], otherwise: vec![fill(second)] };
    assert!(!cleared(vec![two(l(), l()), Node::barrier(), read()]));
    assert!(cleared(vec![two(l(), Expr::u32(63) - l()), Node::barrier(), read()]));
    assert!(cleared(vec![Node::if_then(way(), vec![fill(l())]), own()]));
    // In rounds that some may leave.
    let stop = Node::if_then(way(), vec![Node::Break]);
    let until = |body: Vec<Node>| Node::for_range("k", Expr::u32(0), Expr::u32(3), body);
    assert!(cleared(vec![until(vec![stop, fill(l())]), Node::barrier(), read()]));
    assert!(!cleared(vec![until(vec![fill(l())]), Node::barrier(), read()]));
    assert!(cleared(vec![until(vec![fill(l() / Expr::u32(2) + Expr::var("k"))]), Node::barrier(), read()]));
}

fn read_of(at: Expr) -> Node {
    Node::store("out", Expr::local_id(0), Expr::load("s", at))
}

#[test]
fn halves_that_take_turns_need_not_be_cleared() {
    let source = |first: &str| {
        let body = format!(
            "let t = local_id.x;
            var from: u32 = 0;
            var to: u32 = 64;
            {first}
            barrier;
            for d in 0..6 {{
                if t >= (1 << d) {{ s[to + t] = s[from + t] + s[from + t - (1 << d)]; }} else {{ s[to + t] = s[from + t]; }}
                barrier;
                let other = from;
                from = to;
                to = other;
            }}
            out[global_id.x] = s[from + t];"
        );
        with_samples("workgroup s: u32[128] @2;", &body)
    };
    for (first, is_cleared) in [("s[t] = x + y;", false), ("if t > 0 { s[t] = x + y; }", true)] {
        let program = crate::text::parse(&source(first)).unwrap_or_else(|problem| panic!("{problem:?}"));
        let kernel = lower(&program.validate().expect("valid"), &Options::default()).expect("lowers");
        assert_eq!(kernel.shared[0].cleared, is_cleared, "{kernel}");
        let (expected, actual, kernel) = both(&source(first), Options::default());
        assert_eq!(expected, actual, "{kernel}");
        assert_eq!(kernel.matches("store u32 shared").count(), 2, "one store in each round:\n{kernel}");
    }
}

#[test]
fn what_both_ways_store_is_stored_after_them() {
    for (then, otherwise, stores) in [
        ("s[local_id.x] = x * 3;", "s[local_id.x] = y;", 1),
        ("s[local_id.x + 1 - 1] = x * 3;", "let z = y / x; s[local_id.x] = z + a[z];", 1),
        ("s[local_id.x ^ 5] = x;", "s[local_id.x ^ 5] = a[global_id.x ^ 5];", 1),
        // Elsewhere, or something comes in between.
        ("s[local_id.x] = x;", "s[local_id.x + 64] = y;", 2),
        ("s[local_id.x] = x; s[local_id.x + 64] = y;", "s[local_id.x] = x;", 3),
    ] {
        let body = format!(
            "if x > y {{ {then} }} else {{ {otherwise} }}
            barrier;
            out[global_id.x] = s[63 - local_id.x] + s[127 - local_id.x];"
        );
        let (expected, actual, kernel) = both(&with_samples("workgroup s: u32[128] @2;", &body), Options::default());
        assert_eq!(expected, actual, "{then} {otherwise}\n{kernel}");
        assert_eq!(kernel.matches("store u32 shared").count(), stores, "{then} {otherwise}\n{kernel}");
    }
}

#[test]
fn long_rounds_over_workgroup_memory_come_in_fours() {
    let steps = "m = m ^ (m << 13); m = m ^ (m >> 17); m = m * 5 + s[k * 4 + 3];".repeat(20);
    let source = |rounds: u32| {
        let body = format!(
            "for j in 0..4 {{ s[j * 64 + local_id.x] = x + j; }}
            barrier;
            var m: u32 = y;
            for k in 0..{rounds} {{ m = m + s[local_id.x + k]; {steps} }}
            out[global_id.x] = m;"
        );
        with_samples("workgroup s: u32[256] @2;", &body)
    };
    for (rounds, fours) in [(32, true), (30, false)] {
        let (expected, actual, kernel) =
            both(&source(rounds), Options { unrolling: Unrolling::FAR, ..Options::default() });
        assert_eq!(expected, actual, "{kernel}");
        let body = kernel.split("for %").nth(1).expect("a loop");
        assert_eq!(body.matches("load u32 shared").count(), if fours { 8 } else { 2 }, "{kernel}");
    }
}

/// Lowered as for a device that gains from long straight code.
fn far(program: &Program) -> crate::kernel::Kernel {
    let options = Options { unrolling: Unrolling::FAR, ..Options::default() };
    lower(&program.validate().expect("valid"), &options).expect("lowers")
}

fn loop_while(cond: Expr, body: Vec<Node>, next: Node) -> Node {
    let leave = Node::if_else(cond, vec![], vec![Node::Break]);
    Node::Loop { body: [vec![leave], body].concat(), continuing: vec![next], break_if: None }
}

#[test]
fn loops_that_double_are_unrolled_with_their_barriers() {
    let (l, n) = (|| Expr::local_id(0), || Expr::var("n"));
    let left = Expr::select(l().ge(n()), Expr::load("s", l() - n()), Expr::f32(0.0));
    let step = vec![
        Node::let_bind("left", left),
        Node::barrier(),
        Node::store("s", l(), Expr::load("s", l()) + Expr::var("left")),
        Node::barrier(),
    ];
    let scan = vec![
        Node::store("s", l(), l().cast(DataType::F32)),
        Node::barrier(),
        Node::var("n", DataType::U32, Expr::u32(1)),
        loop_while(n().lt(Expr::u32(64)), step, Node::assign("n", n() << Expr::u32(1))),
        Node::store("out", l(), Expr::load("s", l())),
    ];
    let program = Program::wrapped(shared(), [64, 1, 1], scan);
    let kernel = far(&program);
    let text = kernel.to_string();
    assert!(!text.contains("loop") && !text.contains("for %"), "{text}");
    assert_eq!(text.matches("barrier").count(), 13, "{text}");
    let mut buffers = [vec![0; 256]];
    let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
    interpret(&kernel, &mut buffers, &how).expect("runs");
    let sums: Vec<f32> = buffers[0].chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("four"))).collect();
    assert_eq!(sums, (0..64).map(|i| (i * (i + 1) / 2) as f32).collect::<Vec<_>>());
}

#[test]
fn loops_from_the_place_in_the_workgroup_have_as_many_rounds_for_all() {
    let add = |to: u32| {
        let sum = Node::assign("x", Expr::var("x") + Expr::load("s", Expr::var("k")));
        let body = Node::For { var: "k".into(), from: Expr::local_id(0), to: Expr::u32(to), step: 16, body: vec![sum] };
        let begin = Node::var("x", DataType::F32, Expr::f32(0.0));
        let end = Node::store("out", Expr::local_id(0), Expr::var("x"));
        far(&Program::wrapped(shared(), [16, 1, 1], vec![begin, body, end])).to_string()
    };
    let (even, odd) = (add(64), add(63));
    assert!(!even.contains("for %") && even.matches("load f32").count() == 4 && guards(&even) == 0, "{even}");
    assert!(odd.contains("for %"), "{odd}");
}

#[test]
fn loops_that_are_left_early_are_unrolled_in_a_loop_of_one_round() {
    let find = vec![
        Node::var("at", DataType::U32, Expr::u32(99)),
        Node::for_range(
            "k",
            Expr::u32(0),
            Expr::u32(8),
            vec![Node::if_then(
                Expr::load("a", Expr::var("k")).eq(Expr::f32(7.0)),
                vec![Node::assign("at", Expr::var("k")), Node::Break],
            )],
        ),
        Node::store("a", Expr::u32(0), Expr::var("at").cast(DataType::F32)),
    ];
    let program = Program::wrapped(data(), [1, 1, 1], find);
    let kernel = far(&program);
    let text = kernel.to_string();
    assert!(!text.contains("for %") && text.matches("load f32").count() == 8, "{text}");
    for place in [0, 3, 7, 8] {
        let words: Vec<f32> = (0..9).map(|i| if i >= place { 7.0 } else { 1.0 }).collect();
        let mut buffers = [words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()];
        let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(&kernel, &mut buffers, &how).expect("runs");
        let found = f32::from_le_bytes(buffers[0][..4].try_into().expect("four"));
        assert_eq!(found, if place < 8 { place as f32 } else { 99.0 });
    }
}

/// Who is in another round needs other code, and the cache of instructions is small.
#[test]
fn long_loops_that_are_left_early_stay_loops() {
    let rounds = |rounds: u32, steps: u32| {
        let x = || Expr::var("x");
        let step = (0..steps).fold(x(), |sum, step| sum * x() + Expr::f32(step as f32));
        let leave = Node::if_then(x().gt(Expr::f32(1e9)), vec![Node::Break]);
        let body = vec![
            Node::var("x", DataType::F32, Expr::load("a", i())),
            Node::for_range("k", Expr::u32(0), Expr::u32(rounds), vec![leave, Node::assign("x", step)]),
            Node::store("a", i(), x()),
        ];
        far(&Program::wrapped(data(), [64, 1, 1], body)).to_string()
    };
    assert!(!rounds(8, 20).contains("for %"));
    assert!(!rounds(40, 4).contains("for %"));
    assert!(rounds(40, 20).contains("for %"));
}

#[test]
fn work_behind_the_exits_of_written_out_rounds_stays_there() {
    let square = Expr::var("x") * Expr::var("x") + Expr::load("a", i());
    let step = Node::assign("x", Expr::math(MathOp::Exp, vec![Expr::math(MathOp::Cos, vec![square])]));
    let leave = Node::if_then(Expr::var("x").lt(Expr::f32(0.5)), vec![Node::Break]);
    let program = Program::wrapped(
        data(),
        [1, 1, 1],
        vec![
            Node::var("x", DataType::F32, Expr::load("a", i())),
            Node::for_range("k", Expr::u32(0), Expr::u32(6), vec![leave, step]),
            Node::store("a", i(), Expr::var("x")),
        ],
    );
    let valid = program.validate().expect("valid");
    let options = Options { unrolling: Unrolling::FAR, expand_math: true, ..Options::default() };
    let kernel = lower(&valid, &options).expect("lowers").to_string();
    let before = kernel.find("loop").unwrap_or_else(|| panic!("rounds are not written out:\n{kernel}"));
    assert!(!kernel[..before].contains("fma"), "all rounds come before the first exit:\n{kernel}");
}

#[test]
fn comparisons_behind_the_exits_of_written_out_rounds_stay_there() {
    let byte = |at: Expr| Expr::load("text", at.clone() >> Expr::u32(2)) >> ((at & Expr::u32(3)) << Expr::u32(3));
    let differs = (byte(i() * Expr::u32(4) + Expr::var("k")) & Expr::u32(255)).ne(Expr::load("word", Expr::var("k")));
    let program = Program::wrapped(
        vec![
            BufferDecl::read("text", 0, DataType::U32),
            BufferDecl::read("word", 1, DataType::U32).with_count(6),
            BufferDecl::output("out", 2, DataType::U32),
        ],
        [64, 1, 1],
        vec![
            Node::var("found", DataType::U32, Expr::u32(6)),
            Node::for_range(
                "k",
                Expr::u32(0),
                Expr::u32(6),
                vec![Node::if_then(differs, vec![Node::assign("found", Expr::var("k")), Node::Break])],
            ),
            Node::store("out", i(), Expr::var("found")),
        ],
    );
    let text = far(&program).to_string();
    let (before, inside) = text.split_once("loop").unwrap_or_else(|| panic!("rounds are not written out:\n{text}"));
    // What is at a fixed place is asked for at once, and bytes of one word are loaded once.
    assert_eq!(before.matches("load u32 word").count(), 6, "{text}");
    assert_eq!((before.matches("load u32 text").count(), inside.matches("load u32 text").count()), (0, 2), "{text}");
}

#[test]
fn rounds_that_spread_with_barriers_are_written_out() {
    let place = |ahead: u32| Expr::var("offset") * (Expr::u32(2) * Expr::local_id(0) + Expr::u32(ahead)) - Expr::u32(1);
    let sum = Node::store("s", place(2), Expr::load("s", place(1)) + Expr::load("s", place(2)));
    let tree = |shifted: Expr| {
        vec![
            Node::var("offset", DataType::U32, Expr::u32(1)),
            Node::For {
                var: "k".into(),
                from: Expr::u32(0),
                to: Expr::u32(4),
                step: 1,
                body: vec![
                    Node::barrier(),
                    Node::if_then(Expr::local_id(0).lt(shifted), vec![sum.clone()]),
                    Node::assign("offset", Expr::var("offset") * Expr::u32(2)),
                ],
            },
            Node::barrier(),
            Node::store("out", Expr::local_id(0), Expr::load("s", Expr::local_id(0))),
        ]
    };
    let text = |trees_written_out| {
        let program = Program::wrapped(shared(), [32, 1, 1], tree(Expr::u32(16) >> Expr::var("k")));
        let passes = Passes::all().without(Passes::UNROLL);
        let options = Options { passes, trees_written_out, ..Options::default() };
        lower(&program.validate().expect("valid"), &options).expect("lowers").to_string()
    };
    let (kept, written) = (text(false), text(true));
    assert!(kept.contains("for %") && kept.matches("barrier").count() == 2, "{kept}");
    assert!(!written.contains("for %") && written.matches("barrier").count() == 5, "{written}");
}

#[test]
fn places_that_were_made_before_a_branch_are_known_better_in_it() {
    let store = |to: u32| {
        let place = (Expr::var("twice") << Expr::u32(1)) - Expr::u32(1);
        let body = vec![
            Node::let_bind("twice", Expr::u32(2) * Expr::local_id(0) + Expr::u32(2)),
            Node::store("out", Expr::u32(3), Expr::load("s", Expr::var("twice") & Expr::u32(63))),
            Node::if_then(Expr::local_id(0).lt(Expr::u32(to)), vec![Node::store("out", place, Expr::f32(1.0))]),
        ];
        let program = Program::wrapped(shared(), [64, 1, 1], body).validate().expect("valid");
        let options = Options { trees_written_out: true, ..Options::default() };
        guards(&lower(&program, &options).expect("lowers").to_string())
    };
    assert_eq!((store(16), store(17)), (0, 1));
}

#[test]
fn exits_that_answer_alike_give_the_same() {
    let found = |number: u32| Expr::var("found").eq(Expr::u32(number));
    let program = |also: u32| {
        let differs = Expr::load("a", Expr::var("k")).ne(Expr::f32(7.0));
        let body = vec![
            Node::var("found", DataType::U32, Expr::u32(4)),
            Node::for_range(
                "k",
                Expr::u32(0),
                Expr::u32(4),
                vec![Node::if_then(differs, vec![Node::assign("found", Expr::var("k")), Node::Break])],
            ),
            Node::if_then(found(4), vec![Node::store("a", Expr::u32(4), Expr::f32(1.0))]),
            Node::if_then(found(also), vec![Node::store("a", Expr::u32(5), Expr::f32(2.0))]),
        ];
        Program::wrapped(data(), [1, 1, 1], body)
    };
    let kinds = |text: &str| {
        let mut kinds: Vec<String> =
            text.lines().filter_map(|line| Some(line.split_once("break ")?.1.into())).collect();
        kinds.sort();
        kinds.dedup();
        kinds.len()
    };
    // One number is asked for, or two, which five different answers are needed for.
    for (also, answers) in [(4, 2), (2, 5)] {
        let kernel = far(&program(also));
        let text = kernel.to_string();
        assert_eq!(kinds(&text), answers, "{text}");
        for place in 0..5 {
            let words: Vec<f32> = (0..6).map(|i| if i == place || i > 3 { 0.0 } else { 7.0 }).collect();
            let mut buffers = [words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()];
            let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
            interpret(&kernel, &mut buffers, &how).expect("runs");
            let at = |at: usize| f32::from_le_bytes(buffers[0][4 * at..4 * at + 4].try_into().expect("four"));
            let expected = (if place == 4 { 1.0 } else { 0.0 }, if place == also { 2.0 } else { 0.0 });
            assert_eq!((at(4), at(5)), expected, "{text}");
        }
    }
}

#[test]
fn what_is_exchanged_is_loaded_once() {
    let loads = |apart: u32| {
        let place = |add: u32| Expr::local_id(0) * Expr::u32(4) + Expr::u32(add);
        let body = vec![
            Node::let_bind("held", Expr::load("s", place(1))),
            Node::store("s", place(1), Expr::load("s", place(1 + apart))),
            Node::store("s", place(1 + apart), Expr::load("s", place(1 + apart)) + Expr::var("held")),
        ];
        let program = Program::wrapped(shared(), [8, 1, 1], body).validate().expect("valid");
        lower(&program, &Options::default()).expect("lowers").to_string().matches("= load").count()
    };
    // Twice the same element: what was stored is loaded again.
    assert_eq!((loads(2), loads(0)), (2, 2));
}

#[test]
fn bytes_of_words_are_loaded_alone() {
    let text = |parts_of_words: bool, changed: bool| {
        let index = || Expr::global_id(0);
        let word = Expr::load("a", index() / Expr::u32(4));
        let mut body = vec![Node::let_bind("word", word)];
        if changed {
            body.push(Node::store("a", Expr::u32(0), Expr::u32(7)));
        }
        let byte = (Expr::var("word") >> (Expr::u32(8) * (index() % Expr::u32(4)))) & Expr::u32(255);
        body.push(Node::store("out", index(), byte));
        let buffers =
            vec![BufferDecl::read_write("a", 0, DataType::U32), BufferDecl::read_write("out", 1, DataType::U32)];
        let program = Program::wrapped(buffers, [64, 1, 1], body).validate().expect("valid");
        lower(&program, &Options { parts_of_words, ..Options::default() }).expect("lowers").to_string()
    };
    assert!(text(true, false).contains("load u8") && !text(true, false).contains("load u32"));
    assert!(!text(false, false).contains("load u8"));
    // The byte is that of the word as it was.
    assert!(!text(true, true).contains("load u8"), "{}", text(true, true));
}

#[test]
fn bytes_of_all_rounds_are_tested_once() {
    for (place, rounds, is_tested) in [
        ("global_id.x * 3 + k", "0..7", true),
        ("global_id.x * 3 + k * 2", "2..9", true),
        ("global_id.x * 5 - k", "0..9", true),
        // Some or all are below nothing, beyond the end, or come round to the beginning.
        ("global_id.x * 5 - 9 + k", "0..7", true),
        ("global_id.x * 13 + k", "0..60", true),
        ("4294967200 + global_id.x + k", "0..90", true),
        ("(x & 2047) + k", "0..y % 9", true),
        ("x + k * y", "0..9", true),
        // How far they grow is not known well enough.
        ("x + 2 * k * y", "0..9", false),
    ] {
        let body = format!(
            "var s: u32 = y;
            for k in {rounds} {{
                let i = {place};
                s = s * 5 + ((a[i / 4] >> (8 * (i % 4))) & 255);
            }}
            out[global_id.x] = s;"
        );
        let options = Options { parts_of_words: true, one_test: true, ..Options::default() };
        let (expected, actual, kernel) = both(&with_samples("", &body), options);
        assert_eq!(expected, actual, "{place}\n{kernel}");
        let is_free = |line: &str| line.contains("load u8") && !line.contains(" if ");
        assert_eq!(kernel.lines().any(is_free), is_tested, "{place}\n{kernel}");
    }
}

#[test]
fn a_word_of_a_private_array_that_was_stored_is_not_loaded() {
    let loads = |between: &str| {
        let source = format!(
            "type 0 = array<u32, 40> stride 4;
            read_write b: u32 @0;
            workgroup_size [64, 1, 1];
            entry main {{
                var a: type<0>;
                a[b[9]] = 5;
                a[1] = b[1];
                a[2] = b[2];
                {between}
                b[0] = a[1] + a[b[7]];
            }}"
        );
        let valid = crate::text::parse(&source).expect("parses");
        let valid = valid.validate().expect("valid");
        let options = Options { unrolling: Unrolling::FAR, ..Options::default() };
        let text = lower(&valid, &options).expect("lowers").to_string();
        text.lines().filter(|line| line.contains("load u32 local")).count()
    };
    // The one at a place that is not known.
    assert_eq!(loads(""), 1);
    assert_eq!(loads("a[3] = 1; if b[3] == 1 { a[2] = 3; b[4] = 2; }"), 1);
    assert_eq!(loads("for i in 0..b[5] { b[i] = a[1]; }"), 1);
    // Something may have changed it.
    assert_eq!(loads("a[b[3]] = 7;"), 2);
    assert_eq!(loads("if b[3] == 1 { a[1] = 3; b[4] = 2; }"), 2);
    assert_eq!(loads("for i in 0..b[5] { b[i] = i; a[1] = i; }"), 2);
}

fn in_and_out() -> Vec<BufferDecl> {
    vec![BufferDecl::read("a", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32).with_count(211)]
}

/// A loop over `k` in which the order of rounds shows, with the number it begins at and how it goes on.
fn shown_order(ty: DataType, first: Expr, cond: Expr, next: Expr) -> Program {
    let round = Node::assign("x", Expr::var("x") * Expr::u32(3) + Expr::var("k").cast(DataType::U32));
    let rounds = loop_while(cond, vec![round], Node::assign("k", next));
    let body = vec![
        Node::var("x", DataType::U32, Expr::u32(1)),
        Node::var("k", ty, first),
        rounds,
        Node::store("out", i(), Expr::var("x") + Expr::var("k").cast(DataType::U32)),
    ];
    Program::wrapped(in_and_out(), [64, 1, 1], body)
}

#[test]
fn loops_that_go_down_count() {
    let k = || Expr::var("k");
    let few = || Expr::binary(BinaryOp::Rem, Expr::load("a", i()), Expr::u32(9));
    let signed = || few().cast(DataType::I32) - Expr::i32(3);
    for (ty, first, cond, next) in [
        (DataType::U32, few(), k().gt(Expr::u32(0)), k() - Expr::u32(1)),
        (DataType::U32, few(), k().ge(Expr::u32(3)), k() - Expr::u32(1)),
        (DataType::I32, signed(), k().ge(Expr::i32(0)), k() - Expr::i32(1)),
        (DataType::I32, signed(), k().gt(Expr::i32(-2)), k() + Expr::i32(-1)),
        (DataType::U32, Expr::u32(70), k().gt(Expr::u32(7)), k() - Expr::u32(3)),
        (DataType::I32, signed(), k().gt(Expr::load("a", Expr::u32(0)).cast(DataType::I32)), k() - Expr::i32(1)),
    ] {
        let program = shown_order(ty, first, cond, next);
        let (expected, actual, kernel) = with_and_without_passes(&program, &samples());
        assert_eq!(expected, actual, "{kernel}");
        assert!(kernel.contains("for %"), "{kernel}");
    }
    // It wraps before the test fails.
    let wraps = shown_order(DataType::U32, Expr::u32(70), k().gt(Expr::u32(1)), k() - Expr::u32(23));
    let kernel = lower(&wraps.validate().expect("valid"), &Options::default()).expect("lowers").to_string();
    assert!(!kernel.contains("for %"), "{kernel}");
}

#[test]
fn loops_that_may_wrap_count_as_far_as_they_do_not() {
    let k = || Expr::var("k");
    let limit = |most: u32| Expr::math(MathOp::Min, vec![Expr::load("a", i()), Expr::u32(most)]);
    for (ty, cond, step) in [
        (DataType::U32, k().lt(limit(0xe000_0000)), 0x6000_0000u32),
        (DataType::U32, k().lt(limit(2000)), 7),
        (DataType::I32, k().lt(limit(3000).cast(DataType::I32)), 9),
        (DataType::I32, k().lt(limit(0x7000_0000).cast(DataType::I32)), 0x1000_0000),
    ] {
        let by = if ty == DataType::I32 { Expr::i32(step as i32) } else { Expr::u32(step) };
        let program = shown_order(ty.clone(), i().cast(ty), cond, k() + by);
        let (expected, actual, kernel) = with_and_without_passes(&program, &samples());
        assert_eq!(expected, actual, "{kernel}");
        assert!(kernel.contains("for %"), "{kernel}");
        // There is a rest only where the limit may be that large.
        assert_eq!(kernel.contains("loop with"), step == 0x6000_0000, "{kernel}");
    }
}

#[test]
fn lists_that_are_kept_sorted_become_values() {
    use crate::ir::{Access, Count, TypeDef, TypeId};
    let k = || Expr::var("k");
    let at = |index: Expr| vec![Access::Index(index)];
    let part = |index: Expr| Expr::Part { value: Box::new(Expr::var("list")), path: at(index) };
    let set = |index: Expr, value: Expr| Node::Assign { name: "list".into(), path: at(index), value };
    // From the end of what was inserted, and from the end of all; what is looked at may be in one test or in two.
    for (from, two) in [("n", false), ("n", true), ("8", false), ("7", true)] {
        let from = from.parse().map_or_else(|_| Expr::var(from), Expr::u32);
        let larger = part(k() - Expr::u32(1)).gt(Expr::var("new"));
        let leaves = |goes_on: Expr| Node::if_else(goes_on, vec![], vec![Node::Break]);
        let more = k().gt(Expr::u32(0));
        let mut round = if two {
            vec![leaves(more), leaves(larger)]
        } else {
            vec![leaves(Expr::binary(BinaryOp::And, more, larger))]
        };
        round.extend([set(k(), part(k() - Expr::u32(1))), Node::assign("k", k() - Expr::u32(1))]);
        let insert = vec![
            Node::let_bind("new", Expr::load("a", i() + Expr::var("n") * Expr::u32(5))),
            Node::var("k", DataType::U32, from),
            Node::forever(round),
            set(k(), Expr::var("new")),
        ];
        let digest = Node::assign("x", Expr::var("x") * Expr::u32(31) + part(Expr::var("n")));
        let body = vec![
            Node::var_zero("list", DataType::Handle(TypeId(0))),
            Node::for_range("n", Expr::u32(0), Expr::u32(8), insert),
            Node::var("x", DataType::U32, Expr::u32(0)),
            Node::for_range("n", Expr::u32(0), Expr::u32(8), vec![digest]),
            Node::store("out", i(), Expr::var("x")),
        ];
        let types = vec![TypeDef::Array { element: DataType::U32, count: Count::Fixed(8), stride: 4 }];
        let program = Program::wrapped(in_and_out(), [64, 1, 1], body).with_types(types);
        let (expected, actual, kernel) = with_and_without_passes(&program, &samples());
        assert_eq!(expected, actual, "{kernel}");
        assert!(!kernel.contains("local 0"), "{kernel}");
    }
}

#[test]
fn what_is_stored_before_a_list_is_looked_at_stays() {
    let source = "type 0 = array<u32, 4> stride 4;
        read a: u32 @0;
        output out: u32[211] @1;
        workgroup_size [64, 1, 1];
        entry main {
            var list: type<0>;
            for n in 0..8 {
                let x = a[global_id.x + n * 3];
                var k: u32 = 3;
                loop {
                    if k == 0 { break; }
                    list[k] = list[k - 1];
                    if list[k] <= x { break; }
                    k = k - 1;
                }
                list[k] = x;
            }
            out[global_id.x] = list[0] + list[1] * 3 + list[2] * 9 + list[3] * 27;
        }";
    let program = crate::text::parse(source).expect("parses");
    let (expected, actual, kernel) = with_and_without_passes(&program, &samples());
    assert_eq!(expected, actual, "{kernel}");
    assert!(!kernel.contains("local 0"), "{kernel}");
}

/// What a program in the text form makes of samples without the optimiser and with all of it, and its kernel.
fn both(source: &str, options: Options) -> (Vec<u8>, Vec<u8>, String) {
    both_of(&crate::text::parse(source).unwrap_or_else(|problem| panic!("{problem:?}\n{source}")), options)
}

fn both_of(program: &Program, options: Options) -> (Vec<u8>, Vec<u8>, String) {
    let valid = program.validate().expect("valid");
    let run = |options: &Options| {
        let kernel = lower(&valid, options).expect("lowers");
        let mut buffers = [samples(), vec![0; 211 * 4]];
        let how = Interpret { grid: [4, 1, 1], subgroup_size: 32, budget: u64::MAX, noise: None };
        interpret(&kernel, &mut buffers, &how).expect("runs");
        (buffers[1].clone(), kernel.to_string())
    };
    let (expected, _) = run(&Options { passes: Passes::none(), ..Options::default() });
    let (actual, kernel) = run(&options);
    (expected, actual, kernel)
}

fn with_samples(types: &str, body: &str) -> String {
    format!(
        "{types}
        read a: u32 @0;
        output out: u32[211] @1;
        workgroup_size [64, 1, 1];
        entry main {{
            let x = a[global_id.x];
            let y = a[global_id.x + 1];
            {body}
        }}"
    )
}

#[test]
fn remainders_of_counters_are_constants_in_rounds_that_follow_each_other() {
    let far = || Options { unrolling: Unrolling { rounds: 2, ..Unrolling::FAR }, ..Options::default() };
    for (range, remainder, is_written_out) in [
        ("0..127", "k % 3", true),
        ("0..129", "(k + 2) % 3 * 7 + (k + 1) % 3", true),
        ("1..300", "(k - 1) % 5", true),
        ("2..x % 50", "(k + 9) % 6", true),
        ("0..x % 2", "k % 7", true),
        // The counter wraps, or is not known at first, or there is nothing to gain.
        ("2..x % 50", "(k - 3) % 7", false),
        ("y % 3..40", "k % 3", false),
        ("0..100", "k % 4", false),
        ("0..100", "k % 9", false),
        // Where they meet in each round, powers of two count too.
        ("0..100", "k % 4; barrier", true),
        ("0..101", "((k + 1) & 1); barrier", true),
    ] {
        let body = format!(
            "var s: u32 = y;
            for k in {range} {{ s = s * 5 + {remainder}; }}
            out[global_id.x] = s;"
        );
        let (expected, actual, kernel) = both(&with_samples("", &body), far());
        assert_eq!(expected, actual, "{range} {remainder}\n{kernel}");
        let first = kernel.split("for %").nth(1).expect("a loop");
        let rest = first.split("continue").next().expect("a body");
        assert_eq!(
            !rest.contains("mulhigh") && !rest.contains("and %"),
            is_written_out,
            "{range} {remainder}\n{kernel}"
        );
    }
}

#[test]
fn products_of_halves_are_products() {
    let (halves, parts) = (
        "let a0 = x & 65535; let a1 = x >> 16; let b0 = b & 65535; let b1 = b >> 16;
         let p = a0 * b0; let r = a0 * b1; let q = a1 * b0; let s = a1 * b1;",
        "let m = (p >> 16) + (r & 65535) + (q & 65535);",
    );
    let last = "let t = q + (p >> 16); let w = r + (t & 65535);";
    let whole = "let m = q + (p >> 16) + (r & 65535);";
    for b in ["y", "x", "435", "2654435769", "131072", "65537", "256"] {
        for (middle, high, low) in [
            (parts, "s + (r >> 16) + (q >> 16) + (m >> 16)", "(m << 16) | (p & 65535)"),
            (parts, "(m >> 16) + (q >> 16) + s + (r >> 16) + y", "(p & 65535) + (m << 16)"),
            (last, "s + (t >> 16) + (w >> 16)", "(w << 16) + (p & 65535)"),
            (whole, "s + (m >> 16) + (r >> 16)", "(m << 16) | (p & 65535)"),
        ] {
            let body = format!("let b = {b}; {halves} {middle} out[global_id.x] = ({high}) * 31 + ({low});");
            let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
            assert_eq!(expected, actual, "{b} {high}\n{kernel}");
            let is_plain = matches!(b, "y" | "x" | "2654435769") || b == "435" && middle == parts;
            assert!(!is_plain || kernel.contains("mulhigh") && !kernel.contains("65535"), "{b} {high}\n{kernel}");
        }
    }
    // Something is missing, or there twice.
    for high in
        ["(r >> 16) + (q >> 16) + (m >> 16)", "s + (q >> 16) + (q >> 16) + (m >> 16)", "s + (r >> 16) + (m >> 16)"]
    {
        let body = format!("let b = y; {halves} {parts} out[global_id.x] = {high};");
        let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
        assert_eq!(expected, actual, "{high}\n{kernel}");
        assert!(!kernel.contains("mulhigh"), "{high}\n{kernel}");
    }
    // A middle that does not fit into a word.
    let body = format!("let b = y; {halves} let m = q + (p >> 16) + r; out[global_id.x] = s + (m >> 16);");
    let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
    assert_eq!(expected, actual, "{kernel}");
    assert!(!kernel.contains("mulhigh"), "{kernel}");
}

#[test]
fn booleans_of_private_arrays_are_bits() {
    let types = "type 0 = array<bool, 9> stride 4;
        type 1 = array<type<0>, 3> stride 36;
        type 2 = array<bool, 33> stride 4;";
    for (ty, at, is_word) in [
        (0, "[v]", true),
        // Some of them are outside.
        (0, "[v + 3]", true),
        (1, "[v % 3][v]", true),
        (2, "[v]", false),
    ] {
        let body = format!(
            "var s: u32 = 0;
            for n in 0..3 {{
                var seen: type<{ty}>;
                for k in 0..20 {{
                    let v = a[global_id.x + k] % 9;
                    if seen{at} {{ s = s + k; }}
                    seen{at} = (k & 3) != n;
                }}
            }}
            out[global_id.x] = s;"
        );
        let (expected, actual, kernel) = both(&with_samples(types, &body), Options::default());
        assert_eq!(expected, actual, "{ty} {at}\n{kernel}");
        assert_eq!(!kernel.contains("local 0"), is_word, "{ty} {at}\n{kernel}");
    }
}

#[test]
fn loops_up_to_another_counter_count() {
    for (outer, test) in [("0..x % 9", "k <= j"), ("3..12", "k <= j"), ("0..x % 9", "j >= k")] {
        let body = format!(
            "var s: u32 = y;
            for j in {outer} {{
                var k: u32 = y % 4;
                loop {{
                    if !({test}) {{ break; }}
                    s = s * 5 + a[k];
                    k = k + 1;
                }}
            }}
            out[global_id.x] = s;"
        );
        let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
        assert_eq!(expected, actual, "{outer} {test}\n{kernel}");
        assert!(!kernel.contains("loop with"), "{outer} {test}\n{kernel}");
    }
}

#[test]
fn short_cases_of_a_number_are_selected() {
    let chain = |of: &str, cases: u32, step: &str| {
        let ways = (0..cases).map(|case| format!("if {of} == {case} {{ s = {step} + {case}; }} else {{ "));
        let ways: String = ways.collect();
        let body = format!("var s: u32 = 7; {ways} s = x * y; {} out[global_id.x] = s;", "}".repeat(cases as usize));
        let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
        assert_eq!(expected, actual, "{of} {step}\n{kernel}");
        kernel.matches("= if %").count()
    };
    assert_eq!(chain("(x & 15)", 14, "y"), 0);
    assert_eq!(chain("(x & 15)", 14, "x * y"), 0);
    // Long ones, those of different numbers and very many are gone to.
    assert!(chain("(x & 15)", 14, "(x + 3) * (y ^ 5)") > 0);
    assert!(chain("(a[x] & 15)", 200, "y") > 0);
    let other = "var s: u32 = 7;
        if x == 1 { s = y + 1; } else { if y == 2 { s = x + 2; } else { if x == 3 { s = y + 3; } else { if y == 4 { s = x + 4; } else {
        if x == 5 { s = y + 5; } else { if y == 6 { s = x + 6; } else { s = x * y; } } } } } } out[global_id.x] = s;";
    let (expected, actual, _) = both(&with_samples("", other), Options::default());
    assert_eq!(expected, actual);
}

#[test]
fn what_only_one_invocation_writes_it_keeps() {
    let l = || Expr::local_id(0);
    let s = |index: Expr| Expr::load("s", index);
    let (set, wait) = (|index: Expr, value: Expr| Node::store("s", index, value), Node::barrier);
    let mix = || s(l()) * Expr::u32(3) + s(l() ^ Expr::u32(5));
    let rounds = vec![Node::let_bind("m", mix()), wait(), set(l(), Expr::var("m")), wait()];
    let in_turn = || s(l() + Expr::u32(64)) + s(Expr::u32(127) - l());
    let m = || Expr::var("m");
    let mixed = |then: Vec<Node>| [vec![Node::let_bind("m", mix()), wait()], then, vec![wait()]].concat();
    let few = Expr::binary(BinaryOp::Rem, Expr::len("a"), Expr::u32(4));
    let turns = vec![set(l() + Expr::u32(64), mix()), wait(), set(l(), in_turn()), wait()];
    for (what, nodes, loads) in [
        ("in line", mixed(vec![set(l(), m())]), 2),
        ("in a loop", vec![Node::for_range("k", Expr::u32(0), few, rounds)], 2),
        ("in turn", turns, 3),
        // Others write there too, or not everybody does.
        ("next to it", mixed(vec![set(l() + Expr::u32(1), m())]), 4),
        ("in a branch", mixed(vec![Node::if_then(l().lt(Expr::u32(32)), vec![set(l(), m())])]), 4),
    ] {
        let mut body = vec![set(l(), Expr::load("a", i())), wait()];
        body.extend(nodes);
        body.push(Node::store("out", i(), s(l()) + s(Expr::u32(63) - l())));
        let buffers = vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::output("out", 1, DataType::U32).with_count(211),
            BufferDecl::workgroup("s", 2, DataType::U32).with_count(128),
        ];
        let program = Program::wrapped(buffers, [64, 1, 1], body);
        let (expected, actual, kernel) = both_of(&program, Options { own_words: true, ..Options::default() });
        assert_eq!(expected, actual, "{what}\n{kernel}");
        assert_eq!(kernel.matches("load u32 shared").count(), loads, "{what}\n{kernel}");
    }
}

#[test]
fn triangles_of_private_arrays_become_values() {
    for (outer, inner, becomes_values) in [
        ("0..40", "0..step + 1", true),
        ("0..40", "0..40 - step", true),
        ("3..40", "2..step - 2", true),
        // Not known to be small, or from where is not known.
        ("0..40", "0..x % 41", false),
        ("0..40", "step..40 + step % 2", true),
    ] {
        let body = format!(
            "var v: type<0>;
            for k in 0..41 {{ v[k] = x * (k + 1); }}
            for step in {outer} {{
                var p: u32 = step ^ y;
                for k in {inner} {{
                    v[k] = (v[k + 1] ^ p) + v[k] * 3;
                    p = p * 5 + 1;
                }}
                v[40] = p;
            }}
            out[global_id.x] = v[0] + v[7] * 3 + v[39] + v[40];"
        );
        let options = Options { unrolling: Unrolling::FAR, ..Options::default() };
        let source = with_samples("type 0 = array<u32, 41> stride 4;", &body);
        let (expected, actual, kernel) = both(&source, options);
        assert_eq!(expected, actual, "{outer} {inner}\n{kernel}");
        assert_eq!(!kernel.contains("local 0"), becomes_values, "{outer} {inner}\n{kernel}");
    }
}

#[test]
fn clamped_places_of_all_rounds_are_tested_once() {
    for (place, is_tested) in [
        (
            "cast<u32>(min(max(cast<i32>(x & 255) + cast<i32>(k) - 4i32, 0i32), cast<i32>(n) - 1i32)) * m + min(y % 9 + k, m - 1)",
            true,
        ),
        ("cast<u32>(max(min(cast<i32>(x & 255) - cast<i32>(k), cast<i32>(n) - 1i32), 0i32)) * m", true),
        ("min(x * k, n * m)", true),
        // Edges that may be beyond the end, or less than nothing.
        ("cast<u32>(min(max(cast<i32>(k) - 4i32, 0i32), cast<i32>(y)))", true),
        ("cast<u32>(min(max(cast<i32>(x) - cast<i32>(k), 0i32), cast<i32>(y) - 1i32)) * 2", true),
        // One end is not enough.
        ("cast<u32>(min(cast<i32>(x) - cast<i32>(k), cast<i32>(n) - 1i32))", false),
        ("x % 200 ^ k", false),
    ] {
        let body = format!(
            "let n = (y & 15) + 1;
            let m = (x & 7) + 1;
            var s: u32 = y;
            for k in 0..9 {{ s = s * 5 + a[{place}]; }}
            out[global_id.x] = s;"
        );
        let options = Options { one_test: true, ..Options::default() };
        let (expected, actual, kernel) = both(&with_samples("", &body), options);
        assert_eq!(expected, actual, "{place}\n{kernel}");
        let loads = kernel.lines().filter(|line| line.contains("load u32 a[") && !line.contains(" if ")).count();
        assert_eq!(loads > 2, is_tested, "{place}\n{kernel}");
    }
}

#[test]
fn quotients_of_small_numbers_by_constants_are_products() {
    for (number, by, divides) in [
        ("cast<f32>(x & 255)", "255.0", false),
        ("cast<f32>(x & 65535)", "65535.0", false),
        ("cast<f32>(cast<i32>(x & 511) - 256i32)", "127.0", false),
        ("cast<f32>(x & 1023)", "-3.0", false),
        ("cast<f32>(x & 1023)", "0.1", false),
        // Not whole, not small, or with a reciprocal that is not usual.
        ("cast<f32>(x)", "255.0", true),
        ("(cast<f32>(x & 255) + 0.5)", "255.0", true),
        ("cast<f32>(x & 255)", "0.0", true),
        ("cast<f32>(x & 255)", "1e38", true),
    ] {
        let body = format!("out[global_id.x] = bitcast<u32>({number} / {by});");
        let options = Options { fused: true, ..Options::default() };
        let (expected, actual, kernel) = both(&with_samples("", &body), options);
        assert_eq!(expected, actual, "{number} / {by}\n{kernel}");
        assert_eq!(kernel.contains("div %"), divides, "{number} / {by}\n{kernel}");
    }
}

#[test]
fn what_all_but_one_do_is_done_by_all() {
    for (cond, is_done) in [("k == x % 50", true), ("k < x % 50", false), ("x % 50 == 3", false)] {
        let body = format!(
            "var s: u32 = y;
            for k in 0..x % 100 {{
                if {cond} {{}} else {{
                    let v = a[k] * 7 + 1;
                    let w = v ^ (v >> 3);
                    s = s * 5 + (w * w + v) * (a[k + 1] + w) + (v & 7) * (w | 1) + (w >> 5);
                }}
            }}
            out[global_id.x] = s;"
        );
        let options = Options { unrolling: Unrolling::FAR, ..Options::default() };
        let (expected, actual, kernel) = both(&with_samples("", &body), options);
        assert_eq!(expected, actual, "{cond}\n{kernel}");
        assert_eq!(!kernel.contains("} else {") && kernel.contains("select"), is_done, "{cond}\n{kernel}");
    }
}

#[test]
fn rounds_of_a_loop_over_a_grid_are_taken_together() {
    // From where, to what and by how much; some wrap on their way, some have no round.
    for (from, to, by) in [
        ("global_id.x", "150 + (x & 31)", "7 + (y & 3)"),
        ("global_id.x", "y & 255", "64 + (x & 1)"),
        ("x & 3", "2 + (y & 1)", "1 + (x & 1)"),
        ("4294967295 - 9 * (y | 1610612737)", "4294967295", "y | 1610612737"),
        ("4294967295 - 13 * (x | 268435457)", "4294967295", "x | 268435457"),
    ] {
        let body = format!(
            "let n = {to};
            let stride = {by};
            var i: u32 = {from};
            var s: u32 = y;
            var rounds: u32 = 0;
            loop {{
                if i < n {{}} else {{ break; }}
                s = s * 5 + a[i % 211] + i;
                rounds = rounds + 1;
            }} continuing {{
                i = i + stride;
            }}
            out[global_id.x] = s * 64 + rounds;"
        );
        let options = Options { rounds_together: 4, ..Options::default() };
        let (expected, actual, kernel) = both(&with_samples("", &body), options);
        assert_eq!(expected, actual, "{from} {to} {by}\n{kernel}");
        assert_eq!(kernel.matches(" loop with").count(), 2, "{from} {to} {by}\n{kernel}");
    }
}

#[test]
fn what_all_rounds_keep_within_an_array_needs_no_guards() {
    const AT_FIRST: &str = "if top < 1i32 { break; }";
    for (step, is_guarded) in [
        // Left where the number went down.
        (
            "if v[cast<u32>(top)] % 3 == 0 { top = top - 1i32; if top < 1i32 { break; } } else { if top == 12i32 { z = z + 1; } else { top = top + 1i32; v[cast<u32>(top)] = z; } }",
            false,
        ),
        (
            "if v[cast<u32>(top)] % 3 == 0 { top = top - 1i32; if top > 1i32 { break; } } else { if top == 12i32 { z = z + 1; } else { top = top + 1i32; v[cast<u32>(top)] = z; } }",
            true,
        ),
        // Down in a loop of its own.
        (
            "if top == 12i32 { loop { if top < 3i32 { break; } if v[cast<u32>(top)] % 2 == 0 { break; } top = top - 1i32; } } else { top = top + 1i32; v[cast<u32>(top)] = z; }",
            false,
        ),
        (
            "if top == 12i32 { loop { if top == 3i32 { break; } if v[cast<u32>(top)] % 2 == 0 { break; } top = top - 2i32; } } else { top = top + 1i32; v[cast<u32>(top)] = z; }",
            true,
        ),
        // Up to a limit and down to nothing.
        (
            "if v[cast<u32>(top)] % 3 == 0 { top = top - 1i32; } else { if top == 12i32 { z = z + 1; } else { top = top + 1i32; v[cast<u32>(top)] = z; } }",
            false,
        ),
        (
            "if z % 2 == 0 { top = top - 1i32; } else { top = min(top + 1i32, 15i32); } v[cast<u32>(max(top, 0i32))] = z;",
            false,
        ),
        ("top = select(top < 12i32, top + 1i32, top - 2i32);", false),
        // Beyond the limit, past it, or with nothing to stop it.
        ("if top == 13i32 { top = 20i32; } else { top = top + 1i32; v[cast<u32>(top)] = z; }", true),
        ("if top == 12i32 { z = z + 1; } else { top = top + 2i32; v[cast<u32>(top)] = z; }", true),
        ("top = top + 1i32; v[cast<u32>(top)] = z;", true),
        ("if z % 2 == 0 { top = top - 1i32; } else { top = top * 2i32; } v[cast<u32>(top)] = z;", true),
    ] {
        let first = if step.contains("break") { "" } else { AT_FIRST };
        let body = format!(
            "var v: type<0>;
            var top: i32 = 4i32;
            var z: u32 = x;
            var rounds: u32 = 0;
            loop {{
                {first}
                if rounds > 90 {{ break; }}
                rounds = rounds + 1;
                z = z * 5 + 1 + v[cast<u32>(top)];
                {step}
            }}
            out[global_id.x] = v[0] + v[7] * 3 + z * rounds;"
        );
        let source = with_samples("type 0 = array<u32, 16> stride 4;", &body);
        let (expected, actual, kernel) = both(&source, Options::default());
        assert_eq!(expected, actual, "{step}\n{kernel}");
        let left = kernel.lines().filter(|line| line.contains(" local 0") && line.contains(" if %")).count();
        assert_eq!(left > 0, is_guarded, "{step}\n{kernel}");
    }
}

#[test]
fn choices_of_known_floats_are_choices_of_integers() {
    for (yes, no) in [("1e-45", "0.0"), ("3e9", "-2.5"), ("0.99", "-0.0"), ("f32#7fc00000", "7.5")] {
        for ty in ["u32", "i32"] {
            let body = format!("out[global_id.x] = bitcast<u32>(cast<{ty}>(select(x < y, {yes}, {no})));");
            let (expected, actual, kernel) = both(&with_samples("", &body), Options::default());
            assert_eq!(expected, actual, "{yes} {no} {ty}\n{kernel}");
            assert!(!kernel.contains("cast %"), "{yes} {no} {ty}\n{kernel}");
        }
    }
}

#[test]
fn numbers_that_were_taken_apart_come_together() {
    // How many remainders and quotients are left.
    for (sum, left) in [
        ("(x / 512 * 64 + x / 8 % 64) * 8 + x % 8", 0),
        ("(x >> 4) * 16 + ((x >> 2) & 3) * 4 + (x & 3)", 0),
        ("x / 12 * 12 + x / 3 % 4 * 3 + x % 3 + y", 0),
        ("x / 16 * 17 + x % 16", 2),
        ("x % 8 * 8 + x / 8 % 8", 3),
        // Longer sums than are looked at.
        ("(x & 7) + (y & 15) + (x >> 9) % 3 + (y >> 7) % 5 + (x + y) % 11 + (x ^ y) % 13", 8),
    ] {
        let source = with_samples("", &format!("out[global_id.x] = {sum};"));
        let options = Options { passes: Passes::all().without(Passes::STRENGTH), rejoined: true, ..Options::default() };
        let (expected, actual, kernel) = both(&source, options);
        assert_eq!(expected, actual, "{sum}\n{kernel}");
        let apart = [" div ", " rem ", " and ", " shr "].iter().map(|op| kernel.matches(op).count()).sum::<usize>();
        assert_eq!(apart, left, "{sum}\n{kernel}");
    }
}

#[test]
fn what_a_loop_moves_on_by_is_a_product_of_its_counter() {
    for (loops, carried) in [
        ("for k in 0..9 { z = z * 3 + a[at]; at = at + 83; }", false),
        ("for k in 2..9 { z = z * 3 + a[at]; at = at - 7; }", false),
        ("for k in 0..9 { z = z * 3 + a[at]; at = at + z; }", true),
    ] {
        let source = with_samples("", &format!("var at: u32 = x; var z: u32 = y; {loops} out[global_id.x] = z + at;"));
        let passes = Passes::all().without(Passes::UNROLL);
        let (expected, actual, kernel) =
            both(&source, Options { passes, made_of_counters: true, ..Options::default() });
        assert_eq!(expected, actual, "{loops}\n{kernel}");
        let line = kernel.lines().find(|line| line.contains("= for ")).unwrap_or_default();
        let place =
            kernel.lines().find(|line| line.contains("load u32 a[") && line.starts_with("    ")).unwrap_or_default();
        let index = place.split("a[").nth(1).and_then(|rest| rest.split('*').next()).unwrap_or("none");
        assert_eq!(line.contains(&format!("{index}: u32 =")), carried, "{loops}\n{kernel}");
    }
}
