//! Minima and maxima of f32 for which the device's own instruction gives the bits that the IR's choice gives: the second operand where it
//! is less (or more), else the first.
//!
//! The instruction has another opinion of two operands: of NaN, and of zeros whose signs differ. So what each value can be is
//! followed through the kernel: signs, zeros and NaN, also around loops and behind comparisons, which are true of numbers only.

use std::collections::HashMap;

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Binary, Block, End, Inst, Kernel, Loop, Op, Scalar, Unary, Value};

/// What a float can be, a bit each.
type Can = u8;
const NAN: Can = 1;
const MINUS_ZERO: Can = 2;
const ZERO: Can = 4;
/// Less than zero, infinity included.
const NEGATIVE: Can = 8;
/// More than zero, infinity included.
const POSITIVE: Can = 16;
const ANYTHING: Can = 31;
const ZEROS: Can = MINUS_ZERO | ZERO;

/// The instruction for a minimum or maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Minimum {
    /// NaN gives way to a number; the first operand is one.
    Plain,
    /// NaN stays; the second operand is a number.
    KeepsNan,
}

/// The minima and maxima of f32 that are one instruction.
pub(super) fn minima(kernel: &Kernel) -> HashMap<Value, Minimum> {
    let mut known = Known {
        kernel,
        can: vec![0; kernel.values.len()],
        comparisons: HashMap::new(),
        numbers: Vec::new(),
        loops: Vec::new(),
        minima: HashMap::new(),
        has_choices: false,
        changed: false,
    };
    known.block(&kernel.body, &[]);
    // What a value can be only grows, so that this ends.
    while known.has_choices && known.changed {
        known.changed = false;
        known.minima.clear();
        known.block(&kernel.body, &[]);
    }
    known.minima
}

struct Known<'k> {
    kernel: &'k Kernel,
    can: Vec<Can>,
    /// Conditions that hold for numbers only, and their operands.
    comparisons: HashMap<Value, Vec<Value>>,
    /// Values that are numbers where the walk is.
    numbers: Vec<Value>,
    loops: Vec<&'k Loop>,
    minima: HashMap<Value, Minimum>,
    has_choices: bool,
    changed: bool,
}

impl<'k> Known<'k> {
    fn is_float(&self, value: Value) -> bool {
        self.kernel.values[value.index()].ty.scalar == Scalar::F32
    }

    fn of(&self, value: Value) -> Can {
        let can = self.can[value.index()];
        if self.numbers.contains(&value) { can & !NAN } else { can }
    }

    fn add(&mut self, value: Value, can: Can) {
        let all = self.can[value.index()] | can;
        self.changed |= all != self.can[value.index()];
        self.can[value.index()] = all;
    }

    fn give(&mut self, from: &[Value], to: &[Value]) {
        for (from, to) in from.iter().zip(to) {
            self.add(*to, self.of(*from));
        }
    }

    /// `results` are those of the `If` that the block is of.
    fn block(&mut self, block: &'k Block, results: &[Value]) {
        for inst in &block.insts {
            self.inst(inst);
        }
        let around = self.loops.last().copied();
        match (&block.end, around) {
            (End::Yield(values), _) => self.give(values, results),
            (End::Continue(values), Some(around)) => self.give(values, &around.params),
            (End::Break(values), Some(around)) => self.give(values, &around.results),
            _ => {}
        }
    }

    fn inst(&mut self, inst: &'k Inst) {
        match inst {
            Inst::Let(value, op) => {
                self.note(*value, op);
                if self.is_float(*value) {
                    let can = self.result(op);
                    self.add(*value, can);
                }
            }
            Inst::Atomic { result: Some(result), .. } => self.add(*result, ANYTHING),
            Inst::If { cond, then, otherwise, results } => {
                let before = self.numbers.len();
                self.numbers.extend(self.comparisons.get(cond).into_iter().flatten());
                self.block(then, results);
                self.numbers.truncate(before);
                self.block(otherwise, results);
            }
            Inst::Loop(inner) => {
                self.give(&inner.init, &inner.params);
                self.loops.push(inner);
                self.block(&inner.body, &[]);
                self.loops.pop();
                if inner.counter.is_some() {
                    self.give(&inner.params, &inner.results);
                }
            }
            Inst::Store { .. } | Inst::Atomic { .. } | Inst::Barrier(_) => {}
        }
    }

