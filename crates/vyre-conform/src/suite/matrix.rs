//! Matrix fragments. The places of the elements are computed here from the table in the IR's documentation, and so are the
//! results: in f64, rounded once.

use half::{bf16, f16};
use vyre_foundation::ir::{BufferDecl, Builtin, DataType, Expr, MatrixKind, Node, Program};

use super::values::u32s;
use super::{Expectation, Test};
use crate::compare::Rules;
use crate::generate::Case;

const ROWS: usize = 16;
const COLUMNS: usize = 8;
/// Registers that hold one row of A or one column of B, whatever the kind.
const WORDS: usize = 8;

pub(super) fn add(tests: &mut Vec<Test>, rules: &Rules) {
    for &kind in MatrixKind::ALL {
        let name = kind.name();
        let mut next = numbers();
        tests.push(tiles(format!("{name}/whole numbers"), kind, &mut || f64::from((next() % 9) as i8 - 4)));
        let mut next = numbers();
        tests.push(tiles(format!("{name}/fractions"), kind, &mut || fraction(next())));
        if rules.exact {
            tests.push(special(kind));
        }
        tests.push(product(kind));
        let mut half = tiles(format!("{name}/half a subgroup"), kind, &mut || 0.0);
        half.case.program = tile_program(kind, 48);
        half.expectation = Expectation::Error;
        tests.push(half);
    }
}

fn numbers() -> impl FnMut() -> u32 {
    let mut state = 1u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    }
}

/// Between -1/2 and 1/2, with more digits than any of the kinds has.
fn fraction(bits: u32) -> f64 {
    f64::from(bits & 0xff_ffff) / f64::from(1 << 24) - 0.5
}

/// The bits of one element, and the value that they have.
fn encode(kind: MatrixKind, value: f64) -> (u32, f64) {
    match kind {
        MatrixKind::F16 => (f16::from_f64(value).to_bits().into(), f16::from_f64(value).into()),
        MatrixKind::Bf16 => (bf16::from_f64(value).to_bits().into(), bf16::from_f64(value).into()),
        MatrixKind::Tf32 => {
            let bits = (value as f32).to_bits();
            (bits, f32::from_bits(bits >> 13 << 13).into())
        }
    }
}

/// Rows (of A) or columns (of B): the values, and the words that hold them.
struct Lines {
    values: Vec<Vec<f64>>,
    words: Vec<u32>,
}

fn lines(kind: MatrixKind, count: usize, words: usize, value: &mut dyn FnMut() -> f64) -> Lines {
    let in_word = if kind == MatrixKind::Tf32 { 1 } else { 2 };
    let mut all = Lines { values: Vec::new(), words: Vec::new() };
    for _ in 0..count {
        let line: Vec<(u32, f64)> = (0..words * in_word).map(|_| encode(kind, value())).collect();
        all.words
            .extend(line.chunks(in_word).map(|some| some.iter().rev().fold(0, |word, (bits, _)| word << 16 | bits)));
        all.values.push(line.into_iter().map(|(_, value)| value).collect());
    }
    all
}

fn sum(start: f32, a: &[f64], b: &[f64]) -> f32 {
    a.iter().zip(b).fold(f64::from(start), |sum, (a, b)| sum + a * b) as f32
}

fn lane() -> Expr {
    Expr::Builtin(Builtin::SubgroupLane)
}

fn row() -> Expr {
    lane() / Expr::u32(4)
}

fn part() -> Expr {
    lane() % Expr::u32(4)
}

/// Words of a line, from the first word of the tile on; the lines of a tile lie behind each other.
fn a_words(buffer: &str, first: Expr) -> Expr {
    let word = |line: u32, step: u32| {
        let at = first.clone() + (row() + Expr::u32(line)) * Expr::u32(WORDS as u32) + part() + Expr::u32(step);
        Expr::load(buffer, at)
    };
    Expr::construct(DataType::vector(DataType::U32, 4), vec![word(0, 0), word(8, 0), word(0, 4), word(8, 4)])
}

fn b_words(buffer: &str, first: Expr) -> Expr {
    let word =
        |step: u32| Expr::load(buffer, first.clone() + row() * Expr::u32(WORDS as u32) + part() + Expr::u32(step));
    Expr::construct(DataType::vector(DataType::U32, 2), vec![word(0), word(4)])
}

/// Where the four sums of a lane lie in a matrix with so many columns.
fn sum_places(first: &Expr, columns: u32) -> [Expr; 4] {
    [(0, 0), (0, 1), (8, 0), (8, 1)].map(|(line, column)| {
        first.clone() + (row() + Expr::u32(line)) * Expr::u32(columns) + part() * Expr::u32(2) + Expr::u32(column)
    })
}

fn store_sums(sums: &str, places: [Expr; 4]) -> Vec<Node> {
    let stores = places.into_iter().enumerate();
    stores.map(|(i, place)| Node::store("out", place, Expr::var(sums).lane(i as u8))).collect()
}

fn f32s(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    u32s(values.into_iter().map(f32::to_bits))
}

