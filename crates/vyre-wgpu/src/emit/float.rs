//! Float operations that devices may round otherwise than IEEE 754 says, computed from those that they round correctly.

use naga::{
    BinaryOperator, Block as NagaBlock, Expression, Function, FunctionArgument, FunctionResult, Handle, Literal,
    MathFunction, ScalarKind, Span, Statement,
};
use vyre_foundation::kernel::Scalar;
use vyre_spec::Diagnostic;

use super::{Emitter, Facts, type_of};

/// What a device rounds correctly, for f16, f32 and f64 each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// `fma` rounds once.
    pub fma: [bool; 3],
    /// Division.
    pub divide: [bool; 3],
    /// Square root.
    pub sqrt: [bool; 3],
    /// The driver's compiler does not take `x + 0` for `x` or `x · 0` for `0`.
    pub zeros: bool,
    /// Comparisons and `abs` of f32 don't take subnormal numbers for zero. Where they do, nothing is done about it.
    pub subnormals: bool,
    /// There is f64 to compute f32 with.
    pub f64: bool,
}

impl Arithmetic {
    /// All of it.
    pub const fn exact() -> Arithmetic {
        Arithmetic { fma: [true; 3], divide: [true; 3], sqrt: [true; 3], zeros: true, subnormals: true, f64: true }
    }

    fn has(of: [bool; 3], scalar: Scalar) -> bool {
        match scalar {
            Scalar::F16 => of[0],
            Scalar::F32 => of[1],
            _ => of[2],
        }
    }

    /// The type in which results of this one can be computed and then rounded, where there is one.
    fn wider(&self, scalar: Scalar) -> Option<Scalar> {
        match scalar {
            Scalar::F16 => Some(Scalar::F32),
            Scalar::F32 if self.f64 => Some(Scalar::F64),
            _ => None,
        }
    }
}

fn float(scalar: Scalar, expr: Handle<Expression>) -> Expression {
    Expression::As { expr, kind: ScalarKind::Float, convert: Some((scalar.bits() / 8) as u8) }
}

