use vyre::expression::Term;
use vyre::{Array, ArrayView, Error, Expression, Number};

use crate::attention::attention;
use crate::bodies::accelerations;
use crate::convolution::convolve;
use crate::digest::{Digest, digest};
use crate::fft::fft;
use crate::fold::Kind;
use crate::histogram::histogram;
use crate::launch::misfit;
use crate::layout;
use crate::matrix::{Epilogue, Transposed, matmul};
use crate::rows::{LAYER_NORM, LOG_SOFTMAX, RMS_NORM, SOFTMAX};
use crate::run::{dot, matvec, mean, position, reduced, rows, scanned, sorted, truth, variance};
use crate::search::{bounds, merge};
use crate::segments::{reduce_segments, scan_segments, sort_segments};
use crate::select::{self, Counted};
use crate::sort;
use crate::stencil::{Boundary, stencil};
use crate::top::{top_k, top_k_axis};

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
        reduced(&self.to_term(), None, Kind::Sum)?.typed()
    }

    /// The sums along an axis.
    fn sum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Sum)?.typed()
    }

    /// The product.
    fn product(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Product)?.typed()
    }

    /// The products along an axis.
    fn product_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Product)?.typed()
    }

    /// The smallest element.
    fn min(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Min)?.typed()
    }

    /// The smallest elements along an axis.
    fn min_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Min)?.typed()
    }

    /// The largest element.
    fn max(&self) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), None, Kind::Max)?.typed()
    }

    /// The largest elements along an axis.
    fn max_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        reduced(&self.to_term(), Some(axis), Kind::Max)?.typed()
    }

    /// The mean of floats.
    fn mean(&self) -> Result<Array<T>, Error> {
        mean(&self.to_term(), None)?.typed()
    }

    /// The means along an axis.
    fn mean_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        mean(&self.to_term(), Some(axis))?.typed()
    }

    /// The mean square distance of floats from their mean (the variance of a population), in two passes.
    fn variance(&self) -> Result<Array<T>, Error> {
        variance(&self.to_term(), None)?.typed()
    }

    /// The variances along an axis.
    fn variance_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        variance(&self.to_term(), Some(axis))?.typed()
    }

    /// The position of the smallest element, the first where there are several.
    fn argmin(&self) -> Result<Array<u32>, Error> {
        position(&self.to_term(), None, Kind::ArgMin)?.typed()
    }

    /// The positions of the smallest elements along an axis.
    fn argmin_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        position(&self.to_term(), Some(axis), Kind::ArgMin)?.typed()
    }

    /// The position of the largest element, the first where there are several.
    fn argmax(&self) -> Result<Array<u32>, Error> {
        position(&self.to_term(), None, Kind::ArgMax)?.typed()
    }

    /// The positions of the largest elements along an axis.
    fn argmax_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        position(&self.to_term(), Some(axis), Kind::ArgMax)?.typed()
    }

    /// 1 when some element is not zero, else 0.
    fn any(&self) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), None, Kind::Any)?.typed()
    }

    /// [`any`](Ops::any) along an axis.
    fn any_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), Some(axis), Kind::Any)?.typed()
    }

    /// 1 when no element is zero, else 0.
    fn all(&self) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), None, Kind::All)?.typed()
    }

    /// [`all`](Ops::all) along an axis.
    fn all_axis(&self, axis: usize) -> Result<Array<u32>, Error> {
        truth(&self.to_term(), Some(axis), Kind::All)?.typed()
    }

    /// Sums of all elements up to each one, with it.
    fn cumsum(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Sum, true)?.typed()
    }

    /// [`cumsum`](Ops::cumsum) along an axis.
    fn cumsum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), Some(axis), Kind::Sum, true)?.typed()
    }

    /// Sums of all elements before each one.
    fn exclusive_sum(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Sum, false)?.typed()
    }

    /// [`exclusive_sum`](Ops::exclusive_sum) along an axis.
    fn exclusive_sum_axis(&self, axis: usize) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), Some(axis), Kind::Sum, false)?.typed()
    }

    /// Products of all elements up to each one, with it.
    fn cumprod(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Product, true)?.typed()
    }

    /// The smallest of all elements up to each one, with it.
    fn cummin(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Min, true)?.typed()
    }

    /// The largest of all elements up to each one, with it.
    fn cummax(&self) -> Result<Array<T>, Error> {
        scanned(&self.to_term(), None, Kind::Max, true)?.typed()
    }

    /// The elements where a mask of the same shape is true, in their order.
    fn compact(&self, mask: &Expression<bool>) -> Result<Counted<T>, Error> {
        Counted::of(select::compact(&self.to_term(), mask.term())?)
    }

    /// All elements: those where a mask is true, which are counted, then the others, each in their order.
    fn partition(&self, mask: &Expression<bool>) -> Result<Counted<T>, Error> {
        Counted::of(select::partition(&self.to_term(), mask.term())?)
    }

    /// The first of each run of equal elements. NaN equals nothing.
    fn unique(&self) -> Result<Counted<T>, Error> {
        Counted::of(select::unique(&self.to_term())?)
    }

    /// How many elements are 0, 1 and so on up to a number of bins; of u32. Larger ones are not counted.
    fn histogram(&self, bins: usize) -> Result<Array<u32>, Error> {
        histogram(&self.to_term(), bins)?.typed()
    }

    /// All elements in ascending order. Floats are ordered as `total_cmp` does: NaN comes last, or first where its sign bit is set.
    fn sort(&self) -> Result<Array<T>, Error> {
        sorted(&self.to_term(), false)?.typed()
    }

    /// All elements in descending order.
    fn sort_descending(&self) -> Result<Array<T>, Error> {
        sorted(&self.to_term(), true)?.typed()
    }

    /// All elements in ascending order, and values that go with them; equal ones keep their order.
    fn sort_with<V: Number>(&self, values: &impl Ops<V>) -> Result<(Array<T>, Array<V>), Error> {
        let (keys, values) = sort::sort(&self.to_term(), Some(&values.to_term()), false)?;
        let values = values.ok_or_else(|| misfit("values were given"))?;
        Ok((keys.into_array()?, values.into_array()?))
    }

    /// The positions of the elements in ascending order; those of equal ones keep their order.
    fn argsort(&self) -> Result<Array<u32>, Error> {
        let [_, positions] = sort::sorted_positions(&self.to_term(), false)?;
        positions.typed()
    }

    /// The largest elements, the largest first, and their positions; of equal ones the first.
    fn top_k(&self, count: usize) -> Result<(Array<T>, Array<u32>), Error> {
        let [values, positions] = top_k(&self.to_term(), count)?;
        Ok((values.typed()?, positions.typed()?))
    }

    /// [`top_k`](Ops::top_k) along an axis, with positions along it. Up to 512 elements of 32 bits are found without sorting the others, in one launch.
    fn top_k_axis(&self, count: usize, axis: usize) -> Result<(Array<T>, Array<u32>), Error> {
        let [values, positions] = top_k_axis(&self.to_term(), count, axis)?;
        Ok((values.typed()?, positions.typed()?))
    }

    /// `exp(x) / sum(exp(x))` along the last axis, without overflow; of f32 and f64.
    fn softmax(&self) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &SOFTMAX, 0.0)?.typed()
    }

    /// The logarithm of [`softmax`](Ops::softmax).
    fn log_softmax(&self) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &LOG_SOFTMAX, 0.0)?.typed()
    }

    /// Rows along the last axis with mean 0 and variance 1: `(x - mean) / sqrt(variance + epsilon)`.
    fn layer_norm(&self, epsilon: f64) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &LAYER_NORM, epsilon)?.typed()
    }

    /// Rows along the last axis with a mean square of 1: `x / sqrt(mean(x²) + epsilon)`.
    fn rms_norm(&self, epsilon: f64) -> Result<Array<T>, Error> {
        rows(&self.to_term(), &RMS_NORM, epsilon)?.typed()
    }

    /// The product of matrices, `[.., m, k]` by `[.., k, n]`; of f32 and f64.
    fn matmul(&self, other: &impl Ops<T>) -> Result<Array<T>, Error> {
        self.matmul_with(other, Transposed::default(), &Epilogue::default())
    }

    /// [`matmul`](Ops::matmul) of matrices that are given transposed.
    fn matmul_transposed(&self, other: &impl Ops<T>, transposed: Transposed) -> Result<Array<T>, Error> {
        self.matmul_with(other, transposed, &Epilogue::default())
    }

    /// The product of matrices, scaled, with a bias and an activation, which are computed before the sums are rounded and stored.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// use vyre_ops::{Activation, Epilogue, Ops, Transposed};
    /// let engine = vyre::Engine::builder().without_disk().open()?;
    /// let x = engine.from_shape([2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let weights = engine.from_shape([2, 2], &[1.0f32, -1.0, 1.0, -1.0])?;
    /// let bias = engine.array(&[0.5f32, 4.0])?;
    /// let epilogue = Epilogue { bias: Some(bias.to_term()), activation: Activation::Relu, ..Epilogue::default() };
    /// let y = x.matmul_with(&weights, Transposed::default(), &epilogue)?;
    /// assert_eq!(y.to_vec()?, [3.5, 1.0, 7.5, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    fn matmul_with(&self, other: &impl Ops<T>, transposed: Transposed, epilogue: &Epilogue) -> Result<Array<T>, Error> {
        matmul(&self.to_term(), &other.to_term(), transposed, epilogue)?.typed()
    }

    /// The sum of the products of the elements of two arrays of one shape.
    fn dot(&self, other: &impl Ops<T>) -> Result<Array<T>, Error> {
        dot(&self.to_term(), &other.to_term())?.typed()
    }

    /// The product of a matrix `[.., m, k]` and a vector `[k]`.
    fn matvec(&self, vector: &impl Ops<T>) -> Result<Array<T>, Error> {
        matvec(&self.to_term(), &vector.to_term())?.typed()
    }

    /// What queries find: `softmax(q·kᵀ / sqrt(dim))·v` in one kernel; of f32 and f16. Queries are `[.., m, dim]`, keys and values
    /// `[.., n, dim]`, with rows of up to 128. Causal: query `i` looks at the keys up to `i` alone.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let x = engine.from_shape([2, 3], &[1.0f32, 0.0, 0.0, 0.0, 2.0, 0.0])?;
    /// let found = x.attention(&x, &x, true)?.to_vec()?;
    /// assert_eq!(found[..3], [1.0, 0.0, 0.0]); // the first looks at itself alone
    /// assert!(found[4] > 1.0); // the second at both, and mostly at itself
    /// # Ok(())
    /// # }
    /// ```
    fn attention(&self, keys: &impl Ops<T>, values: &impl Ops<T>, causal: bool) -> Result<Array<T>, Error> {
        attention(&self.to_term(), &keys.to_term(), &values.to_term(), causal)?.typed()
    }

    /// The Fourier transform of complex f32 numbers, `[.., n, 2]` with real and imaginary parts side by side, along `n`: a product of 2, 3, 5 and
    /// 7 of up to 4096, or a product of two or three such.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let pulse = engine.from_shape([4, 2], &[1.0f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])?;
    /// assert_eq!(pulse.fft()?.to_vec()?, [1.0, 0.0].repeat(4)); // all frequencies alike
    /// assert_eq!(pulse.fft()?.inverse_fft()?.to_vec()?, pulse.to_vec()?);
    /// # Ok(())
    /// # }
    /// ```
    fn fft(&self) -> Result<Array<T>, Error> {
        fft(&self.to_term(), false)?.typed()
    }

    /// The way back of [`fft`](Ops::fft), divided by `n`.
    fn inverse_fft(&self) -> Result<Array<T>, Error> {
        fft(&self.to_term(), true)?.typed()
    }

    /// Sums of the neighbours of each element in the last two or three axes, with weights of such extents whose middle is the element itself; of f32
    /// and f64. Weights of zero are left out.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::{Boundary, Ops};
    ///
    /// let table = engine.from_shape([3, 3], &[0.0f32, 0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0])?;
    /// let spread = table.stencil(&[0.0, 0.25, 0.0, 0.25, 0.0, 0.25, 0.0, 0.25, 0.0], &[3, 3], Boundary::Wrap)?;
    /// assert_eq!(spread.to_vec()?, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    fn stencil(&self, weights: &[f64], extents: &[usize], boundary: Boundary) -> Result<Array<T>, Error> {
        stencil(&self.to_term(), weights, extents, boundary)?.typed()
    }

    /// Windows of images, `[n, channels, h, w]` by weights `[outputs, channels, kh, kw]`, or `[h, w]` by `[kh, kw]`, with steps of `stride` and so
    /// many zeros around each image; of floats.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let image = engine.from_shape([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let differences = engine.from_shape([1, 2], &[-1.0f32, 1.0])?;
    /// assert_eq!(image.convolution(&differences, 1, 0)?.to_vec()?, [1.0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    fn convolution(&self, weights: &impl Ops<T>, stride: usize, padding: usize) -> Result<Array<T>, Error> {
        convolve(&self.to_term(), &weights.to_term(), stride, padding)?.typed()
    }

    /// How bodies `[n, 4]`, each with a place and a mass, attract each other: `[n, 3]`, the sums of `m·d / (d² + ε²)^1.5` over all others; of f32.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let bodies = engine.from_shape([2, 4], &[0.0f32, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 4.0])?;
    /// let found = bodies.accelerations(0.0)?.to_vec()?;
    /// assert!((found[0] - 1.0).abs() < 1e-6 && (found[3] + 0.25).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    fn accelerations(&self, epsilon: f64) -> Result<Array<T>, Error> {
        accelerations(&self.to_term(), epsilon)?.typed()
    }

    /// The last two axes swapped.
    fn transpose(&self) -> Result<Array<T>, Error> {
        layout::transpose(&self.to_term())?.typed()
    }

    /// Axis `i` of the result is axis `order[i]` of this.
    fn permute(&self, order: &[usize]) -> Result<Array<T>, Error> {
        layout::permute(&self.to_term(), order)?.typed()
    }

    /// The elements along the first axis that positions name; zeros where there is none.
    fn gather(&self, positions: &impl Ops<u32>) -> Result<Array<T>, Error> {
        layout::gather(&self.to_term(), &positions.to_term())?.typed()
    }

    /// This with values written to the positions along the first axis. Where several go to one place, the last of them is there; positions
    /// behind the end are left out.
    fn scatter(&self, positions: &impl Ops<u32>, values: &impl Ops<T>) -> Result<Array<T>, Error> {
        layout::scatter(&self.to_term(), &positions.to_term(), &values.to_term(), false)?.typed()
    }

    /// This with values added at the positions along the first axis. Floats are added in a fixed order, which takes a sort.
    fn scatter_add(&self, positions: &impl Ops<u32>, values: &impl Ops<T>) -> Result<Array<T>, Error> {
        layout::scatter(&self.to_term(), &positions.to_term(), &values.to_term(), true)?.typed()
    }

    /// For each value how many elements of this, which is sorted, are smaller: where the first that is not smaller is.
    fn lower_bound(&self, values: &impl Ops<T>) -> Result<Array<u32>, Error> {
        bounds(&self.to_term(), &values.to_term(), false)?.typed()
    }

    /// For each value how many elements of this, which is sorted, are not larger: where the first larger one is.
    fn upper_bound(&self, values: &impl Ops<T>) -> Result<Array<u32>, Error> {
        bounds(&self.to_term(), &values.to_term(), true)?.typed()
    }

    /// The elements of this and another array, both sorted, as one that is; of equal ones those of this come first.
    fn merge(&self, other: &impl Ops<T>) -> Result<Array<T>, Error> {
        merge(&self.to_term(), &other.to_term())?.typed()
    }

    /// The sums of segments along the first axis: segment `j` goes from `offsets[j]` to `offsets[j + 1]`.
    fn segment_sum(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        reduce_segments(&self.to_term(), &offsets.to_term(), Kind::Sum)?.typed()
    }

    /// The smallest elements of segments; see [`segment_sum`](Ops::segment_sum).
    fn segment_min(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        reduce_segments(&self.to_term(), &offsets.to_term(), Kind::Min)?.typed()
    }

    /// The largest elements of segments; see [`segment_sum`](Ops::segment_sum).
    fn segment_max(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        reduce_segments(&self.to_term(), &offsets.to_term(), Kind::Max)?.typed()
    }

    /// Sums up to each element, with it, that begin anew with each segment; see [`segment_sum`](Ops::segment_sum). What is in no segment is zero.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let (x, offsets) = (engine.array(&[1u32, 2, 3, 4, 5])?, engine.array(&[0u32, 2, 5])?);
    /// assert_eq!(x.segment_cumsum(&offsets)?.to_vec()?, [1, 3, 3, 7, 12]);
    /// # Ok(())
    /// # }
    /// ```
    fn segment_cumsum(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        scan_segments(&self.to_term(), &offsets.to_term())?.typed()
    }

    /// The elements of each segment in ascending order, as [`sort`](Ops::sort) orders them; see [`segment_sum`](Ops::segment_sum). Offsets ascend.
    /// What is in no segment is zero.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let (x, offsets) = (engine.array(&[9u32, 2, 5, 4, 3])?, engine.array(&[0u32, 2, 5])?);
    /// assert_eq!(x.segment_sort(&offsets)?.to_vec()?, [2, 9, 3, 4, 5]);
    /// assert_eq!(x.segment_sort_descending(&offsets)?.to_vec()?, [9, 2, 5, 4, 3]);
    /// # Ok(())
    /// # }
    /// ```
    fn segment_sort(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        sort_segments(&self.to_term(), &offsets.to_term(), false)?.typed()
    }

    /// The elements of each segment in descending order; see [`segment_sort`](Ops::segment_sort).
    fn segment_sort_descending(&self, offsets: &impl Ops<u32>) -> Result<Array<T>, Error> {
        sort_segments(&self.to_term(), &offsets.to_term(), true)?.typed()
    }

    /// The CRC-32 (of zlib and Ethernet) of messages along the last axis: words of u32, whose bytes are in the order of memory.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let words = [*b"12345678", *b"abcdefgh"].as_flattened().as_chunks().0.iter().map(|part| u32::from_le_bytes(*part)).collect::<Vec<_>>();
    /// let messages = engine.from_shape([2, 2], &words)?;
    /// assert_eq!(messages.crc32()?.to_vec()?, [0x9ae0_daaf, 0xaeef_2a50]);
    /// # Ok(())
    /// # }
    /// ```
    fn crc32(&self) -> Result<Array<u32>, Error> {
        digest(&self.to_term(), Digest::Crc32)?.typed()
    }

    /// The SHA-256 of messages along the last axis, as eight words each: the first byte of a hash is the highest of its first word. See
    /// [`crc32`](Ops::crc32) for how messages are given.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// use vyre_ops::Ops;
    ///
    /// let messages = engine.from_shape([1, 1], &[u32::from_le_bytes(*b"abcd")])?;
    /// assert_eq!(messages.sha256()?.to_vec()?[..2], [0x88d4_266f, 0xd4e6_338d]);
    /// # Ok(())
    /// # }
    /// ```
    fn sha256(&self) -> Result<Array<u32>, Error> {
        digest(&self.to_term(), Digest::Sha256)?.typed()
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

/// Elements that don't lie one after another are copied to be so first, where they are.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// # let engine = vyre::Engine::builder().without_disk().open()?;
/// use vyre_ops::Ops;
///
/// let table = engine.from_shape([2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(table.view().slice_axis(1, .., 2)?.sum_axis(0)?.to_vec()?, [5.0, 9.0]);
/// # Ok(())
/// # }
/// ```
impl<T: Number> Ops<T> for ArrayView<'_, T> {
    fn to_term(&self) -> Term {
        self.to_array().map_or_else(Term::failed, |array| array.to_term())
    }
}

impl<T: Number> Ops<T> for Expression<T> {
    fn to_term(&self) -> Term {
        self.term().clone()
    }
}
