//! What becomes of the sums of a product before they are stored.

use std::fmt::Write;

use vyre::expression::Term;
use vyre::ir::{BinaryOp, Expr, Literal, MathOp, Node};
use vyre::{Buffer, DataType, Error};

use super::{elements, sums_of};
use crate::hopper::line;
use crate::launch::{extents, misfit_with, mistyped};

/// What is made of each element of a product, in the type that it was added up in: `activation(scale · sum + bias)`. It is rounded to the type
/// of the elements once, at the end.
#[derive(Clone, Default)]
pub struct Epilogue {
    /// A number that all sums are multiplied by.
    pub scale: Option<f64>,
    /// A number for each column `[n]`, of the factors' type, which is added to its sums.
    pub bias: Option<Term>,
    /// The last step.
    pub activation: Activation,
}

/// A function of one element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The element as it is.
    #[default]
    None,
    /// 0 for what is below it; NaN stays.
    Relu,
    /// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`, the usual form of the Gaussian error linear unit.
    Gelu,
}

impl Activation {
    /// The one of a name: `none`, `relu` or `gelu`.
    pub fn named(name: &str) -> Option<Activation> {
        Some(match name {
            "none" => Activation::None,
            "relu" => Activation::Relu,
            "gelu" => Activation::Gelu,
            _ => return None,
        })
    }

    /// What it means.
    pub(crate) fn plain(self, x: f64) -> f64 {
        match self {
            Activation::None => x,
            Activation::Relu => {
                if x <= 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Activation::Gelu => x / 2.0 * (1.0 + (LINEAR * x + CUBIC * x * x * x).tanh()),
        }
    }
}

/// √(2/π), and 0.044715 times that.
const LINEAR: f64 = 0.797_884_560_802_865_4;
const CUBIC: f64 = 0.035_677_408_136_300_125;

/// An epilogue as kernels are told of it: all that tells one kernel from another. The scale is among the sizes of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) scaled: bool,
    pub(super) bias: bool,
    pub(super) activation: Activation,
}

/// The words of the sizes where the scale begins.
pub(super) const SCALE: usize = 5;

impl Epilogue {
    pub(super) fn steps(&self) -> Steps {
        Steps { scaled: self.scale.is_some(), bias: self.bias.is_some(), activation: self.activation }
    }

    /// The elements of the bias, for a product of so many columns.
    pub(super) fn bias_of(&self, ty: &DataType, columns: usize) -> Result<Option<Buffer>, Error> {
        let Some(bias) = &self.bias else { return Ok(None) };
        if super::stored_type(bias) != *ty && bias.data_type() != ty {
            return Err(mistyped(format!("a bias of {} was given for a product of {ty}", bias.data_type())));
        }
        let own = extents(bias)?;
        if own != [columns] {
            let message = format!("a bias of {own:?} does not fit a product of {columns} columns");
            return Err(misfit_with(message, format!("Give [{columns}].")));
        }
        elements(bias, ty).map(Some)
    }

    /// The scale as words of the sizes.
    pub(super) fn scale_words(&self, ty: &DataType) -> [u32; 2] {
        let scale = self.scale.unwrap_or(1.0);
        match ty {
            DataType::F64 => [scale.to_bits() as u32, (scale.to_bits() >> 32) as u32],
            _ => [(scale as f32).to_bits(), 0],
        }
    }

    /// The same as an expression of a product that was made without it, whose elements are of the type of their sums.
    pub(super) fn applied(&self, product: &Term) -> Term {
        let ty = product.data_type().clone();
        let number = |value: f64| Term::scalar(literal(&ty, value));
        let mut x = product.clone();
        if let Some(scale) = self.scale {
            x = x.binary(BinaryOp::Mul, &number(scale));
        }
        if let Some(bias) = &self.bias {
            x = x.binary(BinaryOp::Add, bias);
        }
        match self.activation {
            Activation::None => x,
            Activation::Relu => x.binary(BinaryOp::Le, &number(0.0)).select(&number(0.0), &x),
            Activation::Gelu => {
                let square = x.binary(BinaryOp::Mul, &x);
                let inner = Term::math(MathOp::Fma, &[&square, &number(CUBIC), &number(LINEAR)]);
                let turned = Term::math(MathOp::Tanh, &[&inner.binary(BinaryOp::Mul, &x)]);
                let half = x.binary(BinaryOp::Mul, &number(0.5));
                Term::math(MathOp::Fma, &[&half, &turned, &half])
            }
        }
    }
}

fn literal(ty: &DataType, value: f64) -> Literal {
    match ty {
        DataType::F64 => Literal::F64(value),
        _ => Literal::F32(value as f32),
    }
}

impl Steps {
    pub(super) fn is_none(self) -> bool {
        self == Steps::default()
    }

    /// The bias as a kernel's buffer at a place, where there is one.
    pub(super) fn declaration(self, ty: &str, at: usize) -> String {
        if self.bias { format!("read bias: {ty} @{at};\n") } else { String::new() }
    }

