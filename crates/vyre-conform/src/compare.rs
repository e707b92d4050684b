use std::fmt;

use half::{bf16, f16};
use vyre_foundation::ir::{Access, DataType, Expr, Math, MathOp, Name, Node, Program};
use vyre_foundation::launch::shape_of;
use vyre_foundation::near::{Leaf, element_leaves};

/// How far a result may lie from the expected one: within either bound is good.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Representable values of the result's type between the two.
    pub ulps: u32,
    /// Absolute distance.
    pub absolute: f64,
}

impl Tolerance {
    /// Bit for bit.
    pub const EXACT: Tolerance = Tolerance { ulps: 0, absolute: 0.0 };

    const fn ulps(ulps: u32) -> Tolerance {
        Tolerance { ulps, absolute: 0.0 }
    }

    fn widest(self, other: Tolerance) -> Tolerance {
        Tolerance { ulps: self.ulps.max(other.ulps), absolute: self.absolute.max(other.absolute) }
    }
}

/// Which results count as equal. `docs/conformance.md` says the same in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Add, subtract, multiply, divide, `sqrt` and `fma` are correctly rounded, subnormal numbers are kept, and the two zeros
    /// differ. False for devices that only promise what WGSL does.
    pub exact: bool,
}

impl Rules {
    /// The reference, the CPU and CUDA.
    pub fn exact() -> Rules {
        Rules { exact: true }
    }

    /// Devices that promise what WGSL promises.
    pub fn wgsl() -> Rules {
        Rules { exact: false }
    }

    /// The error table: how far off a result of this function may be.
    pub fn math(&self, op: MathOp, ty: &DataType) -> Tolerance {
        use MathOp as M;
        if self.exact {
            return match op {
                // Correctly rounded but for f64, which is rounded twice.
                M::InverseSqrt if *ty == DataType::F64 => Tolerance::ulps(2),
                M::Exp | M::Exp2 | M::Log | M::Log2 => Tolerance::ulps(2),
                M::Sin | M::Cos | M::Tan => Tolerance::ulps(4),
                M::Asin | M::Acos | M::Atan | M::Atan2 => Tolerance::ulps(4),
                M::Sinh | M::Cosh | M::Tanh | M::Asinh | M::Acosh | M::Atanh => Tolerance::ulps(4),
                M::Pow => Tolerance::ulps(8),
                _ => Tolerance::EXACT,
            };
        }
        let half = *ty == DataType::F16;
        let absolute = |f16: i32, f32: i32| Tolerance { ulps: 4, absolute: 2f64.powi(if half { f16 } else { f32 }) };
        match op {
            M::InverseSqrt => Tolerance::ulps(2),
            M::Sqrt => Tolerance::ulps(4),
            M::Fma | M::Fract | M::Dot => Tolerance { ulps: 4, absolute: 1e-5 },
            M::Exp | M::Exp2 => Tolerance::ulps(64),
            M::Log | M::Log2 => Tolerance { ulps: 4, absolute: 2f64.powi(if half { -7 } else { -21 }) },
            M::Sin | M::Cos => absolute(-7, -11),
            M::Tan => Tolerance { ulps: 4096, absolute: 2f64.powi(-10) },
            M::Asin | M::Acos => Tolerance { ulps: 4096, absolute: if half { 2f64.powi(-8) } else { 6.77e-5 } },
            M::Atan | M::Atan2 => Tolerance::ulps(if half { 5 } else { 4096 }),
            M::Sinh | M::Cosh | M::Tanh | M::Asinh | M::Acosh | M::Atanh => {
                Tolerance { ulps: 4096, absolute: 2f64.powi(if half { -7 } else { -10 }) }
            }
            M::Pow => Tolerance { ulps: 1024, absolute: 1e-5 },
            _ => Tolerance::EXACT,
        }
    }
}

impl Rules {
    /// How far off sums of a matrix operation may be, where the products stay below one in magnitude. Tensor cores cut the terms
    /// of a sum off below the last place of the largest, so the error is at most `(depth + 2)·2⁻²³·(|c| + Σ|a·b|)`.
    pub fn matrix(&self) -> Tolerance {
        Tolerance { ulps: 1, absolute: 2f64.powi(-14) }
    }
}

