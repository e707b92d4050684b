//! All ops by name: what they take, what they cost, how they run and what they mean.

use vyre::expression::Term;
use vyre::{DataType, Diagnostic, Error, codes};

use crate::attention::attention;
use crate::bodies::accelerations;
use crate::bytes::{find_all, find_one};
use crate::convolution::convolve;
use crate::digest::{Digest, digest};
use crate::fft::fft;
use crate::fold::Kind;
use crate::histogram::histogram;
use crate::layout;
use crate::matrix::{Activation, Epilogue, Transposed, matmul};
use crate::output::Output;
use crate::reference::{self, Plain};
use crate::rows::{LAYER_NORM, LOG_SOFTMAX, RMS_NORM, SOFTMAX};
use crate::run::{dot, matvec, mean, position, reduced, rows, scanned, sorted, truth, variance};
use crate::search::{bounds, merge};
use crate::segments::{reduce_segments, scan_segments, sort_segments};
use crate::select;
use crate::stencil::{Boundary, stencil_of};
use crate::top::{top_k, top_k_axis};

/// An op: its name, what it takes, how it runs on arrays of any type, and what it means in plain Rust.
pub struct Op {
    /// Its name, which stays.
    pub id: &'static str,
    /// What it gives.
    pub about: &'static str,
    /// The names of its arrays.
    pub inputs: &'static [&'static str],
    /// The types of elements that it takes.
    pub types: Types,
    /// The names of its results.
    pub outputs: &'static [&'static str],
    /// The parameters that it looks at.
    pub parameters: &'static [Parameter],
    run: fn(&[Term], &Parameters) -> Result<Vec<Output>, Error>,
    plain: fn(&[Plain], &Parameters) -> Vec<Plain>,
    operations: fn(&[Vec<usize>]) -> u64,
}

/// The types that an op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Types {
    /// Everything that expressions compute with.
    Numbers,
    /// f32 and f64.
    Floats,
    /// f32, f64 and f16.
    AllFloats,
    /// f32 and f16.
    Halves,
    /// f32.
    Singles,
    /// u32, i32, f32 and their wide kin.
    Keys,
    /// The same, and f16.
    AllKeys,
    /// u32.
    Words,
    /// u32 and u8.
    Messages,
    /// u8.
    Bytes,
}

/// A parameter of some ops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `Parameters` say it")]
pub enum Parameter {
    Activation,
    Axis,
    Boundary,
    Causal,
    Count,
    Epsilon,
    Inverse,
    Padding,
    Scale,
    Stride,
}

/// What an op may be told besides its arrays.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// What the elements of a product go through at the end.
    pub activation: Activation,
    /// The axis to work along; all elements where there is none.
    pub axis: Option<usize>,
    /// What a stencil finds behind the edges.
    pub boundary: Boundary,
    /// Each query looks only at the keys up to its own position.
    pub causal: bool,
    /// Bins of a histogram, elements of top-k, positions that are kept of those that are found.
    pub count: Option<usize>,
    /// What is added under a root, or the distance within which bodies attract less.
    pub epsilon: Option<f64>,
    /// The way back.
    pub inverse: bool,
    /// Zeros around an image.
    pub padding: usize,
    /// What the elements of a product are multiplied by.
    pub scale: Option<f64>,
    /// How far a window moves at a time; 1 where nothing is said.
    pub stride: Option<usize>,
}

/// The least that an op has to move and compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Bytes read and written.
    pub bytes: u64,
    /// Arithmetic operations, or comparisons.
    pub operations: u64,
}

