//! Built-in functions: those the program has, and the others written out in terms of them.

use naga::{Expression, Handle, MathFunction, TypeInner};
use vyre_foundation::ir::{DataType, Expr, MathOp};

use super::expr::{Shape, lane, splat};
use super::function::FunctionCx;
use super::matrix::size_of;
use super::module::{Failed, Res};

impl FunctionCx<'_, '_> {
    pub(super) fn math(
        &mut self,
        fun: MathFunction,
        mut args: Vec<(Expr, &TypeInner)>,
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let span = self.span(handle);
        if matches!(fun, MathFunction::Transpose | MathFunction::Determinant | MathFunction::Inverse) {
            let (value, inner) = args.swap_remove(0);
            return self.matrix_math(fun, value, inner, handle);
        }
        let mut shapes = Vec::with_capacity(args.len());
        for (_, inner) in &args {
            let Some(shape) = Shape::of(inner) else {
                return self.im.unsupported(format_args!("{fun:?} of this type"), span);
            };
            self.im.scalar(shape.scalar, span)?;
            shapes.push(shape);
        }
        let mut args: Vec<Expr> = args.into_iter().map(|(value, _)| value).collect();
        let shape = shapes[0];
        if let Some(op) = direct(fun, shape) {
            return Ok(match op {
                Some(op) => Expr::math(op, args),
                None => args.swap_remove(0),
            });
        }
        self.expanded(fun, args, &shapes, handle)
    }

    fn matrix_math(
        &mut self,
        fun: MathFunction,
        value: Expr,
        inner: &TypeInner,
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let span = self.span(handle);
        let (Some(size), TypeInner::Matrix { scalar, .. }) = (size_of(inner), inner) else { return Err(Failed) };
        let scalar = self.im.scalar(*scalar, span)?;
        let ty = self.im.inner_type(self.inner(handle), span)?;
        Ok(match fun {
            MathFunction::Transpose => self.transpose(value, size, scalar, ty),
            MathFunction::Determinant => self.determinant(value, size),
            _ => self.inverse(value, size, scalar, ty),
        })
    }