/// The first place where two results differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Buffer.
    pub buffer: Name,
    /// Element of the buffer.
    pub element: u64,
    /// Part of the element, such as `.1[2]`; empty for a scalar.
    pub part: String,
    /// Expected value, with its bits.
    pub expected: String,
    /// What was found instead.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { buffer, element, part, expected, actual } = self;
        write!(f, "{buffer}[{element}]{part}: expected {expected}, found {actual}")
    }
}

impl std::error::Error for Difference {}

/// Compares results (the bytes of every `read_write` and `output` buffer, in binding order) and gives the first difference.
///
/// Integers and bools are equal bit for bit, floats too, except that all NaNs are equal and that a buffer to which a result of
/// an inexact function is stored has that function's tolerance. Padding is not looked at. A program in fast arithmetic is held to WGSL's
/// rules by whatever rules its device is.
pub fn compare(expected: &[Vec<u8>], actual: &[Vec<u8>], program: &Program, rules: &Rules) -> Result<(), Difference> {
    let rules = &Rules { exact: rules.exact && program.math() == Math::Exact };
    let results: Vec<usize> =
        program.binding_order().into_iter().filter(|&i| program.buffers()[i].kind.is_result()).collect();
    let whole = |buffer: &str, expected: String, actual: String| Difference {
        buffer: buffer.into(),
        element: 0,
        part: String::new(),
        expected,
        actual,
    };
    if expected.len() != results.len() || actual.len() != results.len() {
        let said = |n: usize| format!("{n} result buffers");
        return Err(whole("results", said(expected.len()), said(actual.len())));
    }
    for ((&index, expected), actual) in results.iter().zip(expected).zip(actual) {
        let buffer = &program.buffers()[index];
        let name = buffer.name.as_str();
        if expected.len() != actual.len() {
            let said = |n: usize| format!("{n} bytes");
            return Err(whole(name, said(expected.len()), said(actual.len())));
        }
        let Ok(shape) = shape_of(program, index) else {
            return Err(whole(name, "elements with a size".to_owned(), buffer.ty.to_string()));
        };
        let tolerance = &|ty: &DataType| tolerance_of(program, &buffer.name, ty, rules);
        let check = |leaf: &Leaf, base: u64, element: u64| -> Result<(), Difference> {
            let (start, size) = ((base + u64::from(leaf.offset)) as usize, bytes_of(&leaf.ty));
            let read = |from: &[u8]| from.get(start..start + size).map(word);
            let (Some(mut left), Some(mut right)) = (read(expected), read(actual)) else {
                return Ok(());
            };
            if leaf.ty.bits() == Some(4) {
                let shift = if element % 2 == 1 { 4 } else { 0 };
                (left, right) = (left >> shift & 15, right >> shift & 15);
            }
            if same(left, right, &leaf.ty, rules, tolerance) {
                return Ok(());
            }
            Err(Difference {
                buffer: buffer.name.clone(),
                element,
                part: leaf.part.clone(),
                expected: show(left, &leaf.ty),
                actual: show(right, &leaf.ty),
            })
        };
        let mut once = Vec::new();
        let mut each = Vec::new();
        element_leaves(program, &buffer.ty, &mut once, &mut each);
        for leaf in &once {
            check(leaf, 0, 0)?;
        }
        for element in 0..shape.elements_in(expected.len() as u64) {
            let base = u64::from(shape.header) + element / u64::from(shape.per_stride) * u64::from(shape.stride);
            for leaf in &each {
                check(leaf, base, element)?;
            }
        }
    }
    Ok(())
}

