use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Array, Element, Layout, Shape, in_range, same_length};
use crate::Error;
use crate::engine::GatherView;
use crate::runtime::{Storage, room_for};

/// Elements of an array, to be read: a part of them, or the same in another order or repeated. Making one moves nothing; see [`Layout`].
///
/// Launches take views whose elements lie one after another, such as slices along the first axis; others are copied to be so by
/// [`to_array`](Self::to_array).
#[derive(Clone)]
pub struct ArrayView<'a, T> {
    pub(crate) storage: &'a Arc<Storage>,
    layout: Layout,
    element: PhantomData<&'a T>,
}

/// Part of an array along its first axis, to be written.
pub struct ArrayViewMut<'a, T> {
    pub(crate) storage: &'a Arc<Storage>,
    start: usize,
    shape: Shape,
    length: usize,
    element: PhantomData<&'a mut T>,
}

impl<'a, T: Element> ArrayView<'a, T> {
    pub(super) fn new(storage: &'a Arc<Storage>, layout: Layout) -> Self {
        ArrayView { storage, layout, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// It has no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// The extents, the slowest first.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Where its elements lie in the array.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A part along the first axis.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        self.slice_axis(0, range, 1)
    }

    /// A part along an axis, in steps.
    pub fn slice_axis(mut self, axis: usize, range: impl RangeBounds<usize>, step: usize) -> Result<Self, Error> {
        self.layout = self.layout.sliced(axis, range, step)?;
        Ok(self)
    }

    /// The axes in reverse.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        self.layout = self.layout.transposed();
        self
    }

    /// The axes in another order.
    pub fn permuted(mut self, axes: &[usize]) -> Result<Self, Error> {
        self.layout = self.layout.permuted(axes)?;
        Ok(self)
    }

    /// Repeated along axes of one position, and along new ones in front.
    pub fn broadcast(mut self, shape: impl Into<Shape>) -> Result<Self, Error> {
        self.layout = self.layout.broadcast(shape)?;
        Ok(self)
    }

    /// Two parts along the first axis.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Error> {
        Ok((self.clone().slice(..at)?, self.slice(at..)?))
    }

    /// The elements, after the work that they need.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut elements = room_for(self.len());
        self.read_into(&mut elements)?;
        Ok(elements)
    }

    /// Reads the elements into the caller's memory, which has to have as many.
    pub fn read_into(&self, elements: &mut [T]) -> Result<(), Error> {
        same_length(self.len(), elements.len())?;
        let size = size_of::<T>() as u64;
        if self.layout.is_contiguous() {
            return self.storage.read(self.layout.offset() as u64 * size, bytemuck::cast_slice_mut(elements), None);
        }
        let span = self.layout.span();
        let mut all: Vec<T> = room_for(span.len());
        self.storage.read(span.start as u64 * size, bytemuck::cast_slice_mut(&mut all), None)?;
        for (element, position) in elements.iter_mut().zip(self.layout.positions()) {
            *element = all[position - span.start];
        }
        Ok(())
    }

    /// An array of its own with these elements one after another, made where they are. A view of all of an array is that array, and is
    /// copied when one of the two is first written.
    pub fn to_array(&self) -> Result<Array<T>, Error> {
        let (engine, layout) = (&self.storage.engine, &self.layout);
        let array = |storage| Array::new(storage, self.len().into(), self.len()).shaped(self.shape());
        let bytes = (self.len() * size_of::<T>()) as u64;
        if self.is_empty() {
            return array(Storage::zeros(engine, 0));
        }
        if layout.is_contiguous() && bytes == self.storage.bytes {
            return array(self.storage.clone());
        }
        let axes: SmallVec<[(usize, isize); 8]> =
            layout.shape().iter().copied().zip(layout.strides().iter().copied()).filter(|axis| axis.0 != 1).collect();
        let span = layout.span();
        let view = GatherView { size: size_of::<T>(), axes: &axes, offset: layout.offset() - span.start };
        let size = size_of::<T>() as u64;
        if let Some(storage) = engine.gather(self.storage, span.start as u64 * size..span.end as u64 * size, &view)? {
            return array(storage);
        }
        let engine = crate::Engine { inner: engine.clone() };
        engine.array_of_vec(self.to_vec()?)?.shaped(self.shape())
    }

    /// Where it is in the array's bytes, where its elements lie one after another.
    pub(crate) fn bytes(&self) -> Option<Range<u64>> {
        let size = size_of::<T>() as u64;
        let start = self.layout.offset() as u64 * size;
        self.layout.is_contiguous().then(|| start..start + self.len() as u64 * size)
    }
}

impl<'a, T: Element> From<&'a Array<T>> for ArrayView<'a, T> {
    fn from(array: &'a Array<T>) -> Self {
        array.view()
    }
}

impl<'a, T: Element> ArrayViewMut<'a, T> {
    pub(super) fn new(storage: &'a Arc<Storage>, start: usize, shape: Shape, length: usize) -> Self {
        ArrayViewMut { storage, start, shape, length, element: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// It has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The extents, the slowest first.
    pub fn shape(&self) -> &[usize] {
        self.shape.extents()
    }

    /// The elements, after the work that they need.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut elements = room_for(self.length);
        self.read_into(&mut elements)?;
        Ok(elements)
    }

    /// Reads the elements into the caller's memory, which has to have as many.
    pub fn read_into(&self, elements: &mut [T]) -> Result<(), Error> {
        same_length(self.length, elements.len())?;
        self.storage.read(self.bytes().start, bytemuck::cast_slice_mut(elements), None)
    }

    /// Writes all elements of the part; there have to be as many.
    pub fn write(&mut self, elements: &[T]) -> Result<(), Error> {
        same_length(self.length, elements.len())?;
        self.storage.write(self.bytes().start, bytemuck::cast_slice(elements), None)
    }

    /// A part of the part.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let Range { start, end } = super::layout::resolve(range, self.first())?;
        Ok(self.part(start, end))
    }

    /// Two parts along the first axis.
    pub fn split_at(self, at: usize) -> Result<(Self, Self), Error> {
        in_range(self.first(), at, 0)?;
        Ok((self.part(0, at), self.part(at, self.first())))
    }

    fn first(&self) -> usize {
        self.shape.extents().first().copied().unwrap_or(self.length)
    }

    fn part(&self, start: usize, end: usize) -> Self {
        let row = self.shape.row();
        let shape = self.shape.with(0, end - start);
        ArrayViewMut::new(self.storage, self.start + start * row, shape, (end - start) * row)
    }

    /// Where it is in the array's bytes.
    pub(crate) fn bytes(&self) -> Range<u64> {
        let size = size_of::<T>() as u64;
        self.start as u64 * size..(self.start + self.length) as u64 * size
    }
}