    fn expanded(
        &mut self,
        fun: MathFunction,
        args: Vec<Expr>,
        shapes: &[Shape],
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let span = self.span(handle);
        let shape = shapes[0];
        let one = || shape.number(1.0);
        let zero = || shape.number(0.0);
        let mut given = args.into_iter();
        let mut next = || given.next().ok_or(Failed);
        Ok(match fun {
            MathFunction::Saturate => Expr::math(MathOp::Clamp, vec![next()?, zero(), one()]),
            MathFunction::Radians => next()? * shape.number(0.017_453_292_519_943_295),
            MathFunction::Degrees => next()? * shape.number(57.295_779_513_082_32),
            MathFunction::Mix => {
                let (x, y, a) = (next()?, next()?, next()?);
                let a = self.bind(if shapes[2].size.is_none() { shape.fill(a) } else { a });
                x * (one() - a.clone()) + y * a
            }
            MathFunction::Step => {
                let (edge, x) = (next()?, next()?);
                Expr::select(edge.le(x), one(), zero())
            }
            MathFunction::SmoothStep => {
                let (low, high, x) = (next()?, next()?, next()?);
                let low = self.bind(low);
                let t = (x - low.clone()) / (high - low);
                let t = self.bind(Expr::math(MathOp::Clamp, vec![t, zero(), one()]));
                t.clone() * t.clone() * (shape.number(3.0) - shape.number(2.0) * t)
            }
            MathFunction::Dot => Expr::math(MathOp::Dot, vec![next()?, next()?]),
            MathFunction::Cross => {
                let (a, b) = (next()?, next()?);
                let (a, b) = (self.bind(a), self.bind(b));
                let (a, b) = (|i| lane(a.clone(), i), |i| lane(b.clone(), i));
                let parts = [(1, 2), (2, 0), (0, 1)].map(|(i, j)| a(i) * b(j) - a(j) * b(i));
                Expr::construct(shape.data(), parts.into())
            }
            MathFunction::Length => {
                let value = next()?;
                self.length(value, shape)
            }
            MathFunction::Distance => {
                let difference = next()? - next()?;
                self.length(difference, shape)
            }
            MathFunction::Normalize => {
                let value = next()?;
                let value = self.bind(value);
                let length = self.length(value.clone(), shape);
                value / shape.fill(length)
            }
            MathFunction::FaceForward => {
                let (normal, incident, reference) = (next()?, next()?, next()?);
                let normal = self.bind(normal);
                let facing = dot(incident, reference, shape).lt(scalar(shape).number(0.0));
                Expr::select(facing, normal.clone(), -normal)
            }
            MathFunction::Reflect => {
                let (incident, normal) = (next()?, next()?);
                let (incident, normal) = (self.bind(incident), self.bind(normal));
                let twice = scalar(shape).number(2.0) * dot(normal.clone(), incident.clone(), shape);
                incident - shape.fill(twice) * normal
            }
            MathFunction::Refract => {
                let (incident, normal, ratio) = (next()?, next()?, next()?);
                let (incident, normal, ratio) = (self.bind(incident), self.bind(normal), self.bind(ratio));
                let cosine = self.bind(dot(normal.clone(), incident.clone(), shape));
                let one = || scalar(shape).number(1.0);
                let k = one() - ratio.clone() * ratio.clone() * (one() - cosine.clone() * cosine.clone());
                let k = self.bind(k);
                let along = ratio.clone() * cosine + k.clone().sqrt();
                let bent = shape.fill(ratio) * incident - shape.fill(along) * normal;
                Expr::select(k.lt(scalar(shape).number(0.0)), zero(), bent)
            }
            MathFunction::Outer => {
                let (column, row) = (next()?, next()?);
                let (column, row) = (self.bind(column), self.bind(row));
                let ty = self.im.inner_type(self.inner(handle), span)?;
                let columns = shapes[1].size.unwrap_or(1);
                let parts = (0..columns).map(|i| column.clone() * shape.fill(lane(row.clone(), i as u8))).collect();
                Expr::construct(ty, parts)
            }
            MathFunction::Modf => {
                let value = next()?;
                let value = self.bind(value);
                let whole = self.bind(Expr::math(MathOp::Trunc, vec![value.clone()]));
                let ty = self.struct_type(handle)?;
                Expr::construct(ty, vec![value - whole.clone(), whole])
            }
            MathFunction::Frexp => {
                let value = next()?;
                let (fract, exponent) = self.frexp(value, shape);
                let ty = self.struct_type(handle)?;
                Expr::construct(ty, vec![fract, exponent])
            }
            MathFunction::Ldexp => {
                let (value, exponent) = (next()?, next()?);
                self.ldexp(value, exponent, shape)
            }
            MathFunction::QuantizeToF16 => next()?.cast(shape.with_element(DataType::F16)).cast(shape.data()),
            MathFunction::Dot4I8Packed | MathFunction::Dot4U8Packed => {
                let (a, b) = (next()?, next()?);
                let (a, b) = (self.bind(a), self.bind(b));
                let signed = fun == MathFunction::Dot4I8Packed;
                (0..4)
                    .map(|i| field(&a, 8 * i, 8, signed) * field(&b, 8 * i, 8, signed))
                    .reduce(|sum, product| sum + product)
                    .ok_or(Failed)?
            }
            MathFunction::Pack4x8snorm => self.pack_norm(next()?, 4, 127.0, true),
            MathFunction::Pack4x8unorm => self.pack_norm(next()?, 4, 255.0, false),
            MathFunction::Pack2x16snorm => self.pack_norm(next()?, 2, 32767.0, true),
            MathFunction::Pack2x16unorm => self.pack_norm(next()?, 2, 65535.0, false),
            MathFunction::Unpack4x8snorm => self.unpack_norm(next()?, 4, 127.0, true),
            MathFunction::Unpack4x8unorm => self.unpack_norm(next()?, 4, 255.0, false),
            MathFunction::Unpack2x16snorm => self.unpack_norm(next()?, 2, 32767.0, true),
            MathFunction::Unpack2x16unorm => self.unpack_norm(next()?, 2, 65535.0, false),
            MathFunction::Pack4xI8 | MathFunction::Pack4xU8 => self.pack_bytes(next()?, shape),
            MathFunction::Pack4xI8Clamp | MathFunction::Pack4xU8Clamp => {
                let (low, high) = if shape.is_signed() { (-128.0, 127.0) } else { (0.0, 255.0) };
                let clamped = Expr::math(MathOp::Clamp, vec![next()?, shape.number(low), shape.number(high)]);
                self.pack_bytes(clamped, shape)
            }
            MathFunction::Unpack4xI8 | MathFunction::Unpack4xU8 => {
                let value = next()?;
                let value = self.bind(value);
                let signed = fun == MathFunction::Unpack4xI8;
                let ty = if signed { DataType::I32 } else { DataType::U32 };
                Expr::construct(DataType::vector(ty, 4), (0..4).map(|i| field(&value, 8 * i, 8, signed)).collect())
            }
            MathFunction::Pack2x16float => {
                let value = next()?;
                let value = self.bind(value);
                let low = self.half_bits(lane(value.clone(), 0));
                let high = self.half_bits(lane(value, 1));
                low | (high << 16u32)
            }
            MathFunction::Unpack2x16float => {
                let value = next()?;
                let value = self.bind(value);
                let low = self.half_value(field(&value, 0, 16, false));
                let high = self.half_value(field(&value, 16, 16, false));
                Expr::construct(DataType::vector(DataType::F32, 2), vec![low, high])
            }
            other => return self.im.unsupported(format_args!("the function {other:?}"), span),
        })
    }

