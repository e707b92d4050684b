use std::fmt;
use std::ops::{Bound, Range, RangeBounds};

use smallvec::SmallVec;
use vyre_spec::{Diagnostic, codes};

use super::Shape;
use crate::Error;

/// Where the elements of a view lie among those of its array: extents, the distance of neighbours along each axis, and the position of
/// the first element, all counted in elements. Transposing, slicing and broadcasting change this and nothing else.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// use vyre::Layout;
/// let rows = Layout::contiguous([3, 4])?;
/// let columns = rows.permuted(&[1, 0])?;
/// assert_eq!((columns.shape(), columns.strides()), (&[4, 3][..], &[1, 4][..]));
/// let every_other = rows.sliced(1, 1.., 2)?;
/// assert_eq!(every_other.positions().collect::<Vec<_>>(), [1, 3, 5, 7, 9, 11]);
/// let repeated = Layout::contiguous([4])?.broadcast([2, 4])?;
/// assert_eq!(repeated.positions().collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: SmallVec<[isize; 4]>,
    offset: usize,
    length: usize,
}

fn refused(message: String) -> Error {
    Diagnostic::new(&codes::engine::SHAPE, message).into()
}

impl Layout {
    /// Elements one after another, the last axis the fastest.
    pub fn contiguous(shape: impl Into<Shape>) -> Result<Layout, Error> {
        let shape = shape.into();
        let length = shape.elements()?;
        Ok(Layout::of(shape, length))
    }

    /// The layout of an array, whose length is known to be this.
    pub(super) fn of(shape: Shape, length: usize) -> Layout {
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(1, shape.extents().len());
        for axis in (1..strides.len()).rev() {
            // Distances that can't be counted are those of empty arrays, which have no neighbours, and of elements without a size.
            let extent = isize::try_from(shape.extents()[axis]).unwrap_or(isize::MAX);
            strides[axis - 1] = strides[axis].saturating_mul(extent);
        }
        Layout { shape, strides, offset: 0, length }
    }

    /// Elements that lie so, in an array of `available`; an error where one of them would lie outside of it.
    pub fn strided(
        shape: impl Into<Shape>,
        strides: &[isize],
        offset: usize,
        available: usize,
    ) -> Result<Layout, Error> {
        let shape = shape.into();
        if strides.len() != shape.extents().len() {
            return Err(refused(format!("a shape of {} axes has {} strides", shape.extents().len(), strides.len())));
        }
        let length = shape.elements()?;
        let layout = Layout { strides: SmallVec::from_slice(strides), offset, length, shape };
        let outside = || refused(format!("elements of a view of {} lie outside of its {available}", layout.shape));
        let (mut first, mut last) = (offset as i128, offset as i128);
        for (&extent, &stride) in layout.shape.extents().iter().zip(strides) {
            let far = (extent.max(1) - 1) as i128 * stride as i128;
            (first, last) = (first + far.min(0), last + far.max(0));
        }
        match length {
            0 if offset <= available => Ok(layout),
            1.. if first >= 0 && last < available as i128 => Ok(layout),
            _ => Err(outside()),
        }
    }

    /// The extents, the slowest first.
    pub fn shape(&self) -> &[usize] {
        self.shape.extents()
    }