fn bytes_of(ty: &DataType) -> usize {
    ty.bits().map_or(1, |bits| bits.div_ceil(8)) as usize
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The value of a float type's bits; `None` for other types.
pub(crate) fn float_value(bits: u64, ty: &DataType) -> Option<f64> {
    Some(match ty {
        DataType::F16 => f16::from_bits(bits as u16).to_f64(),
        DataType::BF16 => bf16::from_bits(bits as u16).to_f64(),
        DataType::F32 => f64::from(f32::from_bits(bits as u32)),
        DataType::F64 => f64::from_bits(bits),
        DataType::F8E4M3 => small_float(bits, 4, 3, |exponent, mantissa| exponent == 15 && mantissa == 7),
        DataType::F8E5M2 => small_float(bits, 5, 2, |exponent, mantissa| exponent == 31 && mantissa != 0),
        _ => return None,
    })
}

fn small_float(bits: u64, exponent_bits: u32, mantissa_bits: u32, is_nan: fn(u64, u64) -> bool) -> f64 {
    let mantissa = bits & ((1 << mantissa_bits) - 1);
    let exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    let sign = if bits >> (mantissa_bits + exponent_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let bias = (1 << (exponent_bits - 1)) - 1;
    if is_nan(exponent, mantissa) {
        return f64::NAN;
    }
    if exponent_bits == 5 && exponent == 31 {
        return sign * f64::INFINITY;
    }
    let fraction = mantissa as f64 / f64::from(1 << mantissa_bits);
    sign * if exponent == 0 {
        fraction * 2f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2f64.powi(exponent as i32 - bias)
    }
}

fn same(left: u64, right: u64, ty: &DataType, rules: &Rules, tolerance: &dyn Fn(&DataType) -> Tolerance) -> bool {
    if *ty == DataType::Bool {
        return (left != 0) == (right != 0);
    }
    if left == right {
        return true;
    }
    let (Some(a), Some(b)) = (float_value(left, ty), float_value(right, ty)) else {
        return false;
    };
    if a.is_nan() && b.is_nan() {
        return true;
    }
    if !rules.exact {
        let tiny = match ty {
            DataType::F16 => 2f64.powi(-14),
            DataType::F64 => f64::MIN_POSITIVE,
            _ => 2f64.powi(-126),
        };
        // A device may flush subnormal numbers and lose the sign of a zero.
        if a.abs() < tiny && b.abs() < tiny {
            return true;
        }
    }
    let tolerance = tolerance(ty);
    if tolerance == Tolerance::EXACT || a.is_nan() || b.is_nan() {
        return false;
    }
    let bits = ty.bits().unwrap_or(64);
    let ordered = |word: u64| {
        let magnitude = i128::from(word & ((1u64 << (bits - 1)) - 1));
        if word >> (bits - 1) & 1 == 1 { -magnitude } else { magnitude }
    };
    (ordered(left) - ordered(right)).unsigned_abs() <= u128::from(tolerance.ulps) || (a - b).abs() <= tolerance.absolute
}

fn show(bits: u64, ty: &DataType) -> String {
    let digits = bytes_of(ty) * 2;
    match ty {
        DataType::I32 => format!("{} (0x{bits:08x})", bits as i32),
        DataType::I64 => format!("{} (0x{bits:016x})", bits as i64),
        DataType::I8 => format!("{}", bits as i8),
        DataType::I16 => format!("{}", bits as i16),
        DataType::F32 => format!("{:?} (0x{bits:08x})", f32::from_bits(bits as u32)),
        DataType::Bool => format!("{}", bits != 0),
        _ => match float_value(bits, ty) {
            Some(value) => format!("{value:?} (0x{bits:0digits$x})"),
            None => format!("{bits} (0x{bits:0digits$x})"),
        },
    }
}

/// The tolerance of a buffer: the widest of the inexact functions in the values that are stored to it. Variables are looked
/// up by name, so a function's result is followed through `let` and assignment.
fn tolerance_of(program: &Program, buffer: &Name, ty: &DataType, rules: &Rules) -> Tolerance {
    if float_value(0, ty).is_none() {
        return Tolerance::EXACT;
    }
    let mut finder = Finder { program, ty, rules, seen: Vec::new() };
    let mut widest = Tolerance::EXACT;
    let bodies = program.functions().iter().map(|function| function.body.as_slice());
    for body in bodies.chain([program.body()]) {
        visit(body, &mut |node| {
            if let Node::Store { buffer: to, value, .. } = node
                && to == buffer
            {
                widest = widest.widest(finder.expr(value));
            }
        });
    }
    widest
}

/// Calls `see` for every statement, outer ones first.
pub(crate) fn visit<'a>(body: &'a [Node], see: &mut dyn FnMut(&'a Node)) {
    for node in body {
        see(node);
        match node {
            Node::If { then, otherwise, .. } => {
                visit(then, see);
                visit(otherwise, see);
            }
            Node::Switch { cases, .. } => cases.iter().for_each(|case| visit(&case.body, see)),
            Node::For { body, .. } | Node::Block(body) => visit(body, see),
            Node::Loop { body, continuing, .. } => {
                visit(body, see);
                visit(continuing, see);
            }
            _ => {}
        }
    }
}

struct Finder<'a> {
    program: &'a Program,
    ty: &'a DataType,
    rules: &'a Rules,
    seen: Vec<&'a Name>,
}

impl<'a> Finder<'a> {
    fn expr(&mut self, expr: &'a Expr) -> Tolerance {
        let own =
            match expr {
                Expr::Math { op, .. } => self.rules.math(*op, self.ty),
                Expr::MatrixMultiplyAdd { .. } => self.rules.matrix(),
                Expr::Binary {
                    op: vyre_foundation::ir::BinaryOp::Div | vyre_foundation::ir::BinaryOp::Rem, ..
                } if !self.rules.exact => Tolerance { ulps: 3, absolute: 0.0 },
                Expr::Var(name) => self.variable(name),
                _ => Tolerance::EXACT,
            };
        let mut widest = own;
        each_operand(expr, &mut |operand| widest = widest.widest(self.expr(operand)));
        widest
    }

    fn variable(&mut self, name: &'a Name) -> Tolerance {
        if self.seen.contains(&name) {
            return Tolerance::EXACT;
        }
        self.seen.push(name);
        let mut values = Vec::new();
        let bodies = self.program.functions().iter().map(|function| function.body.as_slice());
        for body in bodies.chain([self.program.body()]) {
            visit(body, &mut |node| match node {
                Node::Let { name: to, value } | Node::Assign { name: to, value, .. } if to == name => {
                    values.push(value)
                }
                Node::Var { name: to, init: Some(value), .. } if to == name => values.push(value),
                Node::Call { function, result: Some(to), .. } if to == name => {
                    if let Some(function) = self.program.functions().iter().find(|f| f.name == *function) {
                        visit(&function.body, &mut |node| {
                            if let Node::Return(Some(value)) = node {
                                values.push(value);
                            }
                        });
                    }
                }
                _ => {}
            });
        }
        values.into_iter().fold(Tolerance::EXACT, |widest, value| widest.widest(self.expr(value)))
    }
}

/// Calls `see` for the operands of an expression, those in access paths included.
pub(crate) fn each_operand<'a>(expr: &'a Expr, see: &mut dyn FnMut(&'a Expr)) {
    let steps = |path: &'a [Access], see: &mut dyn FnMut(&'a Expr)| {
        for step in path {
            if let Access::Index(index) = step {
                see(index);
            }
        }
    };
    match expr {
        Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_) => {}
        Expr::Load { index, path, .. } => {
            see(index);
            steps(path, see);
        }
        Expr::Unary { value, .. }
        | Expr::Cast { value, .. }
        | Expr::BitCast { value, .. }
        | Expr::Swizzle { value, .. } => see(value),
        Expr::Binary { left, right, .. } => {
            see(left);
            see(right);
        }
        Expr::Math { args, .. } => args.iter().for_each(see),
        Expr::Select { cond, yes, no } => {
            see(cond);
            see(yes);
            see(no);
        }
        Expr::Construct { parts, .. } => parts.iter().for_each(see),
        Expr::Part { value, path } => {
            see(value);
            steps(path, see);
        }
        Expr::Subgroup { value, argument, .. } => {
            see(value);
            if let Some(argument) = argument {
                see(argument);
            }
        }
        Expr::MatrixMultiplyAdd { a, b, c, .. } => {
            see(a);
            see(b);
            see(c);
        }
    }
}
