//! Values that NVIDIA's assembler gets wrong where they are written in the plain way. Random programs found these; ptxas 12.9 and 13.0 have them.
//!
//! - Where a branch says that `x` is zero, `not x` is taken for zero, too: `if x == 0 { y = ~x & 31; }` gives 0. A difference is not.
//! - `min(i32(max(x, 0u)), 0)` gives 0 with the driver's own assembler (580): the greater of `x` and nothing is `x`, which the simplifier knows.
//! - Differences of two floats that it knows are rounded up or down wrongly where they lie in the middle: `0.19557583 - 2.75` has an odd last bit.
//!   It knows what is made of counters, too, in loops that it writes out. A product with one and what is added is computed on the device.
//! - Of `(x | -5) >> 1` it takes the sign for none, and leaves out what depends on it: `((x | -5) >> 1) % 7` was 7 too much. Of `x >> 1 | -5 >> 1` it
//!   knows the sign.
//! - Of `max(max(x, -y), z)` on whole numbers it makes one instruction of three operands, and forgets the sign of the second one. So no `neg` is
//!   written; but it makes negations by itself, of products with -1, of quotients by what it finds out to be one, and of differences from what it finds
//!   out to be zero. As the first operand they are kept, and a choice is not made one instruction.
//! - A choice between `-0.0` and another whole number is made with integers and converted, and gives `0.0`. A choice of bits is not.

use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Binary, Block, End, Inst, Kernel, Op, Scalar, Value, each_use};

/// How the lesser or the greater of two whole numbers is to be written.
#[derive(Debug, PartialEq)]
pub(super) enum Extreme {
    AsItIs,
    Swapped,
    /// As a comparison and a choice.
    Chosen,
}

#[derive(Default)]
pub(super) struct Pitfalls {
    /// Numbers that something is decided by, by their [`Pitfalls::bits`].
    compared: HashSet<Value>,
    /// What has the bits of another number.
    same_bits: HashMap<Value, Value>,
    pub(super) minus_zeros: HashSet<Value>,
    /// What has the bits of a negative constant, with what else it is made of and the constant.
    pub(super) signed_by: HashMap<Value, (Value, Value)>,
    negative: HashSet<Value>,
    /// Whole numbers that the assembler may make by a negation.
    negations: HashSet<Value>,
    /// Those that it makes so only where it finds a zero that nobody else found.
    differences: HashSet<Value>,
    /// What is made of nothing but constants and counters of loops.
    known: Vec<bool>,
}

impl Pitfalls {
    pub(super) fn of(kernel: &Kernel) -> Pitfalls {
        let mut pitfalls = Pitfalls { known: vec![false; kernel.values.len()], ..Pitfalls::default() };
        pitfalls.block(kernel, &kernel.body);
        pitfalls
    }