    fn struct_type(&mut self, handle: Handle<Expression>) -> Res<DataType> {
        let module = self.im.module;
        let inner = self.inner(handle);
        let span = self.span(handle);
        match module.types.iter().find(|(_, ty)| ty.inner == *inner) {
            Some((found, _)) => self.im.ty(found, span),
            None => self.im.unsupported("a result struct without a type", span),
        }
    }

    fn length(&mut self, value: Expr, shape: Shape) -> Expr {
        if shape.size.is_none() {
            return value.abs();
        }
        let value = self.bind(value);
        Expr::math(MathOp::Dot, vec![value.clone(), value]).sqrt()
    }

    /// Fraction in [0.5, 1) and exponent; zero, infinity and NaN give themselves and 0.
    fn frexp(&mut self, value: Expr, shape: Shape) -> (Expr, Expr) {
        if shape.scalar.width == 2 {
            let wide = Shape { scalar: naga::Scalar::F32, ..shape };
            let (fract, exponent) = self.frexp(value.cast(wide.data()), wide);
            return (fract.cast(shape.data()), exponent);
        }
        let format = Format::of(shape);
        let value = self.bind(value);
        let int = Shape { scalar: naga::Scalar::I32, ..shape };
        let bits = Shape { scalar: format.bits, ..shape };
        let exponent_of = |value: Expr| {
            let field = (value.bit_cast(bits.data()) >> shift(bits, format.mantissa)) & bits.number(format.mask());
            field.cast(int.data())
        };
        let tiny = exponent_of(value.clone()).eq(int.number(0.0));
        let tiny = self.bind(tiny);
        // A subnormal becomes normal by a power of two.
        let scaled = Expr::select(tiny.clone(), value.clone() * shape.number(2f64.powi(64)), value.clone());
        let scaled = self.bind(scaled);
        let exponent = self.bind(exponent_of(scaled.clone()));
        let special = value.clone().eq(shape.number(0.0)) | exponent.clone().eq(int.number(format.mask()));
        let special = self.bind(special);
        let kept = scaled.bit_cast(bits.data()) & bits.fill(format.word(format.sign_and_mantissa()));
        let half = kept | bits.fill(format.word(((format.bias() - 1) as u64) << format.mantissa));
        let fract = Expr::select(special.clone(), value, half.bit_cast(shape.data()));
        let moved =
            exponent - int.number(f64::from(format.bias() - 1)) - Expr::select(tiny, int.number(64.0), int.number(0.0));
        (fract, Expr::select(special, int.number(0.0), moved))
    }

    /// `value · 2^exponent`, rounded once.
    fn ldexp(&mut self, value: Expr, exponent: Expr, shape: Shape) -> Expr {
        let int = Shape { scalar: naga::Scalar::I32, ..shape };
        if shape.scalar.width == 2 {
            let wide = Shape { scalar: naga::Scalar::F32, ..shape };
            return self.ldexp(value.cast(wide.data()), exponent, wide).cast(shape.data());
        }
        let format = Format::of(shape);
        let bias = f64::from(format.bias());
        let digits = f64::from(format.mantissa + 1);
        // Each step moves the exponent towards what one factor can hold. Downwards the steps stop short of the subnormals
        // by the number of digits, so that only the last multiplication rounds.
        let (up, down) = (bias, 1.0 - bias + digits);
        let limit = int.number(4.0 * bias);
        let exponent = Expr::math(MathOp::Clamp, vec![exponent, -limit.clone(), limit]);
        let (mut value, mut exponent) = (value, self.bind(exponent));
        for _ in 0..2 {
            let above = self.bind(exponent.clone().gt(int.number(up)));
            let below = self.bind(exponent.clone().lt(int.number(1.0 - bias)));
            let factor = Expr::select(
                above.clone(),
                shape.number(2f64.powi(up as i32)),
                Expr::select(below.clone(), shape.number(2f64.powi(down as i32)), shape.number(1.0)),
            );
            value = value * factor;
            let step = Expr::select(above, int.number(up), Expr::select(below, int.number(down), int.number(0.0)));
            exponent = self.bind(exponent - step);
        }
        let exponent = Expr::math(MathOp::Clamp, vec![exponent, int.number(1.0 - bias), int.number(bias)]);
        let bits = Shape { scalar: format.bits, ..shape };
        let power =
            ((exponent + int.number(bias)).cast(bits.data()) << shift(bits, format.mantissa)).bit_cast(shape.data());
        value * power
    }