    /// Remembers what a value says of others.
    fn note(&mut self, value: Value, op: &Op) {
        match *op {
            Op::Binary(Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge | Binary::Eq, a, b) if self.is_float(a) => {
                self.comparisons.insert(value, vec![a, b]);
            }
            Op::Binary(Binary::And, a, b) => {
                let of = |value: Value| self.comparisons.get(&value).cloned().unwrap_or_default();
                self.comparisons.insert(value, [of(a), of(b)].concat());
            }
            Op::Binary(Binary::Min | Binary::Max, a, b) if self.is_float(a) => {
                self.has_choices = true;
                let (left, right) = (self.of(a), self.of(b));
                let zeros = (left | right) & ZEROS;
                let meet = left & ZEROS != 0 && right & ZEROS != 0 && zeros == ZEROS;
                let minimum = match (left & NAN, right & NAN) {
                    _ if meet => None,
                    (0, _) => Some(Minimum::Plain),
                    (_, 0) => Some(Minimum::KeepsNan),
                    _ => None,
                };
                minimum.map(|minimum| self.minima.insert(value, minimum));
            }
            _ => {}
        }
    }

    fn result(&self, op: &Op) -> Can {
        match *op {
            Op::Const(Literal::F32(known)) => class(known),
            Op::Cast(from) => match self.kernel.values[from.index()].ty.scalar {
                Scalar::U32 | Scalar::U64 | Scalar::Bool => ZERO | POSITIVE,
                Scalar::I32 | Scalar::I64 => ZERO | POSITIVE | NEGATIVE,
                _ => ANYTHING,
            },
            Op::Unary(Unary::Neg, a) => negative(self.of(a)),
            Op::Unary(Unary::Abs, a) => {
                let can = self.of(a);
                can & NAN | either(can & ZEROS, ZERO) | either(can & (POSITIVE | NEGATIVE), POSITIVE)
            }
            Op::Unary(Unary::Sqrt, a) => {
                let can = self.of(a);
                can & (ZEROS | POSITIVE) | either(can & (NAN | NEGATIVE), NAN)
            }
            Op::Binary(Binary::Add, a, b) => sum(self.of(a), self.of(b)),
            Op::Binary(Binary::Sub, a, b) => sum(self.of(a), negative(self.of(b))),
            Op::Binary(Binary::Mul, a, b) => self.product(a, b),
            Op::Fma(a, b, c) => {
                let product = self.product(a, b);
                // What is left of a product that nearly is zero keeps its sign, whatever zero is added to it.
                let left = either(product & NEGATIVE, MINUS_ZERO) | either(product & POSITIVE, ZERO);
                either(self.of(c), sum(product, self.of(c)) | left)
            }
            Op::Binary(Binary::Min | Binary::Max, a, b) => either(self.of(b), self.of(a) | self.of(b) & !NAN),
            Op::Select(cond, a, b) => {
                let chosen = match self.comparisons.get(&cond).is_some_and(|of| of.contains(&a)) {
                    true => self.of(a) & !NAN,
                    false => self.of(a),
                };
                chosen | self.of(b)
            }
            _ => ANYTHING,
        }
    }

    fn product(&self, a: Value, b: Value) -> Can {
        let (x, y) = (self.of(a), self.of(b));
        if a == b {
            // A square may be too small for a float.
            return x & NAN | either(x & !NAN, ZERO) | either(x & (POSITIVE | NEGATIVE), POSITIVE);
        }
        let both = |left: Can, right: Can| x & left != 0 && y & right != 0;
        let (plus, minus) = (ZERO | POSITIVE, MINUS_ZERO | NEGATIVE);
        let mut can = (x | y) & NAN;
        if both(ZEROS, POSITIVE | NEGATIVE) || both(POSITIVE | NEGATIVE, ZEROS) {
            can |= NAN;
        }
        if both(plus, plus) || both(minus, minus) {
            can |= ZERO;
        }
        if both(plus, minus) || both(minus, plus) {
            can |= MINUS_ZERO;
        }
        if both(POSITIVE, POSITIVE) || both(NEGATIVE, NEGATIVE) {
            can |= POSITIVE;
        }
        if both(POSITIVE, NEGATIVE) || both(NEGATIVE, POSITIVE) {
            can |= NEGATIVE;
        }
        if x == 0 || y == 0 { 0 } else { can }
    }
}

fn either(test: Can, can: Can) -> Can {
    if test == 0 { 0 } else { can }
}

fn class(known: f32) -> Can {
    match known {
        _ if known.is_nan() => NAN,
        _ if known > 0.0 => POSITIVE,
        _ if known < 0.0 => NEGATIVE,
        _ if known.is_sign_negative() => MINUS_ZERO,
        _ => ZERO,
    }
}

fn negative(can: Can) -> Can {
    let to = |from: Can, to: Can| either(can & from, to);
    can & NAN | to(ZERO, MINUS_ZERO) | to(MINUS_ZERO, ZERO) | to(POSITIVE, NEGATIVE) | to(NEGATIVE, POSITIVE)
}

