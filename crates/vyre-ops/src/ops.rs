use vyre::expression::Term;
use vyre::ir::BinaryOp;
use vyre::{Array, DataType, Error, Expression, Number};

use crate::fold::{Fold, Kind};
use crate::histogram::histogram;
use crate::launch::{array, extents, is_float, misfit, mistyped, split};
use crate::matrix::{Transposed, matmul};
use crate::reduce::{Finish, reduce};
use crate::rows::{LAYER_NORM, LOG_SOFTMAX, RMS_NORM, Rows, SOFTMAX};
use crate::scan::Scan;
use crate::select::{self, Counted};
use crate::sort;

/// Ops on arrays and expressions. See the [crate](crate) for an example.
///
/// Reductions put all elements together, or with `_axis` those along one axis, which the result then does not have. A result of all is an
/// array without axes, which fits every shape in an expression; [`value`](Ops::value) reads it. The order is fixed (see `docs/ops.md`), so
/// that floats give the same bits everywhere. f16 is added up in f32.
///
/// NaN among the elements makes `sum`, `product`, `min`, `max`, `mean` and `variance` NaN, and is where `argmin` and `argmax` point to. Of
/// nothing the sum is 0, the product 1, the minimum the largest value of the type, the maximum the smallest, and the mean NaN.
pub trait Ops<T: Number> {
    /// The array or expression as a term.
    fn to_term(&self) -> Term;

