//! Expressions: what is computed of arrays, position by position, in one kernel.

mod fuse;
mod operators;
mod term;

use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::sync::Arc;

pub use fuse::{Fused, literal_text};
use vyre_driver::DispatchConfig;
use vyre_foundation::ir::{BinaryOp, DataType, Literal, MathOp};
use vyre_foundation::text;

use self::fuse::stored_as;
pub use self::term::Term;
use crate::array::{Array, Buffer, Element, Shape};
use crate::engine::{Arg, places};
use crate::kernels::Kernel;
use crate::{Engine, Error};

/// A value for each position of a shape, made of arrays and numbers; nothing is computed before it is needed.
///
/// Operators and functions on arrays and expressions give expressions. [`eval`](Self::eval) computes all of it in one kernel, whose code is
/// remembered by the expression's structure: the same computation on other arrays and numbers compiles nothing. What occurs twice is
/// computed once, and a value that has been computed is not computed again. Arrays are taken as they are when the expression is made,
/// whatever is written later.
///
/// Shapes fit as in NumPy: the last axes stand together, and an extent of 1 is repeated. A mistake is told when the value is asked for.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let a = engine.array(&[1.0f32, 4.0, 9.0])?;
/// let b = engine.array(&[2.0f32, 2.0, 2.0])?;
/// let c = (a.lazy().sqrt() * &b + 1.0).eval()?;
/// assert_eq!(c.to_vec()?, [3.0, 5.0, 7.0]);
/// let capped = a.lazy().gt(3.0).select(3.0, &a).eval()?;
/// assert_eq!(capped.to_vec()?, [1.0, 3.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub struct Expression<T> {
    term: Term,
    element: PhantomData<fn() -> T>,
}

/// Numbers that expressions compute with.
pub trait Number: Element + PartialOrd {
    /// The number as a program says it.
    fn literal(self) -> Literal;
}

macro_rules! numbers {
    ($($number:ty => $literal:ident),*) => {
        $(impl Number for $number {
            fn literal(self) -> Literal {
                Literal::$literal(self)
            }
        })*
    };
}

numbers!(f32 => F32, f64 => F64, half::f16 => F16, i32 => I32, u32 => U32, i64 => I64, u64 => U64);

impl Engine {
    /// An array of one number.
    pub fn full<T: Number>(&self, shape: impl Into<Shape>, value: T) -> Result<Array<T>, Error> {
        Expression::<T>::of(Term::scalar(value.literal()).broadcast(self, shape.into())).eval()
    }

    /// The numbers from 0 on.
    pub fn iota<T: Number>(&self, count: usize) -> Result<Array<T>, Error> {
        self.positions(count).cast::<T>().eval()
    }

    /// The positions of a shape, counted with the last axis the fastest, for expressions.
    pub fn positions(&self, shape: impl Into<Shape>) -> Expression<u32> {
        Expression::of(Term::positions(self, shape.into()))
    }

    /// A kernel that is remembered by a key, which has to say everything that its program depends on. The program is made when the key is
    /// first met.
    pub fn kernel_from(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<vyre_foundation::ir::Program, Error>,
    ) -> Result<Kernel, Error> {
        self.kernel_from_with(key, || Ok((make()?, DispatchConfig::default())))
    }

    /// [`Engine::kernel_from`] with a configuration, such as one that brings variants.
    pub fn kernel_from_with(
        &self,
        key: &str,
        make: impl FnOnce() -> Result<(vyre_foundation::ir::Program, DispatchConfig), Error>,
    ) -> Result<Kernel, Error> {
        let inner = &self.inner;
        let place = places::current(inner);
        if let Some(cores) = crate::engine::lock(&inner.keyed).get(key)
            && let Some(core) = cores.iter().find(|core| core.only == place)
        {
            return Ok(Kernel::of(self, core));
        }
        let (program, config) = make()?;
        let core = inner.core(&program, &config, place.as_ref())?;
        inner.check_place(&core)?;
        /// Kernels that an engine remembers by keys.
        const MOST: usize = 1024;
        let mut keyed = crate::engine::lock(&inner.keyed);
        if keyed.len() >= MOST {
            keyed.clear();
        }
        let kernel = Kernel::of(self, &core);
        keyed.entry(key.to_owned()).or_default().push(core);
        Ok(kernel)
    }

    /// A kernel of a program in the text form, remembered by its text.
    pub fn kernel_of_text(&self, source: &str) -> Result<Kernel, Error> {
        self.kernel_from(source, || Ok(text::parse(source)?))
    }
}

