use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use super::{Element, Shape, in_range, resolve, same_length};
use crate::Error;
use crate::runtime::Storage;

/// Part of an array along its first axis, to be read.
#[derive(Clone)]
pub struct ArrayView<'a, T> {
    pub(crate) storage: &'a Arc<Storage>,
    start: usize,
    shape: Shape,
    length: usize,
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

macro_rules! common {
    ($view:ident) => {
        impl<'a, T: Element> $view<'a, T> {
            pub(super) fn new(storage: &'a Arc<Storage>, start: usize, shape: Shape, length: usize) -> Self {
                $view { storage, start, shape, length, element: PhantomData }
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
                let mut elements = vec![T::zeroed(); self.length];
                self.read_into(&mut elements)?;
                Ok(elements)
            }

            /// Reads the elements into the caller's memory, which has to have as many.
            pub fn read_into(&self, elements: &mut [T]) -> Result<(), Error> {
                same_length(self.length, elements.len())?;
                self.storage.read(self.bytes().start, bytemuck::cast_slice_mut(elements), None)
            }

            /// A part of the part.
            pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
                let (start, end) = resolve(range, self.shape.extents().first().copied().unwrap_or(self.length))?;
                let row = self.shape.row();
                let shape = self.shape.with_first(end - start);
                Ok($view::new(self.storage, self.start + start * row, shape, (end - start) * row))
            }

            /// Two parts along the first axis.
            pub fn split_at(self, at: usize) -> Result<(Self, Self), Error> {
                let first = self.shape.extents().first().copied().unwrap_or(self.length);
                in_range(first, at, 0)?;
                let row = self.shape.row();
                let part = |start: usize, end: usize| {
                    let shape = self.shape.with_first(end - start);
                    $view::new(self.storage, self.start + start * row, shape, (end - start) * row)
                };
                Ok((part(0, at), part(at, first)))
            }

            /// Where it is in the array's bytes.
            pub(crate) fn bytes(&self) -> Range<u64> {
                let size = size_of::<T>() as u64;
                self.start as u64 * size..(self.start + self.length) as u64 * size
            }
        }
    };
}

common!(ArrayView);
common!(ArrayViewMut);

impl<T: Element> ArrayViewMut<'_, T> {
    /// Writes all elements of the part; there have to be as many.
    pub fn write(&mut self, elements: &[T]) -> Result<(), Error> {
        same_length(self.length, elements.len())?;
        self.storage.write(self.bytes().start, bytemuck::cast_slice(elements), None)
    }
}