    fn pack_norm(&mut self, value: Expr, count: u32, scale: f64, signed: bool) -> Expr {
        let shape = Shape { scalar: naga::Scalar::F32, size: Some(count) };
        let low = if signed { -1.0 } else { 0.0 };
        let clamped = Expr::math(MathOp::Clamp, vec![value, shape.number(low), shape.number(1.0)]);
        let rounded = (shape.number(0.5) + shape.number(scale) * clamped).floor();
        let ints = self.bind(rounded.cast(shape.with_element(DataType::I32)).cast(shape.with_element(DataType::U32)));
        join(&ints, count)
    }

    fn unpack_norm(&mut self, value: Expr, count: u32, scale: f64, signed: bool) -> Expr {
        let value = self.bind(value);
        let width = 32 / count;
        let part = |i: u32| {
            let number = field(&value, width * i, width, signed).cast(DataType::F32) / Expr::f32(scale as f32);
            if signed { number.max(Expr::f32(-1.0)) } else { number }
        };
        Expr::construct(DataType::vector(DataType::F32, count), (0..count).map(part).collect())
    }

    fn pack_bytes(&mut self, value: Expr, shape: Shape) -> Expr {
        let value = if shape.is_signed() { value.cast(shape.with_element(DataType::U32)) } else { value };
        let value = self.bind(value);
        join(&value, 4)
    }

    /// The bits of the nearest half, in a u32.
    fn half_bits(&mut self, value: Expr) -> Expr {
        let rounded = self.bind(value.cast(DataType::F16).cast(DataType::F32));
        let bits = self.bind(rounded.clone().bit_cast(DataType::U32));
        let size = self.bind(rounded.clone().abs());
        let normal = ((bits.clone() & 0x7fff_ffffu32) >> 13u32) - Expr::u32(112 << 10);
        let subnormal = (size.clone() * Expr::f32(16_777_216.0)).cast(DataType::U32);
        let finite = Expr::select(size.clone().lt(Expr::f32(6.103_515_6e-5)), subnormal, normal);
        let magnitude = Expr::select(size.eq(Expr::f32(f32::INFINITY)), Expr::u32(0x7c00), finite);
        let magnitude = Expr::select(rounded.clone().ne(rounded), Expr::u32(0x7e00), magnitude);
        ((bits >> 16u32) & 0x8000u32) | magnitude
    }

    /// The value of a half given by its bits in a u32.
    fn half_value(&mut self, bits: Expr) -> Expr {
        let bits = self.bind(bits);
        let magnitude = self.bind(bits.clone() & 0x7fffu32);
        let normal = (magnitude.clone() << 13u32) + Expr::u32(112 << 23);
        let special = (magnitude.clone() << 13u32) | 0x7f80_0000u32;
        let subnormal = (magnitude.clone().cast(DataType::F32) * Expr::f32(2f32.powi(-24))).bit_cast(DataType::U32);
        let finite = Expr::select(magnitude.clone().lt(0x400u32), subnormal, normal);
        let value = Expr::select(magnitude.ge(0x7c00u32), special, finite);
        (value | ((bits & 0x8000u32) << 16u32)).bit_cast(DataType::F32)
    }
}