impl<T: Element> Array<T> {
    /// The array as an expression.
    pub fn lazy(&self) -> Expression<T> {
        self.into()
    }
}

impl<T> Expression<T> {
    /// A term of this type. [`Term::cast`] makes one where it may be another.
    pub fn of(term: Term) -> Expression<T> {
        Expression { term, element: PhantomData }
    }

    /// The expression without its Rust type.
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// The extents, the slowest first; none for a number.
    pub fn shape(&self) -> &[usize] {
        self.term.shape().map_or(&[], Shape::extents)
    }
}

impl<T: Number> Expression<T> {
    /// Computes it. The array is there at once and its elements as soon as they can be; reading it waits for them.
    pub fn eval(&self) -> Result<Array<T>, Error> {
        let buffer = self.term.evaluate()?;
        array_of(buffer, self.term.shape())
    }

    fn math(&self, op: MathOp, others: &[&Term]) -> Expression<T> {
        let mut args = vec![&self.term];
        args.extend(others);
        Expression::of(Term::math(op, &args))
    }

    /// In another type: floats are cut off and saturate, and NaN gives 0.
    pub fn cast<U: Number>(&self) -> Expression<U> {
        Expression::of(self.term.cast(&U::data_type().unwrap_or(DataType::F32)))
    }

    /// The bits as another type of the same size.
    pub fn bit_cast<U: Number>(&self) -> Expression<U> {
        Expression::of(self.term.bit_cast(&U::data_type().unwrap_or(DataType::F32)))
    }

    /// Not below one bound and not above the other.
    pub fn clamp(&self, low: impl Into<Expression<T>>, high: impl Into<Expression<T>>) -> Expression<T> {
        self.math(MathOp::Clamp, &[&low.into().term, &high.into().term])
    }

    /// `self · b + c` with one rounding; on floats.
    pub fn mul_add(&self, b: impl Into<Expression<T>>, c: impl Into<Expression<T>>) -> Expression<T> {
        self.math(MathOp::Fma, &[&b.into().term, &c.into().term])
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<T: Number> Expression<T> {
            $($(#[$doc])* pub fn $name(&self) -> Expression<T> {
                self.math(MathOp::$op, &[])
            })*
        }
    };
}

functions! {
    /// Without its sign.
    abs Abs;
    /// −1, 0 or 1.
    signum Sign;
    /// Towards −∞.
    floor Floor;
    /// Towards +∞.
    ceil Ceil;
    /// To the nearest, ties to even.
    round Round;
    /// Towards zero.
    trunc Trunc;
    /// Square root.
    sqrt Sqrt;
    /// `1 / sqrt(x)`.
    inverse_sqrt InverseSqrt;
    /// eˣ.
    exp Exp;
    /// 2ˣ.
    exp2 Exp2;
    /// Natural logarithm.
    ln Log;
    /// Logarithm to base 2.
    log2 Log2;
    /// Sine.
    sin Sin;
    /// Cosine.
    cos Cos;
    /// Tangent.
    tan Tan;
    /// Hyperbolic tangent.
    tanh Tanh;
    /// Bits set; on integers.
    count_ones CountOneBits;
}

macro_rules! pairs {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<T: Number> Expression<T> {
            $($(#[$doc])* pub fn $name(&self, other: impl Into<Expression<T>>) -> Expression<T> {
                self.math(MathOp::$op, &[&other.into().term])
            })*
        }
    };
}

pairs! {
    /// The smaller of the two: `b < a ? b : a`.
    minimum Min;
    /// The larger of the two: `a < b ? b : a`.
    maximum Max;
    /// xʸ for x ≥ 0; NaN for x < 0.
    pow Pow;
    /// The angle of (other, self).
    atan2 Atan2;
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $op:ident;)*) => {
        impl<T: Number> Expression<T> {
            $($(#[$doc])* pub fn $name(&self, other: impl Into<Expression<T>>) -> Expression<bool> {
                Expression::of(self.term.binary(BinaryOp::$op, &other.into().term))
            })*
        }
    };
}

comparisons! {
    /// `self == other`.
    eq Eq;
    /// `self != other`.
    ne Ne;
    /// `self < other`.
    lt Lt;
    /// `self <= other`.
    le Le;
    /// `self > other`.
    gt Gt;
    /// `self >= other`.
    ge Ge;
}