    fn block(&mut self, kernel: &Kernel, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    self.note(kernel, *value, op);
                    let mut known = !matches!(op, Op::Builtin(_) | Op::Length(_) | Op::Load { .. } | Op::Matrix(_));
                    match op {
                        // Whichever lane it comes from.
                        Op::Subgroup(_, number, _) => known = self.known[number.index()],
                        _ => each_use(inst, &mut |operand| known &= self.known[operand.index()]),
                    }
                    self.known[value.index()] = known;
                }
                Inst::If { then, otherwise, results, .. } => {
                    self.block(kernel, then);
                    self.block(kernel, otherwise);
                    for (place, result) in results.iter().enumerate() {
                        let gives_known = |way: &Block| match &way.end {
                            End::Yield(given) => self.known[given[place].index()],
                            _ => true,
                        };
                        self.known[result.index()] = gives_known(then) && gives_known(otherwise);
                    }
                }
                Inst::Loop(inner) => {
                    if let Some(counter) = &inner.counter {
                        self.known[counter.value.index()] = self.known[counter.from.index()];
                    }
                    // What rounds make of it is not asked: where it is not known, neither is what is added to it, or nothing is lost.
                    for ((param, result), init) in inner.params.iter().zip(&inner.results).zip(&inner.init) {
                        self.known[param.index()] = self.known[init.index()];
                        self.known[result.index()] = self.known[init.index()];
                    }
                    self.block(kernel, &inner.body);
                }
                _ => {}
            }
        }
    }

    /// Something is decided by these bits.
    pub(super) fn is_compared(&self, value: Value) -> bool {
        self.compared.contains(&self.bits(value))
    }

    /// The first number that has these bits.
    fn bits(&self, value: Value) -> Value {
        self.same_bits.get(&value).copied().unwrap_or(value)
    }

    /// The assembler may find out both numbers that are added or subtracted.
    pub(super) fn adds_known(&self, op: Binary, a: Value, b: Value) -> bool {
        matches!(op, Binary::Add | Binary::Sub) && self.known[a.index()] && self.known[b.index()]
    }

    /// How the lesser or the greater of these whole numbers is to be written, so that no sign is forgotten.
    pub(super) fn extreme(&self, left: Value, right: Value) -> Extreme {
        let danger =
            |value| 2 * u8::from(self.negations.contains(&value)) + u8::from(self.differences.contains(&value));
        match (danger(left), danger(right)) {
            (2, 2) => Extreme::Chosen,
            (left, right) if right > left => Extreme::Swapped,
            _ => Extreme::AsItIs,
        }
    }

    fn note(&mut self, kernel: &Kernel, value: Value, op: &Op) {
        let is_minus_zero = |literal: &Literal| match literal {
            Literal::F32(number) => number.to_bits() == (-0.0f32).to_bits(),
            Literal::F64(number) => number.to_bits() == (-0.0f64).to_bits(),
            _ => false,
        };
        let is_negative = |literal: &Literal| match literal {
            Literal::I32(number) => *number < 0,
            Literal::U32(number) => number >> 31 == 1,
            Literal::I64(number) => *number < 0,
            Literal::U64(number) => number >> 63 == 1,
            _ => false,
        };
        let of_kind = match op {
            Op::Binary(Binary::Div | Binary::Rem, ..) => Some(&mut self.negations),
            Op::Binary(Binary::Mul, a, b) if [a, b].iter().any(|factor| self.negative.contains(factor)) => {
                Some(&mut self.negations)
            }
            Op::Binary(Binary::Sub, ..) => Some(&mut self.differences),
            Op::BitCast(of) if self.negations.contains(of) => Some(&mut self.negations),
            Op::BitCast(of) if self.differences.contains(of) => Some(&mut self.differences),
            _ => None,
        };
        of_kind.into_iter().for_each(|values| _ = values.insert(value));
        if let Op::BitCast(of) = op {
            self.same_bits.insert(value, self.bits(*of));
        }
        match op {
            Op::Const(literal) if is_minus_zero(literal) => _ = self.minus_zeros.insert(value),
            Op::Const(literal) if is_negative(literal) => _ = self.negative.insert(value),
            Op::Binary(Binary::Or, a, b) => {
                let pairs = [(*a, *b), (*b, *a)];
                let pair = pairs.into_iter().find(|(_, sign)| self.negative.contains(sign));
                pair.into_iter().for_each(|pair| _ = self.signed_by.insert(value, pair));
            }
            Op::BitCast(of) if is_whole(kernel, value) && is_whole(kernel, *of) => {
                let pair = self.signed_by.get(of).copied();
                pair.into_iter().for_each(|pair| _ = self.signed_by.insert(value, pair));
                if self.negative.contains(of) {
                    self.negative.insert(value);
                }
            }
            Op::Binary(Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge, a, b) => {
                self.compared.extend([*a, *b].map(|number| self.bits(number)));
            }
            Op::Cast(of) if kernel.values[value.index()].ty.scalar == Scalar::Bool => {
                _ = self.compared.insert(self.bits(*of))
            }
            _ => {}
        }
    }
}

