//! How many invocations run, and what each is told about itself.

use vyre_foundation::ir::{BufferDecl, Builtin, DataType, Expr, Node, Program};

use super::values::u32s;
use super::{Expectation, Test};
use crate::generate::Case;

pub(super) fn add(tests: &mut Vec<Test>) {
    built_ins(tests);
    domains(tests);
    refusals(tests);
}

/// Every built-in, in three dimensions.
fn built_ins(tests: &mut Vec<Test>) {
    let (size, grid) = ([4u32, 3, 2], [2u32, 2, 3]);
    let whole = [size[0] * grid[0], size[1] * grid[1], size[2] * grid[2]];
    let total: u32 = whole.iter().product();
    let index =
        Expr::global_id(0) + Expr::u32(whole[0]) * (Expr::global_id(1) + Expr::u32(whole[1]) * Expr::global_id(2));
    type Value = Box<dyn Fn([u32; 3]) -> u32>;
    let mut checks: Vec<(String, Builtin, Value)> = Vec::new();
    for axis in 0..3u8 {
        let a = usize::from(axis);
        checks.push((format!("global id {axis}"), Builtin::GlobalId(axis), Box::new(move |p| p[a])));
        checks.push((format!("local id {axis}"), Builtin::LocalId(axis), Box::new(move |p| p[a] % size[a])));
        checks.push((format!("workgroup id {axis}"), Builtin::WorkgroupId(axis), Box::new(move |p| p[a] / size[a])));
        checks.push((format!("workgroups {axis}"), Builtin::NumWorkgroups(axis), Box::new(move |_| grid[a])));
        checks.push((format!("workgroup size {axis}"), Builtin::WorkgroupSize(axis), Box::new(move |_| size[a])));
    }
    let local = move |p: [u32; 3]| p[0] % size[0] + size[0] * (p[1] % size[1] + size[1] * (p[2] % size[2]));
    checks.push(("local index".to_owned(), Builtin::LocalIndex, Box::new(local)));
    for (name, builtin, value) in checks {
        let program = Program::wrapped(
            vec![BufferDecl::output("out", 0, DataType::U32).with_count(total)],
            size,
            vec![Node::store("out", &index, Expr::Builtin(builtin) + Expr::u32(1))],
        );
        let place = |i: u32| [i % whole[0], i / whole[0] % whole[1], i / whole[0] / whole[1]];
        let results = u32s((0..total).map(|i| value(place(i)) + 1));
        let mut case = Case::new(program, Vec::new());
        case.grid = Some(grid);
        tests.push(Test::new(format!("launch/{name}"), case).gives(vec![results]));
    }
}

fn domains(tests: &mut Vec<Test>) {
    let mark = || vec![Node::atomic(vyre_foundation::ir::AtomicOp::Add, "count", Expr::u32(0), Expr::u32(1))];
    let counter = || BufferDecl::read_write("count", 0, DataType::U32).with_count(1);
    let counted = |name: &str, case: Case, count: u32, rest: Vec<Vec<u8>>| {
        let results = [vec![u32s([count])], rest].concat();
        Test::new(format!("launch/{name}"), case).gives(results)
    };
    // Nothing depends on an id: one workgroup.
    let first = Program::wrapped(
        vec![counter(), BufferDecl::output("out", 1, DataType::U32).with_count(70)],
        [32, 1, 1],
        mark(),
    );
    tests.push(counted("no id", Case::new(first.clone(), vec![u32s([0])]), 32, vec![vec![0; 280]]));
    // One invocation for each element that an id can name, in whole workgroups.
    let store = Node::store("out", Expr::global_id(0), Expr::u32(7));
    let indexed = first.clone().with_body([mark(), vec![store.clone()]].concat());
    tests.push(counted("indexed", Case::new(indexed, vec![u32s([0])]), 96, vec![u32s([7; 70])]));
    // One for each that passes a condition.
    let passes = Node::if_then(Expr::global_id(0).lt(Expr::u32(33)), [mark(), vec![store]].concat());
    let compared = first.clone().with_body(vec![passes]);
    let results = vec![u32s((0..70).map(|i| if i < 33 { 7 } else { 0 }))];
    tests.push(counted("compared", Case::new(compared, vec![u32s([0])]), 33, results));
    // The declared domain, from a buffer's length.
    let declared = Program::wrapped(vec![counter(), BufferDecl::read("in", 1, DataType::F16)], [4, 2, 1], mark())
        .with_domain([Expr::len("in") / Expr::u32(2), Expr::u32(3), Expr::u32(1)]);
    tests.push(counted("domain", Case::new(declared, vec![u32s([0]), vec![0; 36]]), 12 * 4, Vec::new()));
    // A grid given with the dispatch comes first; an empty one runs nothing.
    for (grid, count) in [([3, 1, 1], 96), ([1, 2, 2], 128), ([0, 1, 1], 0), ([2, 0, 5], 0)] {
        let mut case = Case::new(first.clone(), vec![u32s([0])]);
        case.grid = Some(grid);
        let name = format!("grid {}x{}x{}", grid[0], grid[1], grid[2]);
        tests.push(counted(&name, case, count, vec![vec![0; 280]]));
    }
    // A result of open length is as long as the first input of open length.
    let open = Program::wrapped(
        vec![BufferDecl::read("in", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)) * Expr::u32(2))],
    );
    let case = Case::new(open, vec![u32s(0..100)]);
    tests.push(Test::new("launch/open result", case).gives(vec![u32s((0..100).map(|i| i * 2))]));
    // What nothing stores to is zero; what is read_write keeps its bytes.
    let untouched = Program::wrapped(
        vec![
            BufferDecl::read_write("kept", 0, DataType::U32),
            BufferDecl::output("out", 1, DataType::U32).with_count(3),
        ],
        [4, 1, 1],
        Vec::new(),
    );
    let case = Case::new(untouched, vec![u32s([7, 8])]);
    tests.push(Test::new("launch/untouched", case).gives(vec![u32s([7, 8]), vec![0; 12]]));
    let case = Case::new(Program::empty(), Vec::new());
    tests.push(Test::new("launch/empty program", case).gives(Vec::new()));
}

fn refusals(tests: &mut Vec<Test>) {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U32).with_count(4),
            BufferDecl::output("out", 1, DataType::U32).with_count(4),
        ],
        [4, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
    );
    let open = program.clone().with_buffers(vec![
        BufferDecl::read("in", 0, DataType::U32),
        BufferDecl::output("out", 1, DataType::U32).with_count(4),
    ]);
    let unbounded = program.clone().with_body(vec![Node::store("out", Expr::u32(0), Expr::global_id(0))]);
    let huge = program.clone().with_workgroup_size([1025, 1, 1]);
    let unknown = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32)],
        [1, 1, 1],
        vec![Node::store("out", Expr::u32(0), Expr::u32(1))],
    );
    for (name, program, inputs) in [
        ("missing input", program.clone(), vec![]),
        ("too many inputs", program.clone(), vec![vec![0; 16], vec![0; 16]]),
        ("short input", program.clone(), vec![vec![0; 12]]),
        ("long input", program, vec![vec![0; 20]]),
        ("nothing bounds the ids", unbounded, vec![vec![0; 16]]),
        ("half an element", open, vec![vec![0; 18]]),
        ("workgroup too large", huge, vec![vec![0; 16]]),
        ("unknown length", unknown, vec![]),
    ] {
        let mut test = Test::new(format!("launch/refused/{name}"), Case::new(program, inputs));
        test.expectation = Expectation::Error;
        tests.push(test);
    }
}