impl Expression<bool> {
    /// `yes` where this is true, `no` elsewhere.
    pub fn select<T: Number>(&self, yes: impl Into<Expression<T>>, no: impl Into<Expression<T>>) -> Expression<T> {
        Expression::of(self.term.select(&yes.into().term, &no.into().term))
    }

    /// 1 where it is true, 0 elsewhere.
    pub fn cast<U: Number>(&self) -> Expression<U> {
        Expression::of(self.term.cast(&U::data_type().unwrap_or(DataType::U32)))
    }

    /// Computes it: 1 where it is true, 0 elsewhere.
    pub fn eval(&self) -> Result<Array<u32>, Error> {
        let buffer = self.term.evaluate()?;
        array_of(buffer, self.term.shape())
    }
}

fn array_of<T: Element>(buffer: Buffer, shape: Option<&Shape>) -> Result<Array<T>, Error> {
    let array = buffer.into_array()?;
    match shape {
        Some(shape) => array.shaped(shape.clone()),
        None => Ok(array),
    }
}

impl Term {
    /// Its elements, computed where they are not there yet; truth as u32, 1 and 0.
    pub fn evaluate(&self) -> Result<Buffer, Error> {
        if let (Some(buffer), true) = (self.0.value.get(), self.is_stored_as_computed()) {
            return Ok(buffer.clone());
        }
        let fused = Fused::new(&[self])?;
        let ty = stored_as(self.data_type());
        let size = u64::from(ty.bits().unwrap_or(32) / 8);
        let buffer = fused.engine().buffer(fused.elements() as u64 * size);
        for part in fused.parts(1)? {
            let kernel = self.map(&fused, &ty)?;
            let bytes = part.start as u64 * size..part.end as u64 * size;
            let call = fused.bind(kernel.call(), part);
            // Every position has its element.
            call.put("out", Arg::Part(&buffer.storage, bytes), None, 1).overwrites().launch()?;
        }
        // Two threads may both have computed it; either value is right.
        if !matches!(self.0.op, term::Op::Array(_)) {
            let _ = self.0.value.set(buffer.clone());
        }
        Ok(buffer)
    }

    /// The kernel that computes it for each position.
    fn map(&self, fused: &Fused, ty: &DataType) -> Result<Kernel, Error> {
        fused.engine().kernel_from(&format!("map {}", fused.key()), || {
            let at = fused.bindings();
            let (lines, values) = fused.lines("i", "");
            let value = match *self.data_type() {
                DataType::Bool => format!("select({}, 1, 0)", values[0]),
                _ => values[0].clone(),
            };
            let mut source = fused.declarations(0, None);
            let _ = write!(
                source,
                "output out: {ty} @{at};\nworkgroup_size [128, 1, 1];\nentry map {{\nlet i = global_id.x;\nif i < len(out) {{\n{}{lines}out[i] = {value};\n}}\n}}\n",
                fused.uniform_lines()
            );
            Ok(text::parse(&source)?)
        })
    }

    /// The buffer behind an array, and the type that its elements have there: bf16 computes as f32, but is stored as what it is.
    pub fn stored(&self) -> Option<(&Buffer, &DataType)> {
        match &self.0.op {
            term::Op::Array(stored) => self.0.value.get().map(|buffer| (buffer, stored)),
            _ => None,
        }
    }

    /// The arrays that it is computed of.
    pub fn arrays(&self) -> Vec<&Buffer> {
        let mut arrays = Vec::new();
        self.collect_arrays(&mut arrays);
        arrays
    }

    fn collect_arrays<'a>(&'a self, arrays: &mut Vec<&'a Buffer>) {
        match self.0.value.get() {
            Some(buffer) if arrays.iter().any(|known| Arc::ptr_eq(&known.storage, &buffer.storage)) => {}
            Some(buffer) => arrays.push(buffer),
            None => self.0.op.operands().iter().for_each(|operand| operand.collect_arrays(arrays)),
        }
    }

    /// The elements of an array of bytes are widened when they are asked for.
    fn is_stored_as_computed(&self) -> bool {
        match &self.0.op {
            term::Op::Array(stored) => *stored == stored_as(self.data_type()),
            _ => true,
        }
    }
}

impl<T> Clone for Expression<T> {
    fn clone(&self) -> Self {
        Expression::of(self.term.clone())
    }
}

impl<T> fmt::Debug for Expression<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression<{}>({:?})", std::any::type_name::<T>(), self.shape())
    }
}