/// One tile for each of four subgroups.
fn tile_program(kind: MatrixKind, workgroup: u32) -> Program {
    const TILES: u32 = 4;
    let vec4 = DataType::vector(DataType::F32, 4);
    let tile = || Expr::var("tile");
    let c_first = tile() * Expr::u32((ROWS * COLUMNS) as u32);
    let c = sum_places(&c_first, COLUMNS as u32).map(|place| Expr::load("c", place));
    let product = Expr::matrix_multiply_add(
        kind,
        a_words("a", tile() * Expr::u32((ROWS * WORDS) as u32)),
        b_words("b", tile() * Expr::u32((COLUMNS * WORDS) as u32)),
        Expr::construct(vec4, c.to_vec()),
    );
    let mut body = vec![Node::let_bind("tile", Expr::global_id(0) / Expr::u32(32)), Node::let_bind("d", product)];
    body.extend(store_sums("d", sum_places(&c_first, COLUMNS as u32)));
    let count = |lines: usize, words: usize| TILES * (lines * words) as u32;
    Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32).with_count(count(ROWS, WORDS)),
            BufferDecl::read("b", 1, DataType::U32).with_count(count(COLUMNS, WORDS)),
            BufferDecl::read("c", 2, DataType::F32).with_count(count(ROWS, COLUMNS)),
            BufferDecl::output("out", 3, DataType::F32).with_count(count(ROWS, COLUMNS)),
        ],
        [workgroup, 1, 1],
        body,
    )
}

fn tiles(name: String, kind: MatrixKind, value: &mut dyn FnMut() -> f64) -> Test {
    let (mut a_bytes, mut b_bytes, mut c_all, mut out) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..4 {
        let (a, b) = (lines(kind, ROWS, WORDS, value), lines(kind, COLUMNS, WORDS, value));
        let c: Vec<f32> = (0..ROWS * COLUMNS).map(|_| value() as f32).collect();
        for (i, &c) in c.iter().enumerate() {
            out.push(sum(c, &a.values[i / COLUMNS], &b.values[i % COLUMNS]));
        }
        a_bytes.extend(u32s(a.words));
        b_bytes.extend(u32s(b.words));
        c_all.extend(c);
    }
    let mut case = Case::new(tile_program(kind, 64), vec![a_bytes, b_bytes, f32s(c_all)]);
    case.grid = Some([2, 1, 1]);
    Test::new(name, case).gives(vec![f32s(out)])
}

/// Infinities and NaN spread over rows and columns; the smallest numbers are kept.
fn special(kind: MatrixKind) -> Test {
    let tiny = if kind == MatrixKind::F16 { 2f64.powi(-24) } else { 2f64.powi(-60) };
    let specials = [f64::INFINITY, 1.0, 0.0, f64::NAN, tiny, -tiny, f64::NEG_INFINITY, 0.5];
    let mut next = numbers();
    let mut at = 0u32;
    // Few of them, so that most sums stay numbers.
    let mut value = || {
        at += 1;
        if at % 37 == 5 { specials[next() as usize % specials.len()] } else { tiny * f64::from(at % 3) }
    };
    tiles(format!("{}/special values", kind.name()), kind, &mut value)
}

/// A product of 32 rows by 16 columns in three steps of depth: two subgroups share what they need through workgroup memory, and
/// each workgroup makes eight columns.
fn product(kind: MatrixKind) -> Test {
    const STEPS: usize = 3;
    let mut next = numbers();
    let mut value = || fraction(next());
    let (a, b) = (lines(kind, 32, STEPS * WORDS, &mut value), lines(kind, 16, STEPS * WORDS, &mut value));
    let out = a.values.iter().flat_map(|a| b.values.iter().map(|b| sum(0.0, a, b)));
    let (line, words) = (Expr::u32((STEPS * WORDS) as u32), Expr::u32(WORDS as u32));
    let (local, column) = (|| Expr::local_id(0), || Expr::workgroup_id(0) * Expr::u32(COLUMNS as u32));
    let word = |i: Expr| Expr::var("step") * words.clone() + i % words.clone();
    let mut round = Vec::new();
    for i in 0..4 {
        let i = || local() + Expr::u32(i * 64);
        let from = i() / words.clone() * line.clone() + word(i());
        round.push(Node::store("tile_a", i(), Expr::load("a", from)));
    }
    let from = (column() + local() / words.clone()) * line + word(local());
    round.push(Node::store("tile_b", local(), Expr::load("b", from)));
    round.push(Node::barrier());
    let first = Expr::Builtin(Builtin::SubgroupId) * Expr::u32((ROWS * WORDS) as u32);
    let tiles = (a_words("tile_a", first), b_words("tile_b", Expr::u32(0)));
    round.push(Node::assign("sums", Expr::matrix_multiply_add(kind, tiles.0, tiles.1, Expr::var("sums"))));
    round.push(Node::barrier());
    let vec4 = DataType::vector(DataType::F32, 4);
    let mut body = vec![
        Node::var("sums", vec4.clone(), Expr::construct(vec4, Vec::new())),
        Node::for_range("step", Expr::u32(0), Expr::u32(STEPS as u32), round),
    ];
    let first = Expr::Builtin(Builtin::SubgroupId) * Expr::u32((ROWS * 16) as u32) + column();
    body.extend(store_sums("sums", sum_places(&first, 16)));
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32).with_count(a.words.len() as u32),
            BufferDecl::read("b", 1, DataType::U32).with_count(b.words.len() as u32),
            BufferDecl::output("out", 2, DataType::F32).with_count(32 * 16),
            BufferDecl::workgroup("tile_a", 0, DataType::U32).with_count((32 * WORDS) as u32),
            BufferDecl::workgroup("tile_b", 0, DataType::U32).with_count((COLUMNS * WORDS) as u32),
        ],
        [64, 1, 1],
        body,
    );
    let out = f32s(out);
    let mut case = Case::new(program, vec![u32s(a.words), u32s(b.words)]);
    case.grid = Some([2, 1, 1]);
    Test::new(format!("{}/product", kind.name()), case).gives(vec![out])
}
