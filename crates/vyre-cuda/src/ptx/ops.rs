//! Arithmetic. Every float operation names its rounding, so that nothing is contracted but what the optimiser did.

use std::fmt::Write;

use vyre_foundation::ir::{Literal, Math};
use vyre_foundation::kernel::{Binary, Op, Scalar, Unary, Value};
use vyre_spec::Diagnostic;

use super::bytes::Dot;
use super::minima::Minimum;
use super::pitfalls::Extreme;
use super::{Emitter, bits_suffix, line, malformed, not_expanded, suffix};

/// The oldest compute capability with minima that keep NaN.
const NAN_MINIMUM: u32 = 80;

/// Integers whose sign does not matter.
fn unsigned(scalar: Scalar) -> &'static str {
    if scalar.bits() == 64 { "u64" } else { "u32" }
}

/// Bits without a meaning.
fn untyped(scalar: Scalar) -> &'static str {
    match scalar.bits() {
        64 => "b64",
        16 => "b16",
        1 => "pred",
        _ => "b32",
    }
}

impl Emitter<'_> {
    pub(super) fn arithmetic(&mut self, value: Value, op: &Op) -> Result<(), Diagnostic> {
        let into = self.reg(value);
        let scalar = self.scalar(value);
        match op {
            Op::Const(literal) => self.constant(&into, literal),
            Op::Unary(op, operand) => {
                let (from, of) = (self.reg(*operand), self.scalar(*operand));
                if *op == Unary::RoughInverseSqrt && self.takes_no_subnormals(*operand) {
                    line!(self, "rsqrt.approx.ftz.{} {into}, {from}", suffix(of));
                } else if *op == Unary::Not && of != Scalar::Bool && self.pitfalls.is_compared(*operand) {
                    line!(self, "sub.u{} {into}, -1, {from}", of.bits());
                } else {
                    self.unary(*op, of, &into, &from)?;
                }
            }
            Op::Binary(op, left, right) => {
                let (a, b, of) = (self.reg(*left), self.reg(*right), self.scalar(*left));
                if let Some((dot, more)) = self.dot(*op, value, *left, *right) {
                    let words = dot.words.map(|word| self.reg(word));
                    let more = more.map_or("0".to_owned(), |more| self.reg(more));
                    let ty = if dot.signed { "s32" } else { "u32" };
                    line!(self, "dp4a.{ty}.{ty} {into}, {}, {}, {more}", words[0], words[1]);
                } else if let Some(minimum) = self.one_minimum(*op, value, *left) {
                    line!(self, "{minimum} {into}, {a}, {b}");
                } else if *op == Binary::Sub && self.constants.get(left) == Some(&0) {
                    self.negate(&into, &b);
                } else if matches!(of, Scalar::F32 | Scalar::F64) && self.pitfalls.adds_known(*op, *left, *right) {
                    self.add_on_device(*op, of, &into, &a, &b);
                } else if let (Binary::Shr, true, Some(&(bits, sign))) =
                    (*op, of.is_signed(), self.pitfalls.signed_by.get(left))
                {
                    let parts = [bits, sign].map(|part| {
                        let (from, shifted) = (self.reg(part), self.temp_of(of));
                        self.binary(Binary::Shr, of, &shifted, &from, &b).map(|()| shifted)
                    });
                    let [bits, sign] = parts;
                    line!(self, "or.{} {into}, {}, {}", untyped(of), bits?, sign?);
                } else if matches!(op, Binary::Min | Binary::Max) && of.is_signed() && !of.is_float() {
                    match self.pitfalls.extreme(*left, *right) {
                        Extreme::AsItIs => self.binary(*op, of, &into, &a, &b)?,
                        Extreme::Swapped => self.binary(*op, of, &into, &b, &a)?,
                        Extreme::Chosen => {
                            let takes_left = self.temp("%p");
                            let least = if *op == Binary::Min { Binary::Lt } else { Binary::Gt };
                            self.binary(least, of, &takes_left, &a, &b)?;
                            self.select(of, &into, &takes_left, &a, &b);
                        }
                    }
                } else {
                    self.binary(*op, of, &into, &a, &b)?;
                }
            }
            Op::Fma(a, b, c) => {
                let (a, b, c) = (self.reg(*a), self.reg(*b), self.reg(*c));
                if !scalar.is_float() {
                    return Err(malformed("fma of a type that is no float"));
                }
                line!(self, "fma.rn.{} {into}, {a}, {b}, {c}", suffix(scalar));
            }
            Op::Select(cond, yes, no) => {
                let as_bits = [yes, no].iter().any(|value| self.pitfalls.minus_zeros.contains(value));
                let (cond, yes, no) = (self.reg(*cond), self.reg(*yes), self.reg(*no));
                match as_bits {
                    true => line!(self, "selp.b{} {into}, {yes}, {no}, {cond}", scalar.bits()),
                    false => self.select(scalar, &into, &cond, &yes, &no),
                }
            }
            Op::Cast(operand) => {
                let (from, of) = (self.reg(*operand), self.scalar(*operand));
                self.cast(of, scalar, &into, &from);
            }
            Op::BitCast(operand) => {
                let (from, of) = (self.reg(*operand), self.scalar(*operand));
                match (of, scalar) {
                    (Scalar::F16, Scalar::U32 | Scalar::I32) => line!(self, "cvt.u32.u16 {into}, {from}"),
                    (Scalar::U32 | Scalar::I32, Scalar::F16) => line!(self, "cvt.u16.u32 {into}, {from}"),
                    _ => line!(self, "mov.{} {into}, {from}", untyped(scalar)),
                }
            }
            _ => return Err(malformed("an operation that is no arithmetic")),
        }
        Ok(())
    }

    fn constant(&mut self, into: &str, literal: &Literal) {
        let bits = literal.bits();
        match literal {
            Literal::Bool(true) => line!(self, "mov.pred {into}, -1"),
            Literal::Bool(false) => line!(self, "mov.pred {into}, 0"),
            Literal::U32(_) | Literal::I32(_) => line!(self, "mov.b32 {into}, {bits:#x}"),
            Literal::U64(_) | Literal::I64(_) => line!(self, "mov.b64 {into}, {bits:#x}"),
            Literal::F16(_) => line!(self, "mov.b16 {into}, {bits:#x}"),
            Literal::F32(_) => line!(self, "mov.f32 {into}, 0f{bits:08X}"),
            Literal::F64(_) => line!(self, "mov.f64 {into}, 0d{bits:016X}"),
        }
    }

    pub(super) fn select(&mut self, scalar: Scalar, into: &str, cond: &str, yes: &str, no: &str) {
        if scalar == Scalar::Bool {
            let (a, b) = (self.temp("%p"), self.temp("%p"));
            line!(self, "and.pred {a}, {cond}, {yes}");
            line!(self, "not.pred {b}, {cond}");
            line!(self, "and.pred {b}, {b}, {no}");
            line!(self, "or.pred {into}, {a}, {b}");
        } else {
            line!(self, "selp.{} {into}, {yes}, {no}, {cond}", bits_suffix(scalar));
        }
    }

    /// A sum or a difference that the assembler does not compute by itself: it rounds some wrongly.
    fn add_on_device(&mut self, op: Binary, scalar: Scalar, into: &str, a: &str, b: &str) {
        let one = if op == Binary::Sub { -1.0 } else { 1.0 };
        let factor = match scalar {
            Scalar::F64 => format!("0d{:016x}", f64::to_bits(one)),
            _ => format!("0f{:08x}", f32::to_bits(one as f32)),
        };
        line!(self, "fma.rn.{} {into}, {b}, {factor}, {a}", suffix(scalar));
    }

    /// A sum of products of bytes, and what is added to it.
    fn dot(&self, op: Binary, value: Value, left: Value, right: Value) -> Option<(Dot, Option<Value>)> {
        if op != Binary::Add {
            return None;
        }
        if let Some(dot) = self.dots.get(&value) {
            return Some((*dot, None));
        }
        let of = |value: Value| self.dots.get(&value).copied();
        of(right).map(|dot| (dot, Some(left))).or_else(|| of(left).map(|dot| (dot, Some(right))))
    }

    /// Whether the operand of an instruction may be taken for zero where it is subnormal: in fast arithmetic, or because it never is.
    fn takes_no_subnormals(&self, value: Value) -> bool {
        self.scalar(value) == Scalar::F32 && (self.kernel.math == Math::Fast || self.never_small[value.index()])
    }

    /// The instruction for a minimum or maximum of f32 that gives what the IR's choice gives: the second operand where it is less
    /// (or more), else the first.
    ///
    /// Fast arithmetic does not tell zeros apart and has no NaN.
    fn one_minimum(&self, op: Binary, value: Value, left: Value) -> Option<String> {
        let name = match op {
            Binary::Min => "min",
            Binary::Max => "max",
            _ => return None,
        };
        if self.scalar(left) != Scalar::F32 {
            return None;
        }
        match self.minima.get(&value) {
            _ if self.kernel.math == Math::Fast => Some(format!("{name}.f32")),
            Some(Minimum::Plain) => Some(format!("{name}.f32")),
            Some(Minimum::KeepsNan) if self.target.sm >= NAN_MINIMUM => Some(format!("{name}.NaN.f32")),
            _ => None,
        }
    }

    /// Computes an f16 operation in f32; exact for all that round once more to the same result.
    fn through_f32(
        &mut self,
        into: &str,
        operands: &[&str],
        compute: impl FnOnce(&mut Self, &str, &[String]) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let mut wide = Vec::with_capacity(operands.len());
        for operand in operands {
            let register = self.temp("%f");
            line!(self, "cvt.f32.f16 {register}, {operand}");
            wide.push(register);
        }
        let result = self.temp("%f");
        compute(self, &result, &wide)?;
        line!(self, "cvt.rn.f16.f32 {into}, {result}");
        Ok(())
    }

    fn unary(&mut self, op: Unary, scalar: Scalar, into: &str, from: &str) -> Result<(), Diagnostic> {
        let ty = suffix(scalar);
        match op {
            Unary::Neg if scalar == Scalar::F16 => line!(self, "xor.b16 {into}, {from}, 0x8000"),
            Unary::Neg if scalar.is_float() => line!(self, "neg.{ty} {into}, {from}"),
            Unary::Neg if scalar.bits() == 64 => line!(self, "neg.s64 {into}, {from}"),
            Unary::Neg => self.negate(into, from),
            Unary::Not => line!(self, "not.{} {into}, {from}", untyped(scalar)),
            Unary::Abs if scalar == Scalar::F16 => line!(self, "and.b16 {into}, {from}, 0x7fff"),
            Unary::Abs if scalar == Scalar::F32 && self.kernel.math == Math::Exact => {
                // Not `abs`: ptxas takes its result for a number, and so gets comparisons with NaN wrong.
                let word = self.temp("%r");
                line!(self, "mov.b32 {word}, {from}");
                line!(self, "and.b32 {word}, {word}, 0x7fffffff");
                line!(self, "mov.b32 {into}, {word}");
            }
            Unary::Abs if scalar.is_float() => line!(self, "abs.{ty} {into}, {from}"),
            Unary::Abs if scalar.is_signed() => {
                // Not `abs`: its result counts as never negative, but the smallest number stays what it is.
                let (sign, flipped) = (self.temp_of(scalar), self.temp_of(scalar));
                line!(self, "shr.{ty} {sign}, {from}, {}", scalar.bits() - 1);
                line!(self, "xor.{} {flipped}, {from}, {sign}", untyped(scalar));
                line!(self, "sub.{} {into}, {flipped}, {sign}", unsigned(scalar));
            }
            Unary::Abs => line!(self, "mov.{} {into}, {from}", bits_suffix(scalar)),
            Unary::Sign => self.sign(scalar, into, from)?,
            Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
                let mode = match op {
                    Unary::Floor => "rmi",
                    Unary::Ceil => "rpi",
                    Unary::Round => "rni",
                    _ => "rzi",
                };
                if scalar == Scalar::F16 {
                    return self.through_f32(into, &[from], |emitter, into, from| {
                        line!(emitter, "cvt.{mode}.f32.f32 {into}, {}", from[0]);
                        Ok(())
                    });
                }
                line!(self, "cvt.{mode}.{ty}.{ty} {into}, {from}");
            }
            Unary::Sqrt => {
                if scalar == Scalar::F16 {
                    return self.through_f32(into, &[from], |emitter, into, from| {
                        emitter.unary(op, Scalar::F32, into, &from[0])
                    });
                }
                line!(self, "sqrt.rn.{ty} {into}, {from}");
            }
            // At times two units off, but never where that would show in what is made of it: every input was tried.
            Unary::RoughInverseSqrt => line!(self, "rsqrt.approx.{ty} {into}, {from}"),
            // Those of fast arithmetic, which may take subnormal numbers for zero.
            Unary::RoughReciprocal => line!(self, "rcp.approx.ftz.{ty} {into}, {from}"),
            Unary::RoughSqrt => line!(self, "sqrt.approx.ftz.{ty} {into}, {from}"),
            Unary::RoughExp2 => line!(self, "ex2.approx.ftz.{ty} {into}, {from}"),
            Unary::RoughLog2 => line!(self, "lg2.approx.ftz.{ty} {into}, {from}"),
            Unary::RoughSin => line!(self, "sin.approx.ftz.{ty} {into}, {from}"),
            Unary::RoughCos => line!(self, "cos.approx.ftz.{ty} {into}, {from}"),
            Unary::CountOneBits => self.count(scalar, into, |emitter, count| {
                line!(emitter, "popc.{} {count}, {from}", untyped(scalar));
            }),
            Unary::CountLeadingZeros => self.count(scalar, into, |emitter, count| {
                line!(emitter, "clz.{} {count}, {from}", untyped(scalar));
            }),
            Unary::CountTrailingZeros => {
                let mirrored = self.temp_of(scalar);
                line!(self, "brev.{} {mirrored}, {from}", untyped(scalar));
                self.count(scalar, into, |emitter, count| {
                    line!(emitter, "clz.{} {count}, {mirrored}", untyped(scalar));
                });
            }
            Unary::ReverseBits => line!(self, "brev.{} {into}, {from}", untyped(scalar)),
            // `bfind` gives -1 as a u32 when there is no such bit; sign extension keeps it -1.
            Unary::FirstLeadingBit => self.position(scalar, into, |emitter, found| {
                line!(emitter, "bfind.{ty} {found}, {from}");
            }),
            Unary::FirstTrailingBit => {
                let lowest = self.temp_of(scalar);
                let signed = if scalar.bits() == 64 { "s64" } else { "s32" };
                line!(self, "neg.{signed} {lowest}, {from}");
                line!(self, "and.{} {lowest}, {lowest}, {from}", untyped(scalar));
                self.position(scalar, into, |emitter, found| {
                    line!(emitter, "bfind.{} {found}, {lowest}", unsigned(scalar));
                });
            }
            _ => return Err(not_expanded("a math function")),
        }
        Ok(())
    }

    /// A 32-bit integer, negated. Not `neg`: ptxas loses it where it feeds a minimum or maximum of three on sm_90.
    fn negate(&mut self, into: &str, from: &str) {
        let flipped = self.temp("%r");
        line!(self, "not.b32 {flipped}, {from}");
        line!(self, "add.u32 {into}, {flipped}, 1");
    }

    /// A count that the instruction gives as 32 bits, in the width of the operand.
    fn count(&mut self, scalar: Scalar, into: &str, instruction: impl FnOnce(&mut Self, &str)) {
        if scalar.bits() == 64 {
            let short = self.temp("%r");
            instruction(self, &short);
            line!(self, "cvt.u64.u32 {into}, {short}");
        } else {
            instruction(self, into);
        }
    }

    /// A position, -1 for none, in the width of the operand.
    fn position(&mut self, scalar: Scalar, into: &str, instruction: impl FnOnce(&mut Self, &str)) {
        if scalar.bits() == 64 {
            let short = self.temp("%r");
            instruction(self, &short);
            line!(self, "cvt.s64.s32 {into}, {short}");
        } else {
            instruction(self, into);
        }
    }

    fn sign(&mut self, scalar: Scalar, into: &str, from: &str) -> Result<(), Diagnostic> {
        if scalar == Scalar::F16 {
            return self.through_f32(into, &[from], |emitter, into, from| emitter.sign(Scalar::F32, into, &from[0]));
        }
        let ty = suffix(scalar);
        let (low, high) = (self.temp("%p"), self.temp("%p"));
        let (zero, one, minus) = match scalar {
            Scalar::F32 => ("0f00000000", "0f3F800000", "0fBF800000"),
            Scalar::F64 => ("0d0000000000000000", "0d3FF0000000000000", "0dBFF0000000000000"),
            _ => ("0", "1", "-1"),
        };
        line!(self, "setp.gt.{ty} {high}, {from}, {zero}");
        // Zero keeps its sign and NaN stays NaN.
        line!(self, "selp.{} {into}, {one}, {from}, {high}", bits_suffix(scalar));
        if scalar.is_float() || scalar.is_signed() {
            line!(self, "setp.lt.{ty} {low}, {from}, {zero}");
            line!(self, "selp.{} {into}, {minus}, {into}, {low}", bits_suffix(scalar));
        }
        Ok(())
    }

    pub(super) fn binary(
        &mut self,
        op: Binary,
        scalar: Scalar,
        into: &str,
        a: &str,
        b: &str,
    ) -> Result<(), Diagnostic> {
        let ty = suffix(scalar);
        let bits = untyped(scalar);
        match op {
            Binary::Add | Binary::Sub | Binary::Mul if scalar.is_float() => {
                let name = match op {
                    Binary::Add => "add",
                    Binary::Sub => "sub",
                    _ => "mul",
                };
                line!(self, "{name}.rn.{ty} {into}, {a}, {b}");
            }
            Binary::Add => line!(self, "add.{} {into}, {a}, {b}", unsigned(scalar)),
            Binary::Sub => line!(self, "sub.{} {into}, {a}, {b}", unsigned(scalar)),
            Binary::Mul => line!(self, "mul.lo.{} {into}, {a}, {b}", unsigned(scalar)),
            Binary::MulHigh => line!(self, "mul.hi.{ty} {into}, {a}, {b}"),
            Binary::Div | Binary::Rem if scalar == Scalar::F16 => {
                return if op == Binary::Div {
                    self.through_f32(into, &[a, b], |emitter, into, operands| {
                        line!(emitter, "div.rn.f32 {into}, {}, {}", operands[0], operands[1]);
                        Ok(())
                    })
                } else {
                    self.float_remainder(scalar, into, a, b)
                };
            }
            Binary::Div if scalar.is_float() => line!(self, "div.rn.{ty} {into}, {a}, {b}"),
            Binary::Rem if scalar.is_float() => return self.float_remainder(scalar, into, a, b),
            Binary::Div | Binary::Rem => self.integer_division(op, scalar, into, a, b),
            Binary::And => line!(self, "and.{bits} {into}, {a}, {b}"),
            Binary::Or => line!(self, "or.{bits} {into}, {a}, {b}"),
            Binary::Xor => line!(self, "xor.{bits} {into}, {a}, {b}"),
            Binary::Shl | Binary::Shr => {
                // PTX clamps the count; the IR takes it modulo the width.
                let count = self.temp("%r");
                line!(self, "and.b32 {count}, {b}, {}", scalar.bits() - 1);
                if op == Binary::Shl {
                    line!(self, "shl.{bits} {into}, {a}, {count}");
                } else {
                    line!(self, "shr.{ty} {into}, {a}, {count}");
                }
            }
            Binary::Eq | Binary::Ne if scalar == Scalar::Bool => {
                line!(self, "xor.pred {into}, {a}, {b}");
                if op == Binary::Eq {
                    line!(self, "not.pred {into}, {into}");
                }
            }
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
                let name = match op {
                    Binary::Eq => "eq",
                    // Unordered: NaN differs from everything.
                    Binary::Ne if scalar.is_float() => "neu",
                    Binary::Ne => "ne",
                    Binary::Lt => "lt",
                    Binary::Le => "le",
                    Binary::Gt => "gt",
                    _ => "ge",
                };
                line!(self, "setp.{name}.{ty} {into}, {a}, {b}");
            }
            Binary::Min | Binary::Max if !scalar.is_float() => {
                line!(self, "{}.{ty} {into}, {a}, {b}", if op == Binary::Min { "min" } else { "max" });
            }
            Binary::Min | Binary::Max => {
                // The IR's order of operands decides about NaN and the sign of zero.
                let other = self.temp("%p");
                if op == Binary::Min {
                    line!(self, "setp.lt.{ty} {other}, {b}, {a}");
                } else {
                    line!(self, "setp.lt.{ty} {other}, {a}, {b}");
                }
                line!(self, "selp.{} {into}, {b}, {a}, {other}", bits_suffix(scalar));
            }
            Binary::Pow | Binary::Atan2 => return Err(not_expanded("a math function")),
        }
        Ok(())
    }

    /// `x - y·trunc(x / y)` in three roundings.
    fn float_remainder(&mut self, scalar: Scalar, into: &str, a: &str, b: &str) -> Result<(), Diagnostic> {
        let (quotient, whole, product) = (self.temp_of(scalar), self.temp_of(scalar), self.temp_of(scalar));
        self.binary(Binary::Div, scalar, &quotient, a, b)?;
        self.unary(Unary::Trunc, scalar, &whole, &quotient)?;
        self.binary(Binary::Mul, scalar, &product, b, &whole)?;
        self.binary(Binary::Sub, scalar, into, a, &product)
    }

    /// By how many bits a word is shifted, where that is known.
    pub(super) fn shift_count(&self, by: Value) -> Option<u32> {
        self.constants.get(&by).map(|by| (*by & 31) as u32)
    }

    /// Takes bits out of the middle of a word, where that is what shifts to the left and to the right do: the assembler knows bytes when it
    /// sees them so, and converts them as they are.
    pub(super) fn field(&mut self, value: Value, word: Value, by: Value) -> bool {
        let (Some(&(whole, left)), Some(right)) = (self.shifted.get(&word), self.shift_count(by)) else { return false };
        if self.scalar(value) != Scalar::U32 || left > right {
            return false;
        }
        let (into, from) = (self.reg(value), self.reg(whole));
        line!(self, "bfe.u32 {into}, {from}, {}, {}", right - left, 32 - right);
        true
    }

    /// `x / 0 = x`, `x % 0 = 0`, `MIN / -1 = MIN`, `MIN % -1 = 0`.
    fn integer_division(&mut self, op: Binary, scalar: Scalar, into: &str, a: &str, b: &str) {
        let ty = suffix(scalar);
        let bits = untyped(scalar);
        // Dividing by 1 gives both answers for zero, and for -1 once the quotient is negated.
        let (bad, divisor) = (self.temp("%p"), self.temp_of(scalar));
        line!(self, "setp.eq.{ty} {bad}, {b}, 0");
        line!(self, "selp.{bits} {divisor}, 1, {b}, {bad}");
        if !scalar.is_signed() {
            line!(self, "{}.{ty} {into}, {a}, {divisor}", if op == Binary::Div { "div" } else { "rem" });
            return;
        }
        let minus = self.temp("%p");
        line!(self, "setp.eq.{ty} {minus}, {b}, -1");
        line!(self, "selp.{bits} {divisor}, 1, {divisor}, {minus}");
        if op == Binary::Rem {
            line!(self, "rem.{ty} {into}, {a}, {divisor}");
            return;
        }
        let (quotient, negated) = (self.temp_of(scalar), self.temp_of(scalar));
        line!(self, "div.{ty} {quotient}, {a}, {divisor}");
        line!(self, "neg.{ty} {negated}, {a}");
        line!(self, "selp.{bits} {into}, {negated}, {quotient}, {minus}");
    }

    fn cast(&mut self, from_type: Scalar, to: Scalar, into: &str, from: &str) {
        let (source, target) = (suffix(from_type), suffix(to));
        match (from_type, to) {
            (a, b) if a == b => line!(self, "mov.{} {into}, {from}", bits_suffix(to)),
            (Scalar::Bool, _) => {
                let one = match to {
                    Scalar::F32 => "0f3F800000",
                    Scalar::F64 => "0d3FF0000000000000",
                    Scalar::F16 => "0x3C00",
                    _ => "1",
                };
                let zero = match to {
                    Scalar::F32 => "0f00000000",
                    Scalar::F64 => "0d0000000000000000",
                    _ => "0",
                };
                line!(self, "selp.{} {into}, {one}, {zero}, {from}", bits_suffix(to));
            }
            (Scalar::F16, Scalar::Bool) => {
                let wide = self.temp("%f");
                line!(self, "cvt.f32.f16 {wide}, {from}");
                line!(self, "setp.neu.f32 {into}, {wide}, 0f00000000");
            }
            (Scalar::F32, Scalar::Bool) => line!(self, "setp.neu.f32 {into}, {from}, 0f00000000"),
            (Scalar::F64, Scalar::Bool) => line!(self, "setp.neu.f64 {into}, {from}, 0d0000000000000000"),
            (_, Scalar::Bool) => line!(self, "setp.ne.{source} {into}, {from}, 0"),
            // Between floats: widening is exact, narrowing rounds once.
            (a, b) if a.is_float() && b.is_float() => {
                let round = if b.bits() < a.bits() { ".rn" } else { "" };
                line!(self, "cvt{round}.{target}.{source} {into}, {from}");
            }
            // To integers: saturates; the 64-bit forms need help with NaN.
            (a, b) if a.is_float() => {
                if a == Scalar::F16 {
                    let wide = self.temp("%f");
                    line!(self, "cvt.f32.f16 {wide}, {from}");
                    self.cast(Scalar::F32, b, into, &wide);
                    return;
                }
                line!(self, "cvt.rzi.{target}.{source} {into}, {from}");
                if a == Scalar::F32 && b.bits() == 32 {
                    return; // gives 0 for NaN by itself
                }
                let ordered = self.temp("%p");
                line!(self, "setp.num.{source} {ordered}, {from}, {from}");
                line!(self, "selp.{} {into}, {into}, 0, {ordered}", bits_suffix(b));
            }
            (_, b) if b.is_float() => line!(self, "cvt.rn.{target}.{source} {into}, {from}"),
            // Between integers: extend by the sign of the source, or cut.
            (a, b) if a.bits() == b.bits() => line!(self, "mov.{} {into}, {from}", untyped(b)),
            // The assembler takes `cvt.s64.u32` for an extension by the sign where the result is shifted (12.9 and 13.0).
            (a, Scalar::I64 | Scalar::U64) if a.bits() == 32 => {
                let wide = if a.is_signed() { "s64" } else { "u64" };
                line!(self, "cvt.{wide}.{source} {into}, {from}");
            }
            _ => line!(self, "cvt.{target}.{source} {into}, {from}"),
        }
    }
}