impl Op {
    /// Runs it on terms, in the order of its inputs.
    pub fn run(&self, inputs: &[Term], parameters: &Parameters) -> Result<Vec<Output>, Error> {
        if inputs.len() != self.inputs.len() {
            let message =
                format!("`{}` takes {}, but {} arrays were given", self.id, self.inputs.join(" and "), inputs.len());
            return Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message).into());
        }
        // Truth values are counted as 0 and 1.
        let number = |term: &Term| match term.data_type() {
            DataType::Bool => term.cast(&DataType::U32),
            _ => term.clone(),
        };
        (self.run)(&inputs.iter().map(number).collect::<Vec<_>>(), parameters)
    }

    /// What it means, in plain Rust: floats are computed in f64, whole numbers wrap.
    pub fn reference(&self, inputs: &[Plain], parameters: &Parameters) -> Vec<Plain> {
        (self.plain)(inputs, parameters)
    }

    /// The least that it has to move and compute for arrays of a type and these shapes.
    pub fn cost(&self, ty: &DataType, inputs: &[Vec<usize>], outputs: &[Vec<usize>]) -> Cost {
        let elements =
            |shapes: &[Vec<usize>]| shapes.iter().map(|shape| shape.iter().product::<usize>() as u64).sum::<u64>();
        let bytes = (elements(inputs) + elements(outputs)) * u64::from(ty.bits().unwrap_or(32) / 8);
        Cost { bytes, operations: (self.operations)(inputs) }
    }
}

/// The op of a name.
pub fn op(id: &str) -> Result<&'static Op, Error> {
    OPS.iter().find(|op| op.id == id).ok_or_else(|| {
        let names: Vec<&str> = OPS.iter().map(|op| op.id).collect();
        let message = format!("there is no op `{id}`; there are {}", names.join(", "));
        Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message).into()
    })
}

/// All ops.
pub fn ops() -> &'static [Op] {
    OPS
}

fn each(shapes: &[Vec<usize>]) -> u64 {
    shapes[0].iter().product::<usize>() as u64
}

fn product(shapes: &[Vec<usize>]) -> u64 {
    let columns = shapes[1].last().copied().unwrap_or(1);
    2 * each(shapes) * columns as u64
}

fn epilogue(parameters: &Parameters, bias: Option<&Term>) -> Epilogue {
    Epilogue { scale: parameters.scale, bias: bias.cloned(), activation: parameters.activation }
}

fn attended(shapes: &[Vec<usize>]) -> u64 {
    let keys = shapes[1].iter().rev().nth(1).copied().unwrap_or(1);
    4 * each(shapes) * keys as u64
}

/// 5·n·log₂ n for each transform, as the field counts.
fn transformed(shapes: &[Vec<usize>]) -> u64 {
    let points = shapes[0].iter().rev().nth(1).copied().unwrap_or(1).max(1);
    (2.5 * each(shapes) as f64 * (points as f64).log2()) as u64
}

/// Operations for each element and weight.
fn weighed(shapes: &[Vec<usize>]) -> u64 {
    let window = shapes[1].iter().rev().take(2).product::<usize>() as u64;
    2 * each(shapes) * window * if shapes[1].len() == 4 { shapes[1][0] as u64 } else { 1 }
}

macro_rules! op {
    ($id:literal, $about:literal, [$($input:literal),*], $types:ident, [$($output:literal),*], [$($parameter:ident),*], $operations:expr,
     $run:expr, $plain:expr) => {
        Op {
            id: $id,
            about: $about,
            inputs: &[$($input),*],
            types: Types::$types,
            outputs: &[$($output),*],
            parameters: &[$(Parameter::$parameter),*],
            run: $run,
            plain: $plain,
            operations: $operations,
        }
    };
}

macro_rules! reduction {
    ($id:literal, $about:literal, $types:ident, $run:expr, $kind:ident) => {
        op!($id, $about, ["x"], $types, ["y"], [Axis], each, |x, p| Ok(vec![$run(&x[0], p.axis)?]), |x, p| {
            vec![reference::reduce(&x[0], p.axis, reference::Fold::$kind)]
        })
    };
}