    /// The sum.
    fn sum(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Sum)
    }

    /// The sums along an axis.
    fn sum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Sum)
    }

    /// The product.
    fn product(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Product)
    }

    /// The products along an axis.
    fn product_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Product)
    }

    /// The smallest element.
    fn min(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Min)
    }

    /// The smallest elements along an axis.
    fn min_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Min)
    }

    /// The largest element.
    fn max(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Max)
    }

    /// The largest elements along an axis.
    fn max_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Max)
    }

    /// The mean of floats.
    fn mean(&self) -> Result<Array<T>, Error> {
        mean(&self.to_term(), None)
    }

    /// The means along an axis.
    fn mean_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        mean(&self.to_term(), Some(axis))
    }

    /// The mean square distance of floats from their mean (the variance of a population), in two passes.
    fn variance(&self) -> Result<Array<T>, Error> {
        variance(&self.to_term(), None)
    }

    /// The variances along an axis.
    fn variance_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        variance(&self.to_term(), Some(axis))
    }

    /// The position of the smallest element, the first where there are several.
    fn argmin(&self) -> Result<Array<u32>, Error> {
        position(&self.to_term(), None, Kind::ArgMin)
    }

    /// The positions of the smallest elements along an axis.
    fn argmin_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        position(&self.to_term(), Some(axis), Kind::ArgMin)
    }

    /// The position of the largest element, the first where there are several.
    fn argmax(&self) -> Result<Array<u32>, Error> {
        position(&self.to_term(), None, Kind::ArgMax)
    }

    /// The positions of the largest elements along an axis.
    fn argmax_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        position(&self.to_term(), Some(axis), Kind::ArgMax)
    }

    /// 1 when some element is not zero, else 0.
    fn any(&self) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), None, Kind::Any)
    }

    /// [`any`](Ops::any) along an axis.
    fn any_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), Some(axis), Kind::Any)
    }

    /// 1 when no element is zero, else 0.
    fn all(&self) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), None, Kind::All)
    }

    /// [`all`](Ops::all) along an axis.
    fn all_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), Some(axis), Kind::All)
    }

    /// Sums of all elements up to each one, with it.
    fn cumsum(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Sum, true)
    }

    /// [`cumsum`](Ops::cumsum) along an axis.
    fn cumsum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), Some(axis), Kind::Sum, true)
    }

    /// Sums of all elements before each one.
    fn exclusive_sum(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Sum, false)
    }

    /// [`exclusive_sum`](Ops::exclusive_sum) along an axis.
    fn exclusive_sum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), Some(axis), Kind::Sum, false)
    }

    /// Products of all elements up to each one, with it.
    fn cumprod(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Product, true)
    }

    /// The smallest of all elements up to each one, with it.
    fn cummin(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Min, true)
    }

    /// The largest of all elements up to each one, with it.
    fn cummax(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Max, true)
    }

    /// The elements where a mask is true, in their order.
    fn compact(&self, mask: &Expression<bool>) -> Result<Counted<T>, Error> {
        select::compact(&self.to_term(), mask)
    }

    /// All elements: those where a mask is true, which are counted, then the others, each in their order.
    fn partition(&self, mask: &Expression<bool>) -> Result<Counted<T>, Error> {
        select::partition(&self.to_term(), mask)
    }

    /// The first of each run of equal elements. NaN equals nothing.
    fn unique(&self) -> Result<Counted<T>, Error> {
        select::unique(&self.to_term())
    }

    /// How many elements are 0, 1 and so on up to a number of bins; of u32. Larger ones are not counted.
    fn histogram(&self, bins: usize) -> Result<Array<u32>, Error> {
        histogram(&self.to_term(), bins)
    }

    /// All elements in ascending order. Floats are ordered as `total_cmp` does: NaN comes last, or first where its sign bit is set.
    fn sort(&self) -> Result<Array<T>, Error> {
        sorted(&self.to_term(), false)
    }

    /// All elements in descending order.
    fn sort_descending(&self) -> Result<Array<T>, Error> {
        sorted(&self.to_term(), true)
    }

    /// All elements in ascending order, and values that go with them; equal ones keep their order.
    fn sort_with<V: Number>(&self, values: &impl Ops<V>) -> Result<(Array<T>, Array<V>), Error> {
        let (keys, values) = sort::sort(&self.to_term(), Some(&values.to_term()), false)?;
        let values = values.ok_or_else(|| misfit("values were given"))?;
        Ok((keys.into_array()?, values.into_array()?))
    }

    /// The positions of the elements in ascending order; those of equal ones keep their order.
    fn argsort(&self) -> Result<Array<u32>, Error> {
        Ok(sort::sorted_positions::<T>(&self.to_term(), false)?.1)
    }

    /// The largest elements, the largest first, and their positions; of equal ones the first.
    fn top_k(&self, count: usize) -> Result<(Array<T>, Array<u32>), Error> {
        let (values, positions) = sort::sorted_positions::<T>(&self.to_term(), true)?;
        Ok((front(&values, count)?, front(&positions, count)?))
    }

    /// `exp(x) / sum(exp(x))` along the last axis, without overflow; of f32 and f64.
    fn softmax(&self) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &SOFTMAX, 0.0)
    }

    /// The logarithm of [`softmax`](Ops::softmax).
    fn log_softmax(&self) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &LOG_SOFTMAX, 0.0)
    }

    /// Rows along the last axis with mean 0 and variance 1: `(x - mean) / sqrt(variance + epsilon)`.
    fn layer_norm(&self, epsilon: f64) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &LAYER_NORM, epsilon)
    }

    /// Rows along the last axis with a mean square of 1: `x / sqrt(mean(x²) + epsilon)`.
    fn rms_norm(&self, epsilon: f64) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &RMS_NORM, epsilon)
    }

    /// The product of matrices, `[.., m, k]` by `[.., k, n]`; of f32 and f64.
    fn matmul(&self, other: &impl Ops<T>) -> Result<Array<T>, Error> {
        matmul(&self.to_term(), &other.to_term(), Transposed::default())
    }

    /// [`matmul`](Ops::matmul) of matrices that are given transposed.
    fn matmul_transposed(&self, other: &impl Ops<T>, transposed: Transposed) -> Result<Array<T>, Error> {
        matmul(&self.to_term(), &other.to_term(), transposed)
    }

    /// The sum of the products of the elements.
    fn dot(&self, other: &impl Ops<T>) -> Result<Array<T>, Error> {
        reduced(&self.to_term().binary(BinaryOp::Mul, &other.to_term()), None, Kind::Sum)
    }

    /// The product of a matrix `[.., m, k]` and a vector `[k]`.
    fn matvec(&self, vector: &impl Ops<T>) -> Result<Array<T>, Error> {
        let matrix = self.to_term();
        let axes = extents(&matrix)?.len();
        let products = matrix.binary(BinaryOp::Mul, &vector.to_term());
        reduced(&products, Some(axes.saturating_sub(1)), Kind::Sum)
    }

    /// The one element, on the host.
    fn value(&self) -> Result<T, Error> {
        let values = Expression::<T>::of(self.to_term()).eval()?.to_vec()?;
        match values[..] {
            [value] => Ok(value),
            _ => Err(misfit(format!("{} elements are not one value", values.len()))),
        }
    }
}

impl<T: Number> Ops<T> for Array<T> {
    fn to_term(&self) -> Term {
        self.lazy().term().clone()
    }
}

impl<T: Number> Ops<T> for Expression<T> {
    fn to_term(&self) -> Term {
        self.term().clone()
    }
}

/// The extents that are left.
fn without(term: &Term, axis: Option<usize>) -> Result<Vec<usize>, Error> {
    let mut extents = extents(term)?;
    match axis {
        Some(axis) if axis < extents.len() => drop(extents.remove(axis)),
        Some(axis) => return Err(misfit(format!("there is no axis {axis}"))),
        None => extents.clear(),
    }
    Ok(extents)
}

