//! Arithmetic, with the corner cases that WGSL leaves to the device written out.

use naga::{BinaryOperator, Block as NagaBlock, Expression, Handle, Literal, MathFunction, ScalarKind, UnaryOperator};
use vyre_foundation::ir::Literal as IrLiteral;
use vyre_foundation::kernel::{Binary, Op, Scalar, Unary, Value};
use vyre_spec::Diagnostic;

use super::{Emitter, malformed, scalar_of};

impl Emitter<'_> {
    pub(super) fn number(&mut self, out: &mut NagaBlock, scalar: Scalar, value: i64) -> Handle<Expression> {
        let literal = match scalar {
            Scalar::Bool => Literal::Bool(value != 0),
            Scalar::U32 => Literal::U32(value as u32),
            Scalar::I32 => Literal::I32(value as i32),
            Scalar::U64 => Literal::U64(value as u64),
            Scalar::I64 => Literal::I64(value),
            Scalar::F16 => Literal::F16(half::f16::from_f64(value as f64)),
            Scalar::F32 => Literal::F32(value as f32),
            Scalar::F64 => Literal::F64(value as f64),
        };
        self.add(out, Expression::Literal(literal))
    }

    /// Zero, hidden from the driver's compiler where it can't handle one.
    pub(super) fn zero(&mut self, out: &mut NagaBlock, scalar: Scalar) -> Result<Handle<Expression>, Diagnostic> {
        if scalar.is_float() && !self.target.arithmetic.zeros {
            return self.hidden_zero(out, scalar, false);
        }
        Ok(self.number(out, scalar, 0))
    }

    fn constant(&mut self, out: &mut NagaBlock, literal: &IrLiteral) -> Result<Handle<Expression>, Diagnostic> {
        if !self.target.arithmetic.zeros {
            let zero = match *literal {
                IrLiteral::F16(value) => (value.to_f64() == 0.0).then(|| (Scalar::F16, value.is_sign_negative())),
                IrLiteral::F32(value) => (value == 0.0).then(|| (Scalar::F32, value.is_sign_negative())),
                IrLiteral::F64(value) => (value == 0.0).then(|| (Scalar::F64, value.is_sign_negative())),
                _ => None,
            };
            if let Some((scalar, negative)) = zero {
                return self.hidden_zero(out, scalar, negative);
            }
        }
        let value = match *literal {
            IrLiteral::Bool(value) => Literal::Bool(value),
            IrLiteral::U32(value) => Literal::U32(value),
            IrLiteral::I32(value) => Literal::I32(value),
            IrLiteral::U64(value) => Literal::U64(value),
            IrLiteral::I64(value) => Literal::I64(value),
            IrLiteral::F16(value) if value.is_finite() => Literal::F16(value),
            IrLiteral::F32(value) if value.is_finite() => Literal::F32(value),
            IrLiteral::F64(value) if value.is_finite() => Literal::F64(value),
            // Infinities and NaNs are no literals; their bits are.
            IrLiteral::F16(value) => {
                let bits = self.literal(out, u32::from(value.to_bits()));
                return Ok(self.half_from_bits(out, bits));
            }
            IrLiteral::F32(value) => {
                let expr = self.literal(out, value.to_bits());
                return Ok(self.add(out, Expression::As { expr, kind: ScalarKind::Float, convert: None }));
            }
            IrLiteral::F64(value) => {
                let expr = self.add(out, Expression::Literal(Literal::U64(value.to_bits())));
                return Ok(self.add(out, Expression::As { expr, kind: ScalarKind::Float, convert: None }));
            }
        };
        Ok(self.add(out, Expression::Literal(value)))
    }

    pub(super) fn call(
        &mut self,
        out: &mut NagaBlock,
        fun: MathFunction,
        args: &[Handle<Expression>],
    ) -> Handle<Expression> {
        let argument = |index: usize| args.get(index).copied();
        self.add(out, Expression::Math { fun, arg: args[0], arg1: argument(1), arg2: argument(2), arg3: argument(3) })
    }

    pub(super) fn choose(
        &mut self,
        out: &mut NagaBlock,
        condition: Handle<Expression>,
        accept: Handle<Expression>,
        reject: Handle<Expression>,
    ) -> Handle<Expression> {
        self.add(out, Expression::Select { condition, accept, reject })
    }

    pub(super) fn arithmetic(
        &mut self,
        value: Value,
        op: &Op,
        out: &mut NagaBlock,
    ) -> Result<Handle<Expression>, Diagnostic> {
        Ok(match op {
            Op::Const(literal) => self.constant(out, literal)?,
            Op::Unary(op, operand) => {
                let scalar = self.ty(*operand).scalar;
                let operand = self.value(*operand)?;
                self.unary(out, *op, scalar, operand)?
            }
            Op::Binary(op, left, right) => {
                let scalar = self.ty(*left).scalar;
                let (left, right) = (self.value(*left)?, self.value(*right)?);
                self.operation(out, *op, scalar, left, right)?
            }
            Op::Fma(a, b, c) => {
                let args = [self.value(*a)?, self.value(*b)?, self.value(*c)?];
                self.fma(out, self.ty(value).scalar, args)
            }
            Op::Select(cond, yes, no) => {
                let (cond, yes, no) = (self.value(*cond)?, self.value(*yes)?, self.value(*no)?);
                self.choose(out, cond, yes, no)
            }
            Op::Cast(operand) => {
                let (from, to) = (self.ty(*operand).scalar, self.ty(value).scalar);
                let expr = self.value(*operand)?;
                let expr = self.hide_before_float(out, from, to, expr)?;
                self.cast(out, from, to, expr)?
            }
            Op::BitCast(operand) => {
                let (from, to) = (self.ty(*operand).scalar, self.ty(value).scalar);
                let expr = self.value(*operand)?;
                let expr = self.hide_before_float(out, from, to, expr)?;
                match (from, to) {
                    (Scalar::F16, _) => {
                        let bits = self.half_to_bits(out, expr);
                        if to == Scalar::I32 {
                            self.add(out, Expression::As { expr: bits, kind: ScalarKind::Sint, convert: None })
                        } else {
                            bits
                        }
                    }
                    (_, Scalar::F16) => {
                        let bits = if from == Scalar::I32 { self.as_uint(out, expr) } else { expr };
                        self.half_from_bits(out, bits)
                    }
                    _ if scalar_of(from) == scalar_of(to) => expr,
                    _ => self.add(out, Expression::As { expr, kind: scalar_of(to).kind, convert: None }),
                }
            }
            _ => return Err(malformed("an operation that is no arithmetic")),
        })
    }

    fn unary(
        &mut self,
        out: &mut NagaBlock,
        op: Unary,
        scalar: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let function = match op {
            Unary::Neg if matches!(scalar, Scalar::U32 | Scalar::U64) => {
                let zero = self.number(out, scalar, 0);
                return Ok(self.binary(out, BinaryOperator::Subtract, zero, expr));
            }
            Unary::Neg => return Ok(self.add(out, Expression::Unary { op: UnaryOperator::Negate, expr })),
            Unary::Not if scalar == Scalar::Bool => {
                return Ok(self.add(out, Expression::Unary { op: UnaryOperator::LogicalNot, expr }));
            }
            Unary::Not => return Ok(self.add(out, Expression::Unary { op: UnaryOperator::BitwiseNot, expr })),
            Unary::Sign => {
                let zero = self.number(out, scalar, 0);
                let one = self.number(out, scalar, 1);
                let above = self.binary(out, BinaryOperator::Greater, expr, zero);
                let made = self.choose(out, above, one, expr);
                if !scalar.is_float() && !scalar.is_signed() {
                    return Ok(made);
                }
                let minus = self.number(out, scalar, -1);
                let below = self.binary(out, BinaryOperator::Less, expr, zero);
                return Ok(self.choose(out, below, minus, made));
            }
            Unary::Abs if !scalar.is_float() && !scalar.is_signed() => return Ok(expr),
            Unary::Abs if !scalar.is_float() => {
                // Not `abs`: compilers take its result for never negative, but the smallest number stays what it is.
                let kind = |kind| move |expr| Expression::As { expr, kind, convert: None };
                let count = self.literal(out, scalar.bits() - 1);
                let sign = self.binary(out, BinaryOperator::ShiftRight, expr, count);
                let flipped = self.binary(out, BinaryOperator::ExclusiveOr, expr, sign);
                let (flipped, sign) =
                    (self.add(out, kind(ScalarKind::Uint)(flipped)), self.add(out, kind(ScalarKind::Uint)(sign)));
                let made = self.binary(out, BinaryOperator::Subtract, flipped, sign);
                return Ok(self.add(out, kind(ScalarKind::Sint)(made)));
            }
            Unary::Abs if scalar == Scalar::F32 => {
                // Not `abs`: compilers take its result for a number, and so get comparisons with NaN wrong.
                let bits = self.as_uint(out, expr);
                let mask = self.literal(out, u32::MAX >> 1);
                let bits = self.binary(out, BinaryOperator::And, bits, mask);
                return Ok(self.add(out, Expression::As { expr: bits, kind: ScalarKind::Float, convert: None }));
            }
            Unary::Abs => MathFunction::Abs,
            Unary::Floor => MathFunction::Floor,
            Unary::Ceil => MathFunction::Ceil,
            Unary::Round => MathFunction::Round,
            Unary::Trunc => MathFunction::Trunc,
            Unary::Sqrt => return Ok(self.sqrt(out, scalar, expr)),
            Unary::InverseSqrt => MathFunction::InverseSqrt,
            Unary::RoughReciprocal => {
                let one = self.add(out, Expression::Literal(naga::Literal::F32(1.0)));
                return Ok(self.divide(out, scalar, one, expr));
            }
            Unary::RoughSqrt => MathFunction::Sqrt,
            // What drivers call the inverse of a square root may be two units off.
            Unary::RoughInverseSqrt => {
                let root = self.sqrt(out, scalar, expr);
                let one = self.add(out, Expression::Literal(naga::Literal::F32(1.0)));
                return Ok(self.divide(out, scalar, one, root));
            }
            Unary::Exp => MathFunction::Exp,
            Unary::Exp2 | Unary::RoughExp2 => MathFunction::Exp2,
            Unary::Log => MathFunction::Log,
            Unary::Log2 | Unary::RoughLog2 => MathFunction::Log2,
            Unary::Sin | Unary::RoughSin => MathFunction::Sin,
            Unary::Cos | Unary::RoughCos => MathFunction::Cos,
            Unary::Tan => MathFunction::Tan,
            Unary::Asin => MathFunction::Asin,
            Unary::Acos => MathFunction::Acos,
            Unary::Atan => MathFunction::Atan,
            Unary::Sinh => MathFunction::Sinh,
            Unary::Cosh => MathFunction::Cosh,
            Unary::Tanh => MathFunction::Tanh,
            Unary::Asinh => MathFunction::Asinh,
            Unary::Acosh => MathFunction::Acosh,
            Unary::Atanh => MathFunction::Atanh,
            _ if scalar.bits() == 64 => return self.long_bits(out, op, scalar, expr),
            Unary::CountOneBits => MathFunction::CountOneBits,
            Unary::CountLeadingZeros => MathFunction::CountLeadingZeros,
            Unary::CountTrailingZeros => MathFunction::CountTrailingZeros,
            Unary::ReverseBits => MathFunction::ReverseBits,
            Unary::FirstLeadingBit => MathFunction::FirstLeadingBit,
            Unary::FirstTrailingBit => MathFunction::FirstTrailingBit,
        };
        Ok(self.call(out, function, &[expr]))
    }

    fn operation(
        &mut self,
        out: &mut NagaBlock,
        op: Binary,
        scalar: Scalar,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let logical = scalar == Scalar::Bool;
        let operator = match op {
            Binary::Add => BinaryOperator::Add,
            Binary::Sub => BinaryOperator::Subtract,
            Binary::Mul => BinaryOperator::Multiply,
            Binary::Div if scalar.is_float() => return Ok(self.divide(out, scalar, a, b)),
            Binary::Rem if scalar.is_float() => {
                let quotient = self.divide(out, scalar, a, b);
                let whole = self.call(out, MathFunction::Trunc, &[quotient]);
                let product = self.binary(out, BinaryOperator::Multiply, b, whole);
                return Ok(self.binary(out, BinaryOperator::Subtract, a, product));
            }
            Binary::Div | Binary::Rem => return Ok(self.integer_division(out, op, scalar, a, b)),
            Binary::And if logical => BinaryOperator::LogicalAnd,
            Binary::Or if logical => BinaryOperator::LogicalOr,
            Binary::Xor if logical => BinaryOperator::NotEqual,
            Binary::And => BinaryOperator::And,
            Binary::Or => BinaryOperator::InclusiveOr,
            Binary::Xor => BinaryOperator::ExclusiveOr,
            Binary::Shl | Binary::Shr => {
                let mask = self.literal(out, scalar.bits() - 1);
                let count = self.binary(out, BinaryOperator::And, b, mask);
                let operator = if op == Binary::Shl { BinaryOperator::ShiftLeft } else { BinaryOperator::ShiftRight };
                return Ok(self.binary(out, operator, a, count));
            }
            Binary::Eq => BinaryOperator::Equal,
            Binary::Ne if scalar.is_float() => {
                // naga's own is false for NaN.
                let expr = self.binary(out, BinaryOperator::Equal, a, b);
                return Ok(self.add(out, Expression::Unary { op: UnaryOperator::LogicalNot, expr }));
            }
            Binary::Ne => BinaryOperator::NotEqual,
            Binary::Lt => BinaryOperator::Less,
            Binary::Le => BinaryOperator::LessEqual,
            Binary::Gt => BinaryOperator::Greater,
            Binary::Ge => BinaryOperator::GreaterEqual,
            Binary::Min => {
                let other = self.binary(out, BinaryOperator::Less, b, a);
                return Ok(self.choose(out, other, b, a));
            }
            Binary::Max => {
                let other = self.binary(out, BinaryOperator::Less, a, b);
                return Ok(self.choose(out, other, b, a));
            }
            Binary::MulHigh => return Ok(self.multiply_high(out, scalar, a, b)),
            Binary::Pow => return Ok(self.call(out, MathFunction::Pow, &[a, b])),
            Binary::Atan2 => return Ok(self.call(out, MathFunction::Atan2, &[a, b])),
        };
        Ok(self.binary(out, operator, a, b))
    }

    /// `x / 0 = x`, `x % 0 = 0`, `MIN / -1 = MIN`, `MIN % -1 = 0`.
    fn integer_division(
        &mut self,
        out: &mut NagaBlock,
        op: Binary,
        scalar: Scalar,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> Handle<Expression> {
        let operator = if op == Binary::Div { BinaryOperator::Divide } else { BinaryOperator::Modulo };
        let zero = self.number(out, scalar, 0);
        let one = self.number(out, scalar, 1);
        let bad = self.binary(out, BinaryOperator::Equal, b, zero);
        let mut divisor = self.choose(out, bad, one, b);
        if !scalar.is_signed() {
            return self.binary(out, operator, a, divisor);
        }
        let minus_one = self.number(out, scalar, -1);
        let minus = self.binary(out, BinaryOperator::Equal, b, minus_one);
        divisor = self.choose(out, minus, one, divisor);
        let made = self.binary(out, operator, a, divisor);
        if op == Binary::Rem {
            return made;
        }
        let negated = self.binary(out, BinaryOperator::Subtract, zero, a);
        self.choose(out, minus, negated, made)
    }

    /// The high word of the product of 32-bit integers, from 16-bit halves.
    fn multiply_high(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> Handle<Expression> {
        let signed = scalar == Scalar::I32;
        let (x, y) = if signed { (self.as_uint(out, a), self.as_uint(out, b)) } else { (a, b) };
        let half = self.literal(out, 16);
        let low = self.literal(out, 0xffff);
        let mut split = |emitter: &mut Self, value| {
            let bottom = emitter.binary(out, BinaryOperator::And, value, low);
            let top = emitter.binary(out, BinaryOperator::ShiftRight, value, half);
            (bottom, top)
        };
        let ((x0, x1), (y0, y1)) = (split(self, x), split(self, y));
        let p00 = self.binary(out, BinaryOperator::Multiply, x0, y0);
        let p01 = self.binary(out, BinaryOperator::Multiply, x0, y1);
        let p10 = self.binary(out, BinaryOperator::Multiply, x1, y0);
        let p11 = self.binary(out, BinaryOperator::Multiply, x1, y1);
        // Neither sum can wrap: each is at most (2^16 - 1)^2 + 2^16 - 1.
        let carry = self.binary(out, BinaryOperator::ShiftRight, p00, half);
        let middle = self.binary(out, BinaryOperator::Add, p10, carry);
        let middle_low = self.binary(out, BinaryOperator::And, middle, low);
        let middle_high = self.binary(out, BinaryOperator::ShiftRight, middle, half);
        let cross = self.binary(out, BinaryOperator::Add, p01, middle_low);
        let cross_high = self.binary(out, BinaryOperator::ShiftRight, cross, half);
        let sum = self.binary(out, BinaryOperator::Add, p11, middle_high);
        let mut high = self.binary(out, BinaryOperator::Add, sum, cross_high);
        if !signed {
            return high;
        }
        // Two's complement: subtract the other operand where one is negative.
        let zero = self.literal(out, 0);
        let signed_zero = self.number(out, Scalar::I32, 0);
        for (operand, other) in [(a, y), (b, x)] {
            let negative = self.binary(out, BinaryOperator::Less, operand, signed_zero);
            let correction = self.choose(out, negative, other, zero);
            high = self.binary(out, BinaryOperator::Subtract, high, correction);
        }
        self.add(out, Expression::As { expr: high, kind: ScalarKind::Sint, convert: None })
    }

    fn hide_before_float(
        &mut self,
        out: &mut NagaBlock,
        from: Scalar,
        to: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        if from.is_float() || from == Scalar::Bool || !to.is_float() {
            return Ok(expr);
        }
        self.hide_integer(out, from, expr)
    }

    fn cast(
        &mut self,
        out: &mut NagaBlock,
        from: Scalar,
        to: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        if from == to {
            return Ok(expr);
        }
        let target = scalar_of(to);
        if to == Scalar::Bool {
            let zero = self.number(out, from, 0);
            let expr = self.binary(out, BinaryOperator::Equal, expr, zero);
            return Ok(self.add(out, Expression::Unary { op: UnaryOperator::LogicalNot, expr }));
        }
        if from == Scalar::Bool {
            let (one, zero) = (self.number(out, to, 1), self.zero(out, to)?);
            return Ok(self.choose(out, expr, one, zero));
        }
        if from.is_float() && !to.is_float() {
            return Ok(self.saturate(out, from, to, expr));
        }
        let source = scalar_of(from);
        if !to.is_float() && source.kind != target.kind && source.width < target.width {
            // The sign of the operand decides how it is extended; naga takes that of the result.
            let wide = self.add(out, Expression::As { expr, kind: source.kind, convert: Some(target.width) });
            return Ok(self.add(out, Expression::As { expr: wide, kind: target.kind, convert: None }));
        }
        Ok(self.add(out, Expression::As { expr, kind: target.kind, convert: Some(target.width) }))
    }

    /// Float to integer: saturates, and NaN gives 0. naga brings the float into the range of the integer, but to the largest
    /// float in it, which is less than the largest integer.
    fn saturate(
        &mut self,
        out: &mut NagaBlock,
        from: Scalar,
        to: Scalar,
        expr: Handle<Expression>,
    ) -> Handle<Expression> {
        let (from, expr) = match from {
            Scalar::F16 => {
                (Scalar::F32, self.add(out, Expression::As { expr, kind: ScalarKind::Float, convert: Some(4) }))
            }
            _ => (from, expr),
        };
        let (limit, most) = match to {
            Scalar::U32 => (4_294_967_296.0, Literal::U32(u32::MAX)),
            Scalar::I32 => (2_147_483_648.0, Literal::I32(i32::MAX)),
            Scalar::U64 => (18_446_744_073_709_551_616.0, Literal::U64(u64::MAX)),
            _ => (9_223_372_036_854_775_808.0f64, Literal::I64(i64::MAX)),
        };
        let limit = match from {
            Scalar::F64 => Literal::F64(limit),
            _ => Literal::F32(limit as f32),
        };
        let limit = self.add(out, Expression::Literal(limit));
        let is_number = self.binary(out, BinaryOperator::Equal, expr, expr);
        let over = self.binary(out, BinaryOperator::GreaterEqual, expr, limit);
        let target = scalar_of(to);
        let whole = self.add(out, Expression::As { expr, kind: target.kind, convert: Some(target.width) });
        let most = self.add(out, Expression::Literal(most));
        let zero = self.number(out, to, 0);
        let saturated = self.choose(out, over, most, whole);
        self.choose(out, is_number, saturated, zero)
    }

    /// Bit functions of 64-bit integers from those of their halves.
    fn long_bits(
        &mut self,
        out: &mut NagaBlock,
        op: Unary,
        scalar: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let bits = match scalar {
            Scalar::I64 => self.add(out, Expression::As { expr, kind: ScalarKind::Uint, convert: None }),
            _ => expr,
        };
        let (mut low, mut high) = self.split(out, bits);
        let zero = self.literal(out, 0);
        let word = |emitter: &mut Self, out: &mut NagaBlock, function, word| emitter.call(out, function, &[word]);
        let plus_half = |emitter: &mut Self, out: &mut NagaBlock, word| {
            let half = emitter.literal(out, 32);
            emitter.binary(out, BinaryOperator::Add, word, half)
        };
        let made = match op {
            Unary::ReverseBits => {
                let (a, b) =
                    (word(self, out, MathFunction::ReverseBits, low), word(self, out, MathFunction::ReverseBits, high));
                let bits = self.join(out, b, a);
                return Ok(match scalar {
                    Scalar::I64 => self.add(out, Expression::As { expr: bits, kind: ScalarKind::Sint, convert: None }),
                    _ => bits,
                });
            }
            Unary::CountOneBits => {
                let (a, b) = (
                    word(self, out, MathFunction::CountOneBits, low),
                    word(self, out, MathFunction::CountOneBits, high),
                );
                self.binary(out, BinaryOperator::Add, a, b)
            }
            Unary::CountLeadingZeros => {
                let a = word(self, out, MathFunction::CountLeadingZeros, high);
                let b = word(self, out, MathFunction::CountLeadingZeros, low);
                let b = plus_half(self, out, b);
                let empty = self.binary(out, BinaryOperator::Equal, high, zero);
                self.choose(out, empty, b, a)
            }
            Unary::CountTrailingZeros => {
                let a = word(self, out, MathFunction::CountTrailingZeros, low);
                let b = word(self, out, MathFunction::CountTrailingZeros, high);
                let b = plus_half(self, out, b);
                let empty = self.binary(out, BinaryOperator::Equal, low, zero);
                self.choose(out, empty, b, a)
            }
            // All ones where there is no such bit; the leading bit of a negative number is its highest zero.
            Unary::FirstLeadingBit | Unary::FirstTrailingBit => {
                if op == Unary::FirstLeadingBit && scalar == Scalar::I64 {
                    let sign = self.literal(out, 31);
                    let signed = self.add(out, Expression::As { expr: high, kind: ScalarKind::Sint, convert: None });
                    let spread = self.binary(out, BinaryOperator::ShiftRight, signed, sign);
                    let spread = self.as_uint(out, spread);
                    low = self.binary(out, BinaryOperator::ExclusiveOr, low, spread);
                    high = self.binary(out, BinaryOperator::ExclusiveOr, high, spread);
                }
                let leading = op == Unary::FirstLeadingBit;
                let function = if leading { MathFunction::FirstLeadingBit } else { MathFunction::FirstTrailingBit };
                let (a, b) = (word(self, out, function, low), word(self, out, function, high));
                let b = plus_half(self, out, b);
                let (first, other, test) = if leading { (b, a, high) } else { (a, b, low) };
                let empty = self.binary(out, BinaryOperator::Equal, test, zero);
                let found = self.choose(out, empty, other, first);
                let any = self.binary(out, BinaryOperator::InclusiveOr, low, high);
                let none = self.binary(out, BinaryOperator::Equal, any, zero);
                let nowhere = self.number(out, scalar, -1);
                let found =
                    self.add(out, Expression::As { expr: found, kind: scalar_of(scalar).kind, convert: Some(8) });
                return Ok(self.choose(out, none, nowhere, found));
            }
            _ => return Err(malformed("a float function of an integer")),
        };
        Ok(self.add(out, Expression::As { expr: made, kind: scalar_of(scalar).kind, convert: Some(8) }))
    }
}