static OPS: &[Op] = &[
    reduction!("sum", "the sum of the elements", Numbers, |x: &Term, axis| reduced(x, axis, Kind::Sum), Sum),
    reduction!(
        "product",
        "the product of the elements",
        Numbers,
        |x: &Term, axis| reduced(x, axis, Kind::Product),
        Product
    ),
    reduction!("min", "the smallest element", Numbers, |x: &Term, axis| reduced(x, axis, Kind::Min), Min),
    reduction!("max", "the largest element", Numbers, |x: &Term, axis| reduced(x, axis, Kind::Max), Max),
    reduction!("mean", "the mean of the elements", Floats, mean, Mean),
    reduction!("variance", "the variance of the elements", Floats, variance, Variance),
    reduction!(
        "argmin",
        "the position of the smallest element",
        Numbers,
        |x: &Term, axis| position(x, axis, Kind::ArgMin),
        ArgMin
    ),
    reduction!(
        "argmax",
        "the position of the largest element",
        Numbers,
        |x: &Term, axis| position(x, axis, Kind::ArgMax),
        ArgMax
    ),
    reduction!("any", "1 when some element is not zero", Numbers, |x: &Term, axis| truth(x, axis, Kind::Any), Any),
    reduction!("all", "1 when no element is zero", Numbers, |x: &Term, axis| truth(x, axis, Kind::All), All),
    op!(
        "cumsum",
        "sums up to each element, with it",
        ["x"],
        Numbers,
        ["y"],
        [Axis],
        each,
        |x, p| Ok(vec![scanned(&x[0], p.axis, Kind::Sum, true)?]),
        |x, p| vec![reference::scan(&x[0], p.axis, true)]
    ),
    op!(
        "exclusive_sum",
        "sums up to each element, without it",
        ["x"],
        Numbers,
        ["y"],
        [Axis],
        each,
        |x, p| Ok(vec![scanned(&x[0], p.axis, Kind::Sum, false)?]),
        |x, p| vec![reference::scan(&x[0], p.axis, false)]
    ),
    op!(
        "sort",
        "the elements in ascending order",
        ["x"],
        AllKeys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![sorted(&x[0], false)?]),
        |x, _| vec![reference::sort(&x[0], false)]
    ),
    op!(
        "sort_descending",
        "the elements in descending order",
        ["x"],
        AllKeys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![sorted(&x[0], true)?]),
        |x, _| vec![reference::sort(&x[0], true)]
    ),
    op!(
        "top_k",
        "the largest elements and their positions",
        ["x"],
        Keys,
        ["values", "positions"],
        [Count, Axis],
        each,
        |x, p| {
            let count = p.count.unwrap_or(1);
            Ok(p.axis.map_or_else(|| top_k(&x[0], count), |axis| top_k_axis(&x[0], count, axis))?.into())
        },
        |x, p| reference::top_k(&x[0], p.count.unwrap_or(1), p.axis)
    ),
    op!(
        "unique",
        "the first of each run of equal elements, with zeros behind them, and how many there are",
        ["x"],
        Numbers,
        ["y", "count"],
        [],
        each,
        |x, _| Ok(select::unique(&x[0])?.into()),
        |x, _| reference::unique(&x[0])
    ),
    op!(
        "histogram",
        "how many elements are 0, 1 and so on",
        ["x"],
        Words,
        ["counts"],
        [Count],
        each,
        |x, p| Ok(vec![histogram(&x[0], p.count.unwrap_or(256))?]),
        |x, p| vec![reference::histogram(&x[0], p.count.unwrap_or(256))]
    ),
    op!(
        "softmax",
        "exp(x) / sum(exp(x)) along the last axis",
        ["x"],
        Floats,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![rows(&x[0], &SOFTMAX, 0.0)?]),
        |x, _| vec![reference::softmax(&x[0], false)]
    ),
    op!(
        "log_softmax",
        "the logarithm of softmax",
        ["x"],
        Floats,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![rows(&x[0], &LOG_SOFTMAX, 0.0)?]),
        |x, _| vec![reference::softmax(&x[0], true)]
    ),
    op!(
        "layer_norm",
        "rows with mean 0 and variance 1",
        ["x"],
        Floats,
        ["y"],
        [Epsilon],
        each,
        |x, p| Ok(vec![rows(&x[0], &LAYER_NORM, p.epsilon.unwrap_or(1e-5))?]),
        |x, p| vec![reference::norm(&x[0], p.epsilon.unwrap_or(1e-5), true)]
    ),
    op!(
        "rms_norm",
        "rows with a mean square of 1",
        ["x"],
        Floats,
        ["y"],
        [Epsilon],
        each,
        |x, p| Ok(vec![rows(&x[0], &RMS_NORM, p.epsilon.unwrap_or(1e-5))?]),
        |x, p| vec![reference::norm(&x[0], p.epsilon.unwrap_or(1e-5), false)]
    ),
    op!(
        "transpose",
        "the last two axes swapped",
        ["x"],
        Numbers,
        ["y"],
        [],
        |_| 0,
        |x, _| Ok(vec![layout::transpose(&x[0])?]),
        |x, _| vec![reference::transpose(&x[0])]
    ),
    op!(
        "gather",
        "the rows of x that positions name",
        ["x", "positions"],
        Numbers,
        ["y"],
        [],
        |_| 0,
        |x, _| Ok(vec![layout::gather(&x[0], &x[1])?]),
        |x, _| vec![reference::gather(&x[0], &x[1])]
    ),
    op!(
        "scatter_add",
        "x with values added to the rows that positions name",
        ["x", "positions", "values"],
        Keys,
        ["y"],
        [],
        |shapes| each(&shapes[2..]),
        |x, _| Ok(vec![layout::scatter(&x[0], &x[1], &x[2], true)?]),
        |x, _| vec![reference::scatter_add(&x[0], &x[1], &x[2])]
    ),
    op!(
        "lower_bound",
        "how many elements of what is sorted are smaller than each of x",
        ["sorted", "x"],
        Keys,
        ["positions"],
        [],
        |shapes| each(&shapes[1..]),
        |x, _| Ok(vec![bounds(&x[0], &x[1], false)?]),
        |x, _| vec![reference::bounds(&x[0], &x[1], false)]
    ),
    op!(
        "upper_bound",
        "how many elements of what is sorted are not larger than each of x",
        ["sorted", "x"],
        Keys,
        ["positions"],
        [],
        |shapes| each(&shapes[1..]),
        |x, _| Ok(vec![bounds(&x[0], &x[1], true)?]),
        |x, _| vec![reference::bounds(&x[0], &x[1], true)]
    ),
    op!(
        "merge",
        "the elements of two sorted arrays, sorted",
        ["a", "b"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![merge(&x[0], &x[1])?]),
        |x, _| vec![reference::merge(&x[0], &x[1])]
    ),
    op!(
        "segment_sum",
        "the sums of segments, which go from one offset to the next",
        ["x", "offsets"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![reduce_segments(&x[0], &x[1], Kind::Sum)?]),
        |x, _| vec![reference::segments(&x[0], &x[1], reference::Fold::Sum)]
    ),
    op!(
        "segment_max",
        "the largest elements of segments, which go from one offset to the next",
        ["x", "offsets"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![reduce_segments(&x[0], &x[1], Kind::Max)?]),
        |x, _| vec![reference::segments(&x[0], &x[1], reference::Fold::Max)]
    ),
    op!(
        "matmul",
        "the product of matrices",
        ["a", "b"],
        AllFloats,
        ["y"],
        [Scale, Activation],
        product,
        |x, p| Ok(vec![matmul(&x[0], &x[1], Transposed::default(), &epilogue(p, None))?]),
        |x, p| vec![reference::matmul(&x[0], &x[1], None, p)]
    ),
    op!(
        "linear",
        "the product of matrices with a bias for each column",
        ["a", "b", "bias"],
        AllFloats,
        ["y"],
        [Scale, Activation],
        product,
        |x, p| Ok(vec![matmul(&x[0], &x[1], Transposed::default(), &epilogue(p, Some(&x[2])))?]),
        |x, p| vec![reference::matmul(&x[0], &x[1], Some(&x[2]), p)]
    ),
    op!(
        "matvec",
        "the product of a matrix and a vector",
        ["a", "x"],
        Numbers,
        ["y"],
        [],
        |shapes| 2 * each(shapes),
        |x, _| Ok(vec![matvec(&x[0], &x[1])?]),
        |x, _| vec![reference::matvec(&x[0], &x[1])]
    ),
    op!(
        "dot",
        "the sum of products",
        ["a", "b"],
        Numbers,
        ["y"],
        [],
        |shapes| 2 * each(shapes),
        |x, _| Ok(vec![dot(&x[0], &x[1])?]),
        |x, _| vec![reference::dot(&x[0], &x[1])]
    ),
    op!(
        "attention",
        "softmax(q·kᵀ / sqrt(dim))·v",
        ["q", "k", "v"],
        Halves,
        ["y"],
        [Causal],
        attended,
        |x, p| Ok(vec![attention(&x[0], &x[1], &x[2], p.causal)?]),
        |x, p| vec![reference::attention(&x[0], &x[1], &x[2], p.causal)]
    ),
    op!(
        "fft",
        "the Fourier transform of complex numbers, [.., n, 2]",
        ["x"],
        Singles,
        ["y"],
        [Inverse],
        transformed,
        |x, p| Ok(vec![fft(&x[0], p.inverse)?]),
        |x, p| vec![reference::fft(&x[0], p.inverse)]
    ),
    op!(
        "stencil",
        "sums of neighbours in the last two or three axes, with weights",
        ["x", "weights"],
        Floats,
        ["y"],
        [Boundary],
        |shapes| 2 * each(shapes) * each(&shapes[1..]),
        |x, p| Ok(vec![stencil_of(&x[0], &x[1], p.boundary)?]),
        |x, p| vec![reference::stencil(&x[0], &x[1], p.boundary)]
    ),
    op!(
        "convolution",
        "windows of images, [n, c, h, w] or [h, w], with weights [o, c, kh, kw] or [kh, kw]",
        ["x", "weights"],
        AllFloats,
        ["y"],
        [Padding, Stride],
        weighed,
        |x, p| Ok(vec![convolve(&x[0], &x[1], p.stride.unwrap_or(1), p.padding)?]),
        |x, p| vec![reference::convolution(&x[0], &x[1], p.stride.unwrap_or(1), p.padding)]
    ),
    op!(
        "accelerations",
        "how bodies [n, 4], with places and masses, attract each other",
        ["bodies"],
        Singles,
        ["y"],
        [Epsilon],
        |shapes| 20 * (each(shapes) / 4).pow(2),
        |x, p| Ok(vec![accelerations(&x[0], p.epsilon.unwrap_or(1e-3))?]),
        |x, p| vec![reference::accelerations(&x[0], p.epsilon.unwrap_or(1e-3))]
    ),
    op!(
        "segment_cumsum",
        "sums up to each element that begin anew with each segment",
        ["x", "offsets"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![scan_segments(&x[0], &x[1])?]),
        |x, _| vec![reference::scan_segments(&x[0], &x[1])]
    ),
    op!(
        "segment_sort",
        "the elements of each segment in ascending order",
        ["x", "offsets"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![sort_segments(&x[0], &x[1], false)?]),
        |x, _| vec![reference::sort_segments(&x[0], &x[1], false)]
    ),
    op!(
        "segment_sort_descending",
        "the elements of each segment in descending order",
        ["x", "offsets"],
        Keys,
        ["y"],
        [],
        each,
        |x, _| Ok(vec![sort_segments(&x[0], &x[1], true)?]),
        |x, _| vec![reference::sort_segments(&x[0], &x[1], true)]
    ),
    op!(
        "crc32",
        "the CRC-32 of each row, a message of bytes or words",
        ["x"],
        Messages,
        ["y"],
        [],
        |shapes| 8 * each(shapes),
        |x, _| Ok(vec![digest(&x[0], Digest::Crc32)?]),
        |x, _| vec![reference::crc32(&x[0])]
    ),
    op!(
        "sha256",
        "the SHA-256 of each row, a message of bytes or words, as eight words",
        ["x"],
        Messages,
        ["y"],
        [],
        |shapes| 170 * each(shapes),
        |x, _| Ok(vec![digest(&x[0], Digest::Sha256)?]),
        |x, _| vec![reference::sha256(&x[0])]
    ),
    op!(
        "find",
        "where a pattern of bytes begins, up to a count, with zeros behind, and how many there are",
        ["x", "pattern"],
        Bytes,
        ["positions", "count"],
        [Count],
        |shapes| 2 * each(shapes),
        |x, p| find_one(&x[0], &x[1], p.count.unwrap_or(usize::MAX)),
        |x, p| reference::find_one(&x[0], &x[1], p.count.unwrap_or(usize::MAX))
    ),
    op!(
        "find_all",
        "where patterns begin that go from one offset to the next, up to a count, which do, and how many there are",
        ["x", "patterns", "offsets"],
        Bytes,
        ["positions", "which", "count"],
        [Count],
        |shapes| 4 * each(shapes),
        |x, p| find_all(&x[0], &x[1], &x[2], p.count.unwrap_or(usize::MAX)),
        |x, p| reference::find_all(&x[0], &x[1], &x[2], p.count.unwrap_or(usize::MAX))
    ),
];