fn first<T: Number>(term: &Term, axis: Option<usize>, kind: Kind, finish: Finish<'_>) -> Result<Array<T>, Error> {
    let shape = without(term, axis)?;
    let stored = term.data_type();
    let wide = if *stored == DataType::F16 { term.cast(&DataType::F32) } else { term.clone() };
    let finish = match (finish, stored) {
        (Some(finish), DataType::F16) => Some(format!("cast<f16>({finish})")),
        (None, DataType::F16) => Some("cast<f16>(#)".to_owned()),
        (finish, _) => finish.map(str::to_owned),
    };
    let mut results = reduce(&wide, axis, kind, finish.as_deref(), stored)?;
    array(results.swap_remove(0), &shape)
}

fn reduced<T: Number>(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Array<T>, Error> {
    // Neutral for sums is -0; the sum of nothing, and of nothing but -0, is 0.
    let zero = match (kind, term.data_type()) {
        (Kind::Sum, DataType::F64) => Some("# + 0.0f64"),
        (Kind::Sum, DataType::F32 | DataType::F16) => Some("# + 0.0"),
        _ => None,
    };
    first(term, axis, kind, zero)
}

fn mean<T: Number>(term: &Term, axis: Option<usize>) -> Result<Array<T>, Error> {
    if !is_float(term.data_type()) {
        return Err(mistyped(format!("the mean is of floats, not of {}", term.data_type())));
    }
    first(term, axis, Kind::Sum, Some("# / count"))
}

fn variance<T: Number>(term: &Term, axis: Option<usize>) -> Result<Array<T>, Error> {
    let mut kept = extents(term)?;
    let mean: Array<T> = mean(term, axis)?;
    match axis {
        Some(axis) => kept[axis] = 1,
        None => kept.clear(),
    }
    let distance = Expression::<T>::of(term.clone()) - &mean.shaped(&kept[..])?;
    self::mean((&distance * &distance).term(), axis)
}

fn position(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Array<u32>, Error> {
    let shape = without(term, axis)?;
    let mut results = reduce(term, axis, kind, None, term.data_type())?;
    array(results.swap_remove(1), &shape)
}

fn truth(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Array<u32>, Error> {
    let shape = without(term, axis)?;
    let zero = vyre::ir::Literal::zero(term.data_type()).unwrap_or(vyre::ir::Literal::U32(0));
    let flags = term.binary(BinaryOp::Ne, &Term::scalar(zero)).cast(&DataType::U32);
    let mut results = reduce(&flags, axis, kind, None, &DataType::U32)?;
    array(results.swap_remove(0), &shape)
}

fn scanned<T: Number>(term: &Term, axis: Option<usize>, kind: Kind, inclusive: bool) -> Result<Array<T>, Error> {
    let extents = extents(term)?;
    let [_, along, inner] = match axis {
        Some(axis) => split(&extents, axis)?,
        None => [1, extents.iter().product(), 1],
    };
    if inner > 1 {
        return Err(misfit("scans go along the last axis; transpose first"));
    }
    let ty = term.data_type();
    let each = match (kind, ty) {
        (Kind::Sum, DataType::F64) => "out[AT] = PREFIX + 0.0f64;",
        (Kind::Sum, DataType::F32 | DataType::F16) => "out[AT] = PREFIX + ZERO;",
        _ => "out[AT] = PREFIX;",
    };
    let each = each.replace("ZERO", if *ty == DataType::F16 { "0.0f16" } else { "0.0" });
    let scan = Scan {
        fold: Fold { kind, ty: ty.clone() },
        inclusive,
        terms: &[term],
        along,
        outputs: &[("out", ty.clone(), extents.iter().product())],
        each: &each,
        end: "",
    };
    array(scan.run()?.swap_remove(0), &extents)
}

fn sorted<T: Number>(term: &Term, descending: bool) -> Result<Array<T>, Error> {
    sort::sort(term, None, descending)?.0.into_array()
}

/// The first elements as an array of their own.
fn front<T: Number>(all: &Array<T>, count: usize) -> Result<Array<T>, Error> {
    let ty = T::data_type().unwrap_or(DataType::F32);
    let term = all.lazy().term().clone();
    let engine = crate::launch::engine(&term)?;
    if count > all.len() {
        return Err(misfit(format!("{count} elements were asked of {}", all.len())));
    }
    let mut out = crate::launch::room(&engine, &ty, count);
    if count > 0 {
        let source = format!(
            "read x: {ty} @0;\noutput out: {ty} @1;\nworkgroup_size [64, 1, 1];\nentry front {{\nlet i = global_id.x;\n\
             if i < len(out) {{\nout[i] = x[i];\n}}\n}}\n"
        );
        engine.kernel_of_text(&source)?.bind("x", all).bind("out", &mut out).launch()?;
    }
    array(out, &[count])
}

fn rows<T: Number>(term: &Term, rows: &Rows<'_>, epsilon: f64) -> Result<Array<T>, Error> {
    array(rows.run(term, epsilon)?, &extents(term)?)
}