    /// Lines that come before all elements.
    pub(super) fn begin(self, ty: &DataType) -> String {
        match (self.scaled, sums_of(ty)) {
            (false, _) => String::new(),
            (_, DataType::F64) => format!(
                "let scale = bitcast<f64>(cast<u64>(sizes[{SCALE}]) | (cast<u64>(sizes[{}]) << 32));\n",
                SCALE + 1
            ),
            _ => format!("let scale = bitcast<f32>(sizes[{SCALE}]);\n"),
        }
    }

    /// Lines that make `done_NAME` of a sum in a column, and its name.
    pub(super) fn lines(self, ty: &DataType, sum: &str, column: &str, name: &str) -> (String, String) {
        if self.is_none() {
            return (String::new(), sum.to_owned());
        }
        let suffix = if *ty == DataType::F64 { "f64" } else { "" };
        let mut x = sum.to_owned();
        if self.scaled {
            x = format!("{x} * scale");
        }
        if self.bias {
            x = format!("{x} + {}", super::widened(ty, format!("bias[{column}]")));
        }
        let begun = format!("let begun_{name} = {x};\n");
        let x = format!("begun_{name}");
        let done = match self.activation {
            Activation::None => x,
            Activation::Relu => format!("select({x} <= 0.0{suffix}, 0.0{suffix}, {x})"),
            Activation::Gelu => {
                let (cubic, linear) = (text(ty, CUBIC), text(ty, LINEAR));
                format!("fma({x} * 0.5{suffix}, tanh(fma({x} * {x}, {cubic}, {linear}) * {x}), {x} * 0.5{suffix})")
            }
        };
        (format!("{begun}let done_{name} = {done};\n"), format!("done_{name}"))
    }

    /// The same in the builder's form, where sums are of f32 and the scale is the first word of `told`.
    pub(super) fn nodes(self, ty: &DataType, sum: Expr, column: Expr, name: String, body: &mut Vec<Node>) -> Expr {
        let mut x = sum;
        if self.scaled {
            x = x * Expr::load("told", Expr::u32(0)).bit_cast(DataType::F32);
        }
        if self.bias {
            let bias = Expr::load("bias", column);
            // What is stored as bf16 is read as f32.
            x = x + if *ty == DataType::F16 { bias.cast(DataType::F32) } else { bias };
        }
        if self.activation == Activation::None {
            return x;
        }
        body.push(Node::let_bind(name.clone(), x));
        let x = || Expr::var(name.clone());
        match self.activation {
            Activation::None => x(),
            Activation::Relu => Expr::select(x().le(Expr::f32(0.0)), Expr::f32(0.0), x()),
            Activation::Gelu => {
                let inner = (x() * x()).fma(Expr::f32(CUBIC as f32), Expr::f32(LINEAR as f32));
                let half = x() * Expr::f32(0.5);
                half.clone().fma((inner * x()).tanh(), half)
            }
        }
    }

    /// PTX that makes `%{register}` of a sum, with the scale in `%scale` and the bias of its column in a register.
    pub(super) fn instructions(self, t: &mut String, register: &str, bias: &str) {
        if self.scaled {
            line!(t, "mul.rn.f32 {register}, {register}, %scale;");
        }
        if self.bias {
            line!(t, "add.rn.f32 {register}, {register}, {bias};");
        }
        match self.activation {
            Activation::None => {}
            Activation::Relu => line!(t, "max.NaN.f32 {register}, {register}, 0f00000000;"),
            // tanh(u) = 1 - 2 / (1 + exp(2 u)), with what approximates both: near enough for results of 11 bits.
            Activation::Gelu => {
                let (cubic, linear) = ((CUBIC as f32).to_bits(), (LINEAR as f32).to_bits());
                line!(t, "mul.f32 %g0, {register}, {register}; mov.f32 %g1, 0f{linear:08x};");
                line!(t, "fma.rn.f32 %g0, %g0, 0f{cubic:08x}, %g1; mul.f32 %g0, %g0, {register};");
                line!(t, "mul.f32 %g0, %g0, 0f{:08x};", (2.0 * std::f32::consts::LOG2_E).to_bits());
                line!(t, "ex2.approx.f32 %g0, %g0; add.f32 %g0, %g0, 0f3f800000; rcp.approx.f32 %g0, %g0;");
                // x/2 (1 + 1 - 2r) = x - x r.
                line!(t, "neg.f32 %g0, %g0; fma.rn.f32 {register}, %g0, {register}, {register};");
            }
        }
    }
}

/// A number exactly as kernels have it.
fn text(ty: &DataType, value: f64) -> String {
    match ty {
        DataType::F64 => format!("f64#{:016x}", value.to_bits()),
        _ => format!("f32#{:08x}", (value as f32).to_bits()),
    }
}