    /// The distance of neighbours along each axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The position of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// It has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The elements lie one after another in their order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1isize;
        for (&extent, &stride) in self.shape().iter().zip(&self.strides).rev() {
            // Along an axis with one position nothing has a neighbour.
            if extent != 1 && stride != expected {
                return self.length == 0;
            }
            expected = expected.saturating_mul(extent as isize);
        }
        true
    }

    /// The same elements with the axes in this order.
    pub fn permuted(&self, axes: &[usize]) -> Result<Layout, Error> {
        let mut sorted: SmallVec<[usize; 4]> = SmallVec::from_slice(axes);
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.strides.len()) {
            return Err(refused(format!("{axes:?} is no order of {} axes", self.strides.len())));
        }
        let extents: SmallVec<[usize; 4]> = axes.iter().map(|&axis| self.shape()[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(Layout { shape: Shape::from(&extents[..]), strides, ..*self })
    }

    /// The axes in reverse.
    #[must_use]
    pub fn transposed(&self) -> Layout {
        let extents: SmallVec<[usize; 4]> = self.shape().iter().rev().copied().collect();
        Layout { shape: Shape::from(&extents[..]), strides: self.strides.iter().rev().copied().collect(), ..*self }
    }

    /// The positions of a range along an axis, each `step` after the last.
    pub fn sliced(&self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Layout, Error> {
        let Some(&extent) = self.shape().get(axis) else {
            return Err(refused(format!("there is no axis {axis} among {}", self.strides.len())));
        };
        if step == 0 {
            return Err(refused("a step of a slice is at least 1".to_owned()));
        }
        let Range { start, end } = resolve(range, extent)?;
        let count = (end - start).div_ceil(step);
        let mut sliced = self.clone();
        sliced.shape = self.shape.with(axis, count);
        sliced.strides[axis] = self.strides[axis].saturating_mul(isize::try_from(step).unwrap_or(isize::MAX));
        if count > 0 {
            sliced.offset = self.offset.wrapping_add_signed(self.strides[axis] * start as isize);
        }
        sliced.length = sliced.shape.elements()?;
        Ok(sliced)
    }

    /// The same elements in a larger shape: axes of one position, and those that are not there in front, are repeated.
    pub fn broadcast(&self, shape: impl Into<Shape>) -> Result<Layout, Error> {
        let shape = shape.into();
        let no = || refused(format!("{} can't be broadcast to {shape}", self.shape));
        let added = shape.extents().len().checked_sub(self.strides.len()).ok_or_else(no)?;
        let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, added);
        for (axis, (&extent, &stride)) in self.shape().iter().zip(&self.strides).enumerate() {
            match (extent, shape.extents()[added + axis]) {
                (own, wanted) if own == wanted => strides.push(stride),
                (1, _) => strides.push(0),
                _ => return Err(no()),
            }
        }
        let length = shape.elements()?;
        Ok(Layout { shape, strides, offset: self.offset, length })
    }

    /// From the first position of an element to behind the last.
    pub fn span(&self) -> Range<usize> {
        if self.length == 0 {
            return self.offset..self.offset;
        }
        let (mut first, mut last) = (self.offset, self.offset);
        for (&extent, &stride) in self.shape().iter().zip(&self.strides) {
            let far = (extent - 1) as isize * stride;
            match far < 0 {
                true => first = first.wrapping_add_signed(far),
                false => last = last.wrapping_add_signed(far),
            }
        }
        first..last + 1
    }

    /// The position of each element, in their order.
    pub fn positions(&self) -> impl Iterator<Item = usize> {
        let mut index: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.strides.len());
        let mut at = self.offset;
        (0..self.length).map(move |_| {
            let position = at;
            for axis in (0..index.len()).rev() {
                index[axis] += 1;
                at = at.wrapping_add_signed(self.strides[axis]);
                if index[axis] < self.shape()[axis] {
                    break;
                }
                at = at.wrapping_add_signed(-self.strides[axis] * index[axis] as isize);
                index[axis] = 0;
            }
            position
        })
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layout({} at {} by {:?})", self.shape, self.offset, self.strides)
    }
}

/// A range of positions along an axis of so many.
pub(super) fn resolve(range: impl RangeBounds<usize>, length: usize) -> Result<Range<usize>, Error> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    if start <= end && end <= length {
        return Ok(start..end);
    }
    Err(refused(format!("{start}..{end} is not within 0..{length}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_slice_of_a_broadcast_finds_its_elements() {
        let rows = Layout::contiguous([2, 3]).unwrap();
        assert!(rows.is_contiguous() && !rows.transposed().is_contiguous());
        assert_eq!(rows.transposed().positions().collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
        let cube = rows.broadcast([4, 2, 3]).unwrap();
        let part = cube.sliced(0, 1..2, 1).unwrap().sliced(2, .., 2).unwrap().permuted(&[2, 1, 0]).unwrap();
        assert_eq!(part.shape(), [2, 2, 1]);
        assert_eq!(part.positions().collect::<Vec<_>>(), [0, 3, 2, 5]);
        assert_eq!(part.span(), 0..6);
    }

    #[test]
    fn strides_may_go_backwards_but_not_outside() {
        let reversed = Layout::strided([3], &[-2], 5, 6).unwrap();
        assert_eq!(reversed.positions().collect::<Vec<_>>(), [5, 3, 1]);
        assert_eq!(reversed.span(), 1..6);
        for (strides, offset, available) in [([-2isize], 3, 6), ([2], 2, 6), ([isize::MAX], 0, 6)] {
            assert!(Layout::strided([3], &strides, offset, available).is_err(), "{strides:?}");
        }
        assert!(Layout::strided([0], &[7], 6, 6).is_ok() && Layout::strided([0], &[7], 7, 6).is_err());
        assert!(Layout::contiguous([usize::MAX, 2]).is_err());
        let rows = Layout::contiguous([2, 3]).unwrap();
        assert!(rows.sliced(2, .., 1).is_err() && rows.sliced(0, .., 0).is_err() && rows.sliced(0, 1..3, 1).is_err());
        assert!(rows.permuted(&[0, 0]).is_err() && rows.broadcast([3]).is_err() && rows.broadcast([2, 4]).is_err());
        assert!(rows.sliced(0, 1..1, 1).unwrap().is_empty());
    }
}