/// The same operation of ours; `Some(None)` gives the argument back.
fn direct(fun: MathFunction, shape: Shape) -> Option<Option<MathOp>> {
    Some(Some(match fun {
        MathFunction::Abs if !shape.is_float() && !shape.is_signed() => return Some(None),
        MathFunction::Abs => MathOp::Abs,
        MathFunction::Min => MathOp::Min,
        MathFunction::Max => MathOp::Max,
        MathFunction::Clamp => MathOp::Clamp,
        MathFunction::Cos => MathOp::Cos,
        MathFunction::Cosh => MathOp::Cosh,
        MathFunction::Sin => MathOp::Sin,
        MathFunction::Sinh => MathOp::Sinh,
        MathFunction::Tan => MathOp::Tan,
        MathFunction::Tanh => MathOp::Tanh,
        MathFunction::Acos => MathOp::Acos,
        MathFunction::Asin => MathOp::Asin,
        MathFunction::Atan => MathOp::Atan,
        MathFunction::Atan2 => MathOp::Atan2,
        MathFunction::Asinh => MathOp::Asinh,
        MathFunction::Acosh => MathOp::Acosh,
        MathFunction::Atanh => MathOp::Atanh,
        MathFunction::Ceil => MathOp::Ceil,
        MathFunction::Floor => MathOp::Floor,
        MathFunction::Round => MathOp::Round,
        MathFunction::Fract => MathOp::Fract,
        MathFunction::Trunc => MathOp::Trunc,
        MathFunction::Exp => MathOp::Exp,
        MathFunction::Exp2 => MathOp::Exp2,
        MathFunction::Log => MathOp::Log,
        MathFunction::Log2 => MathOp::Log2,
        MathFunction::Pow => MathOp::Pow,
        MathFunction::Sign => MathOp::Sign,
        MathFunction::Fma => MathOp::Fma,
        MathFunction::Sqrt => MathOp::Sqrt,
        MathFunction::InverseSqrt => MathOp::InverseSqrt,
        MathFunction::CountTrailingZeros => MathOp::CountTrailingZeros,
        MathFunction::CountLeadingZeros => MathOp::CountLeadingZeros,
        MathFunction::CountOneBits => MathOp::CountOneBits,
        MathFunction::ReverseBits => MathOp::ReverseBits,
        MathFunction::ExtractBits => MathOp::ExtractBits,
        MathFunction::InsertBits => MathOp::InsertBits,
        MathFunction::FirstTrailingBit => MathOp::FirstTrailingBit,
        MathFunction::FirstLeadingBit => MathOp::FirstLeadingBit,
        _ => return None,
    }))
}

/// The scalar of a vector shape.
fn scalar(shape: Shape) -> Shape {
    Shape { size: None, ..shape }
}

fn dot(a: Expr, b: Expr, shape: Shape) -> Expr {
    if shape.size.is_none() { a * b } else { Expr::math(MathOp::Dot, vec![a, b]) }
}

/// Some bits of a u32, as u32 or sign-extended i32.
fn field(value: &Expr, offset: u32, width: u32, signed: bool) -> Expr {
    let value = if signed { value.clone().bit_cast(DataType::I32) } else { value.clone() };
    Expr::math(MathOp::ExtractBits, vec![value, Expr::u32(offset), Expr::u32(width)])
}

/// Low bits of the components of a u32 vector side by side.
fn join(value: &Expr, count: u32) -> Expr {
    let width = 32 / count;
    let mask = (1u32 << width) - 1;
    let part = |i: u32| {
        let bits = lane(value.clone(), i as u8) & Expr::u32(mask);
        if i == 0 { bits } else { bits << Expr::u32(width * i) }
    };
    (1..count).fold(part(0), |all, i| all | part(i))
}

/// A shift count for each component.
fn shift(shape: Shape, count: u32) -> Expr {
    match shape.size {
        Some(size) => splat(Expr::u32(count), DataType::U32, size),
        None => Expr::u32(count),
    }
}

/// How a float of 32 or 64 bits is put together.
#[derive(Clone, Copy)]
struct Format {
    mantissa: u32,
    exponent: u32,
    bits: naga::Scalar,
}

impl Format {
    fn of(shape: Shape) -> Format {
        match shape.scalar.width {
            8 => Format { mantissa: 52, exponent: 11, bits: naga::Scalar::U64 },
            _ => Format { mantissa: 23, exponent: 8, bits: naga::Scalar::U32 },
        }
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The exponent field of infinity.
    fn mask(self) -> f64 {
        f64::from((1u32 << self.exponent) - 1)
    }

    fn sign_and_mantissa(self) -> u64 {
        let width = self.mantissa + self.exponent;
        (1 << width) | ((1 << self.mantissa) - 1)
    }

    fn word(self, bits: u64) -> Expr {
        if self.bits == naga::Scalar::U64 { Expr::u64(bits) } else { Expr::u32(bits as u32) }
    }
}