impl Emitter<'_> {
    /// A zero that the driver's compiler does not know to be one.
    pub(super) fn hidden_zero(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        negative: bool,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let mut word = self.fact(out, Facts::ZERO)?;
        if negative {
            let sign = self.literal(out, 1 << 31);
            word = self.binary(out, BinaryOperator::InclusiveOr, word, sign);
        }
        let zero = self.add(out, Expression::As { expr: word, kind: ScalarKind::Float, convert: None });
        Ok(match scalar {
            Scalar::F32 => zero,
            _ => self.add(out, float(scalar, zero)),
        })
    }

    /// The same integer, in a way that the driver's compiler does not know it where it is about to become a float zero.
    pub(super) fn hide_integer(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        if self.target.arithmetic.zeros {
            return Ok(expr);
        }
        let mut zero = self.fact(out, Facts::ZERO)?;
        if scalar != Scalar::U32 {
            let convert = (scalar.bits() == 64).then_some(8);
            let kind = if scalar.is_signed() { ScalarKind::Sint } else { ScalarKind::Uint };
            zero = self.add(out, Expression::As { expr: zero, kind, convert });
        }
        Ok(self.binary(out, BinaryOperator::InclusiveOr, expr, zero))
    }

    /// The same float, in a way that the driver's compiler does not know it where it is zero.
    pub(super) fn hide_float(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        expr: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        if self.target.arithmetic.zeros {
            return Ok(expr);
        }
        let (holder, integer) = match scalar {
            Scalar::F64 => (Scalar::F64, Scalar::U64),
            _ => (Scalar::F32, Scalar::U32),
        };
        // There are no 16-bit integers here, but every f16 is an f32.
        let wide = if scalar == holder { expr } else { self.add(out, float(holder, expr)) };
        let bits = self.bits(out, wide);
        let bits = self.hide_integer(out, integer, bits)?;
        let wide = self.add(out, Expression::As { expr: bits, kind: ScalarKind::Float, convert: None });
        Ok(if scalar == holder { wide } else { self.add(out, float(scalar, wide)) })
    }

    pub(super) fn divide(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> Handle<Expression> {
        let arithmetic = self.target.arithmetic;
        match arithmetic.wider(scalar) {
            // A quotient that was rounded to more than twice the digits rounds as the exact one does.
            Some(wide) if !Arithmetic::has(arithmetic.divide, scalar) => {
                let (a, b) = (self.add(out, float(wide, a)), self.add(out, float(wide, b)));
                let quotient = self.divide(out, wide, a, b);
                self.add(out, float(scalar, quotient))
            }
            _ => self.binary(out, BinaryOperator::Divide, a, b),
        }
    }

    pub(super) fn sqrt(&mut self, out: &mut NagaBlock, scalar: Scalar, a: Handle<Expression>) -> Handle<Expression> {
        let arithmetic = self.target.arithmetic;
        match arithmetic.wider(scalar) {
            Some(wide) if !Arithmetic::has(arithmetic.sqrt, scalar) => {
                let a = self.add(out, float(wide, a));
                let root = self.sqrt(out, wide, a);
                self.add(out, float(scalar, root))
            }
            _ => self.call(out, MathFunction::Sqrt, &[a]),
        }
    }

    pub(super) fn fma(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        args: [Handle<Expression>; 3],
    ) -> Handle<Expression> {
        let arithmetic = self.target.arithmetic;
        match arithmetic.wider(scalar) {
            Some(wide) if !Arithmetic::has(arithmetic.fma, scalar) => {
                let [a, b, c] = args.map(|arg| self.add(out, float(wide, arg)));
                // The product has no more than twice the digits, so it is exact.
                let product = self.binary(out, BinaryOperator::Multiply, a, b);
                let sum = self.sum_to_odd(out, wide, product, c);
                self.add(out, float(scalar, sum))
            }
            None if scalar == Scalar::F64 && !Arithmetic::has(arithmetic.fma, scalar) => self.long_fma(out, args),
            _ => self.call(out, MathFunction::Fma, &args),
        }
    }

    /// The sum rounded to odd: where it is not exact its last digit is set, so that rounding it once more is as good as rounding
    /// the exact sum.
    fn sum_to_odd(
        &mut self,
        out: &mut NagaBlock,
        scalar: Scalar,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> Handle<Expression> {
        use BinaryOperator::{Add, And, Equal, Greater, Less, LogicalAnd, LogicalOr, Subtract};
        let (sum, lost) = self.two_sum(out, a, b);
        let integer = if scalar == Scalar::F64 { Scalar::U64 } else { Scalar::U32 };
        let bits = self.add(out, Expression::As { expr: sum, kind: ScalarKind::Uint, convert: None });
        let (zero, one) = (self.number(out, integer, 0), self.number(out, integer, 1));
        let nothing = self.number(out, scalar, 0);
        let (above, below) = (self.binary(out, Greater, lost, nothing), self.binary(out, Less, lost, nothing));
        let inexact = self.binary(out, LogicalOr, above, below);
        let last = self.binary(out, And, bits, one);
        let even = self.binary(out, Equal, last, zero);
        let positive = self.binary(out, Greater, sum, nothing);
        let away = self.binary(out, Equal, above, positive);
        let (up, down) = (self.binary(out, Add, bits, one), self.binary(out, Subtract, bits, one));
        let odd = self.choose(out, away, up, down);
        let change = self.binary(out, LogicalAnd, inexact, even);
        let bits = self.choose(out, change, odd, bits);
        self.add(out, Expression::As { expr: bits, kind: ScalarKind::Float, convert: None })
    }

    /// `fma` of f64 by a function of the module, from operations that round correctly.
    fn long_fma(&mut self, out: &mut NagaBlock, args: [Handle<Expression>; 3]) -> Handle<Expression> {
        let function = match self.long_fma {
            Some(function) => function,
            None => {
                let function = self.write_long_fma();
                self.long_fma = Some(function);
                function
            }
        };
        let result = self.add(out, Expression::CallResult(function));
        out.push(Statement::Call { function, arguments: args.to_vec(), result: Some(result) }, Span::UNDEFINED);
        result
    }

    fn write_long_fma(&mut self) -> Handle<Function> {
        use BinaryOperator::{Add, Greater, Less, LogicalOr, Multiply, ShiftRight, Subtract};
        let caller = std::mem::take(&mut self.function);
        let ty = type_of(&mut self.module, Scalar::F64.into());
        let mut block = NagaBlock::new();
        let out = &mut block;
        let [a, b, c] = [0, 1, 2].map(|index| {
            self.function.arguments.push(FunctionArgument { name: None, ty, binding: None });
            self.function.expressions.append(Expression::FunctionArgument(index), Span::UNDEFINED)
        });
        // Significands in 1..2 and exponents, so that nothing below over- or underflows.
        let [(am, ae, a_odd), (bm, be, b_odd), (cm, ce, c_odd)] = [a, b, c].map(|x| self.parts(out, x));
        let e = self.binary(out, Add, ae, be);
        let distance = self.binary(out, Subtract, ce, e);
        // A product that is so much smaller changes nothing; a third operand that is so much smaller only tips the balance.
        let (most, least) = (self.number(out, Scalar::I32, 120), self.number(out, Scalar::I32, -120));
        let far = self.binary(out, Greater, distance, most);
        let distance = self.choose(out, far, most, distance);
        let near = self.binary(out, Less, distance, least);
        let distance = self.choose(out, near, least, distance);
        let scale = self.power(out, distance);
        let third = self.binary(out, Multiply, cm, scale);
        let (high, low) = self.two_product(out, am, bm);
        let (sum, rest) = self.two_sum(out, high, third);
        let rest = self.sum_to_odd(out, Scalar::F64, rest, low);
        // A subnormal result has fewer digits: adding a number whose last digit is the last of the result rounds there.
        let whole = self.binary(out, Add, sum, rest);
        let exponent = self.exponent(out, whole);
        let exponent = self.binary(out, Add, exponent, e);
        let lowest = self.number(out, Scalar::I32, -1022);
        let subnormal = self.binary(out, Less, exponent, lowest);
        let up = self.binary(out, Subtract, lowest, e);
        let magnet = self.power(out, up);
        let magnet = self.with_sign(out, magnet, whole);
        let zero = self.number(out, Scalar::F64, 0);
        let magnet = self.choose(out, subnormal, magnet, zero);
        let (sum, lost) = self.two_sum(out, magnet, sum);
        let rest = self.sum_to_odd(out, Scalar::F64, lost, rest);
        let sum = self.binary(out, Add, sum, rest);
        let result = self.binary(out, Subtract, sum, magnet);
        let result = self.with_sign(out, result, whole);
        // In two steps, as one power of two may not reach.
        let one = self.literal(out, 1);
        let half = self.binary(out, ShiftRight, e, one);
        let other = self.binary(out, Subtract, e, half);
        let (half, other) = (self.power(out, half), self.power(out, other));
        let result = self.binary(out, Multiply, result, half);
        let result = self.binary(out, Multiply, result, other);
        let result = self.choose(out, far, c, result);
        // Zeros, infinities and NaN: the product is exact or the result is no number.
        let product = self.binary(out, Multiply, a, b);
        let plain = self.binary(out, Add, product, c);
        let special = self.binary(out, LogicalOr, a_odd, b_odd);
        let special = self.binary(out, LogicalOr, special, c_odd);
        let value = self.choose(out, special, plain, result);
        block.push(Statement::Return { value: Some(value) }, Span::UNDEFINED);
        self.function.name = Some("fused_multiply_add".to_owned());
        self.function.result = Some(FunctionResult { ty, binding: None });
        self.function.body = block;
        let function = std::mem::replace(&mut self.function, caller);
        self.module.functions.append(function, Span::UNDEFINED)
    }

    fn long(&mut self, out: &mut NagaBlock, bits: u64) -> Handle<Expression> {
        self.add(out, Expression::Literal(Literal::U64(bits)))
    }

    fn bits(&mut self, out: &mut NagaBlock, expr: Handle<Expression>) -> Handle<Expression> {
        self.add(out, Expression::As { expr, kind: ScalarKind::Uint, convert: None })
    }

    fn double(&mut self, out: &mut NagaBlock, expr: Handle<Expression>) -> Handle<Expression> {
        self.add(out, Expression::As { expr, kind: ScalarKind::Float, convert: None })
    }

    /// The exponent of an f64 that is not subnormal, as i32.
    fn exponent(&mut self, out: &mut NagaBlock, x: Handle<Expression>) -> Handle<Expression> {
        let bits = self.bits(out, x);
        let count = self.literal(out, 52);
        let field = self.binary(out, BinaryOperator::ShiftRight, bits, count);
        let field = self.add(out, Expression::As { expr: field, kind: ScalarKind::Uint, convert: Some(4) });
        let mask = self.literal(out, 0x7ff);
        let field = self.binary(out, BinaryOperator::And, field, mask);
        let field = self.add(out, Expression::As { expr: field, kind: ScalarKind::Sint, convert: None });
        let bias = self.number(out, Scalar::I32, 1023);
        self.binary(out, BinaryOperator::Subtract, field, bias)
    }

    /// Significand, exponent, and whether it is zero, infinite or NaN.
    fn parts(
        &mut self,
        out: &mut NagaBlock,
        x: Handle<Expression>,
    ) -> (Handle<Expression>, Handle<Expression>, Handle<Expression>) {
        use BinaryOperator::{And, Equal, InclusiveOr, LogicalOr, Multiply, Subtract};
        let exponent = self.exponent(out, x);
        let (lowest, highest) = (self.number(out, Scalar::I32, -1023), self.number(out, Scalar::I32, 1024));
        let small = self.binary(out, Equal, exponent, lowest);
        let no_number = self.binary(out, Equal, exponent, highest);
        let zero = self.number(out, Scalar::F64, 0);
        let nothing = self.binary(out, Equal, x, zero);
        let special = self.binary(out, LogicalOr, no_number, nothing);
        let up = self.number(out, Scalar::F64, 1 << 54);
        let scaled = self.binary(out, Multiply, x, up);
        let normal = self.choose(out, small, scaled, x);
        let exponent = self.exponent(out, normal);
        let (shift, none) = (self.number(out, Scalar::I32, 54), self.number(out, Scalar::I32, 0));
        let shift = self.choose(out, small, shift, none);
        let exponent = self.binary(out, Subtract, exponent, shift);
        let bits = self.bits(out, normal);
        let (mask, one) = (self.long(out, 0x800f_ffff_ffff_ffff), self.long(out, 1023 << 52));
        let bits = self.binary(out, And, bits, mask);
        let bits = self.binary(out, InclusiveOr, bits, one);
        (self.double(out, bits), exponent, special)
    }

    /// A power of two whose exponent, an i32, an f64 can have.
    fn power(&mut self, out: &mut NagaBlock, exponent: Handle<Expression>) -> Handle<Expression> {
        let bias = self.number(out, Scalar::I32, 1023);
        let field = self.binary(out, BinaryOperator::Add, exponent, bias);
        let field = self.as_uint(out, field);
        let field = self.add(out, Expression::As { expr: field, kind: ScalarKind::Uint, convert: Some(8) });
        let count = self.literal(out, 52);
        let bits = self.binary(out, BinaryOperator::ShiftLeft, field, count);
        self.double(out, bits)
    }

    /// The size of one with the sign of the other.
    fn with_sign(
        &mut self,
        out: &mut NagaBlock,
        size: Handle<Expression>,
        sign: Handle<Expression>,
    ) -> Handle<Expression> {
        let (size, sign) = (self.bits(out, size), self.bits(out, sign));
        let (low, high) = (self.long(out, u64::MAX >> 1), self.long(out, 1 << 63));
        let size = self.binary(out, BinaryOperator::And, size, low);
        let sign = self.binary(out, BinaryOperator::And, sign, high);
        let bits = self.binary(out, BinaryOperator::InclusiveOr, size, sign);
        self.double(out, bits)
    }

    /// A sum and what it lost, together exact.
    fn two_sum(
        &mut self,
        out: &mut NagaBlock,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> (Handle<Expression>, Handle<Expression>) {
        use BinaryOperator::{Add, Subtract};
        let sum = self.binary(out, Add, a, b);
        let second = self.binary(out, Subtract, sum, a);
        let first = self.binary(out, Subtract, sum, second);
        let (left, right) = (self.binary(out, Subtract, a, first), self.binary(out, Subtract, b, second));
        (sum, self.binary(out, Add, left, right))
    }

    /// A product of f64 and what it lost, together exact.
    fn two_product(
        &mut self,
        out: &mut NagaBlock,
        a: Handle<Expression>,
        b: Handle<Expression>,
    ) -> (Handle<Expression>, Handle<Expression>) {
        use BinaryOperator::{Add, Multiply, Subtract};
        let product = self.binary(out, Multiply, a, b);
        let splitter = self.number(out, Scalar::F64, (1 << 27) + 1);
        let [(a_high, a_low), (b_high, b_low)] = [a, b].map(|x| {
            let large = self.binary(out, Multiply, x, splitter);
            let over = self.binary(out, Subtract, large, x);
            let high = self.binary(out, Subtract, large, over);
            (high, self.binary(out, Subtract, x, high))
        });
        let mut lost = self.binary(out, Multiply, a_high, b_high);
        lost = self.binary(out, Subtract, lost, product);
        for (left, right) in [(a_high, b_low), (a_low, b_high), (a_low, b_low)] {
            let part = self.binary(out, Multiply, left, right);
            lost = self.binary(out, Add, lost, part);
        }
        (product, lost)
    }
}