fn sum(a: Can, b: Can) -> Can {
    if a == 0 || b == 0 {
        return 0;
    }
    let opposite = a & POSITIVE != 0 && b & NEGATIVE != 0 || a & NEGATIVE != 0 && b & POSITIVE != 0;
    // Infinities of both signs make NaN, equal numbers of both signs zero.
    let mut can = (a | b) & (NAN | POSITIVE | NEGATIVE) | if opposite { NAN | ZERO } else { 0 };
    if a & ZERO != 0 && b & ZEROS != 0 || b & ZERO != 0 && a & ZEROS != 0 {
        can |= ZERO;
    }
    if a & MINUS_ZERO != 0 && b & MINUS_ZERO != 0 {
        can |= MINUS_ZERO;
    }
    can
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, MathOp, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use super::*;
    use crate::ptx::lowering;

    fn choices(block: &Block) -> usize {
        let of = |inst: &Inst| match inst {
            Inst::Let(_, Op::Binary(Binary::Min | Binary::Max, ..)) => 1,
            Inst::If { then, otherwise, .. } => choices(then) + choices(otherwise),
            Inst::Loop(inner) => choices(&inner.body),
            _ => 0,
        };
        block.insts.iter().map(of).sum()
    }

    /// Minima and maxima of a body over `x` and `y`, and how many of them are one instruction.
    fn count(body: Vec<Node>) -> (usize, usize) {
        let load = |at: u32| Expr::load("data", Expr::global_id(0) * Expr::u32(2) + Expr::u32(at));
        let mut all = vec![Node::let_bind("x", load(0)), Node::let_bind("y", load(1))];
        all.extend(body);
        let buffers = vec![BufferDecl::read("data", 0, DataType::F32), BufferDecl::read_write("out", 1, DataType::F32)];
        let program = Program::wrapped(buffers, [32, 1, 1], all);
        let options = lowering(Options::default());
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        (choices(&kernel.body), minima(&kernel).len())
    }

    fn store(value: Expr) -> Node {
        Node::store("out", Expr::global_id(0), value)
    }

    fn least(a: Expr, b: Expr) -> Expr {
        Expr::math(MathOp::Min, vec![a, b])
    }

    #[test]
    fn what_may_be_nan_or_a_zero_of_either_sign_is_chosen_by_comparing() {
        let (x, y) = (|| Expr::var("x"), || Expr::var("y"));
        assert_eq!(count(vec![store(least(x(), y()))]), (1, 0));
        // A NaN among squares would give way to the other.
        assert_eq!(count(vec![store(least(x() * x(), y() * y()))]), (1, 0));
        assert_eq!(count(vec![store(least(x(), Expr::f32(0.0)))]), (1, 0));
        assert_eq!(count(vec![store(least(x(), Expr::f32(2.0)))]), (1, 1));
        assert_eq!(count(vec![store(least(Expr::f32(2.0), x()))]), (1, 1));
        // Numbers, but zeros may differ in sign.
        let both = least(x() * Expr::f32(3.0), y());
        assert_eq!(count(vec![Node::if_then((x() * Expr::f32(3.0)).lt(Expr::f32(1.0)), vec![store(both)])]).1, 0);
    }

    #[test]
    fn squares_that_were_compared_are_numbers_also_around_loops() {
        let (d, best) = (|| Expr::var("d"), || Expr::var("best"));
        let loops = |first: f32| {
            let body = vec![
                Node::let_bind("d", Expr::var("x") * Expr::var("x") + Expr::var("i").cast(DataType::F32)),
                Node::if_then(d().lt(Expr::var("y")), vec![Node::assign("best", least(best(), d()))]),
            ];
            let last = Expr::load("data", Expr::u32(0)).cast(DataType::U32);
            count(vec![
                Node::var("best", DataType::F32, Expr::f32(first)),
                Node::for_range("i", Expr::u32(0), last, body),
                store(best()),
            ])
        };
        let (all, one) = loops(1e30);
        assert!(all > 0 && one == all, "{one} of {all}");
        // A zero with a sign, or NaN, may be carried around.
        assert_eq!([loops(-0.0).1, loops(f32::NAN).1], [0, 0]);
    }

    const NUMBERS: [f32; 15] = [
        f32::NAN,
        f32::NEG_INFINITY,
        -f32::MAX,
        -1.5,
        -1.0,
        -f32::MIN_POSITIVE,
        -1e-45,
        -0.0,
        0.0,
        1e-45,
        f32::MIN_POSITIVE,
        1.0,
        1.5,
        f32::MAX,
        f32::INFINITY,
    ];

    #[test]
    fn results_are_foreseen() {
        for a in NUMBERS {
            assert_eq!(class(-a) & !NAN, negative(class(a)) & !NAN, "-{a}");
            for b in NUMBERS {
                let holds = |can: Can, result: f32| class(result) & can != 0;
                assert!(holds(sum(class(a), class(b)), a + b), "{a} + {b} = {}", a + b);
                let chosen = if b < a { b } else { a };
                assert!(holds(class(a) | class(b) & !NAN, chosen), "min({a}, {b}) = {chosen}");
            }
        }
    }
}