fn is_whole(kernel: &Kernel, value: Value) -> bool {
    matches!(kernel.values[value.index()].ty.scalar, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64)
}

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{Options, lower};
    use vyre_wgsl::{ImportOptions, import};

    use crate::ptx::{Target, emit, lowering};

    fn text(body: &str) -> String {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> words: array<u32, 64>;
             @group(0) @binding(1) var<storage, read_write> numbers: array<f32, 64>;
             @compute @workgroup_size(64) fn main(@builtin(local_invocation_id) id: vec3u) {{ {body} }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn what_a_branch_says_to_be_zero_is_not_inverted() {
        let decided = text("let x = words[id.x]; if (x == 0u) { words[id.x] = ~x & (id.x | 31u); }");
        assert!(decided.contains("sub.u32") && !decided.contains("not.b32"), "{decided}");
        let cast = text("let x = i32(words[id.x]); if (u32(x) == 0u) { words[id.x] = u32(~x & i32(id.x | 31u)); }");
        assert!(cast.contains("sub.u32") && !cast.contains("not.b32"), "{cast}");
        let plain = text("let x = words[id.x]; words[id.x] = ~x & (id.x | 31u);");
        assert!(plain.contains("not.b32") && !plain.contains("sub.u32"), "{plain}");
    }

    #[test]
    fn nothing_is_not_asked_for_the_greater() {
        for greater in ["max(0u, words[id.x])", "max(words[id.x], 0u)"] {
            let text = text(&format!("words[id.x] = u32(min(i32({greater}), 0));"));
            assert!(text.contains("min.s32") && !text.contains("max.u32"), "{text}");
        }
    }

    #[test]
    fn differences_of_known_numbers_are_left_to_the_device() {
        let rounds = "for (var i = 0u; i < 2000u; i++) { numbers[i & 63u] += f32(i) * 0.195575833 - 2.75; }";
        let counted = text(rounds);
        assert!(counted.contains("fma.rn.f32") && counted.contains("0fbf800000"), "{counted}");
        let alone = text("numbers[id.x] = subgroupBroadcastFirst(0.195575833) - 2.75;");
        assert!(alone.contains("fma.rn.f32"), "{alone}");
        let shuffled = text("numbers[id.x] = subgroupShuffle(0.195575833, id.x) - 2.75;");
        assert!(shuffled.contains("fma.rn.f32"), "{shuffled}");
        let loaded = text("numbers[id.x] = numbers[id.x] * 0.195575833 - 2.75;");
        assert!(!loaded.contains("fma.rn.f32"), "{loaded}");
    }

    #[test]
    fn minus_zero_is_chosen_as_bits() {
        let minus = text("numbers[id.x] = select(-1.0, -0.0, words[id.x] == 3u);");
        assert!(minus.contains("selp.b32") && !minus.contains("selp.f32"), "{minus}");
        let plain = text("numbers[id.x] = select(-1.0, 0.0, words[id.x] == 3u);");
        assert!(plain.contains("selp.f32"), "{plain}");
    }

    #[test]
    fn negations_that_the_assembler_makes_come_first_among_three() {
        let of_three = |inner: &str| {
            text(&format!(
                "let x = i32(words[id.x]); let y = i32(words[id.x + 1u]);
                 words[id.x] = u32(max({inner}, i32(words[id.x + 2u])));"
            ))
        };
        for (last, first) in [
            ("max(x, x / y)", "max(x / y, x)"),
            ("max(y, x * -3)", "max(x * -3, y)"),
            ("max(x, y - x)", "max(y - x, x)"),
        ] {
            assert_eq!(of_three(last), of_three(first));
        }
        assert_ne!(of_three("max(x, y)"), of_three("max(y, x)"));
        assert!(of_three("max(y / x, x / y)").contains("setp.gt.s32"));
        assert!(!of_three("max(x, y)").contains("setp.gt.s32"));
    }

    #[test]
    fn signs_of_constants_are_shifted_by_themselves() {
        let shifts = |what: &str| {
            let text = text(&format!("words[id.x] = u32((({what}) >> 1u) % 7);"));
            let (before, _) = text.split_once("mul.hi").expect("a remainder of a constant is made by a product");
            before.matches("shr.s32").count()
        };
        for negative in ["i32(words[id.x]) | -5", "-5 | i32(words[id.x])", "i32(words[id.x] | 0xfffffffbu)"] {
            assert_eq!(shifts(negative), 2, "{negative}");
        }
        assert_eq!(shifts("i32(words[id.x]) | 5"), 1);
    }
}
