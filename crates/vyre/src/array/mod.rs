//! Arrays: values that kernels work on, wherever their copies are.

mod buffer;
mod counted;
mod element;
mod layout;
mod read;
mod shape;
mod view;

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use buffer::Buffer;
pub use counted::Counted;
pub use element::{Element, Vec3};
pub use layout::Layout;
pub use read::Read;
pub use shape::Shape;
pub use view::{ArrayView, ArrayViewMut};
use vyre_spec::{Diagnostic, codes};

use crate::runtime::{Storage, room_for};
use crate::{Engine, Error};

/// An array of numbers or structs: one value, wherever its copies are.
///
/// It is like a [`Vec`]: writing takes `&mut`, and a clone is a value of its own (its elements are copied when one of the two is first
/// written). What is launched on it runs later; reading it waits for the work that it needs, and for no other. When that work failed, was
/// cancelled or ran out of time, reading gives its error, until all of the array is written again.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let double = engine.kernel(&vyre::wgsl("
///     @group(0) @binding(0) var<storage, read> a: array<f32>;
///     @group(0) @binding(1) var<storage, read_write> out: array<f32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&a) { out[id.x] = a[id.x] * 2.0; }
///     }")?)?;
/// let mut x = engine.array(&[1.0f32, 2.0, 3.0])?;
/// let mut y = engine.zeros_like(&x)?;
/// for _ in 0..4 {
///     double.bind("a", &x).bind("out", &mut y).launch()?;
///     std::mem::swap(&mut x, &mut y);
/// }
/// assert_eq!(x.to_vec()?, [16.0, 32.0, 48.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Array<T> {
    storage: Arc<Storage>,
    shape: Shape,
    length: usize,
    element: PhantomData<T>,
}

impl Engine {
    /// An array with these elements, which are copied before this returns.
    pub fn array<T: Element>(&self, elements: &[T]) -> Result<Array<T>, Error> {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let memory = self.inner.host.take(bytes.len() as u64, false)?;
        memory.fill(0, bytes);
        Ok(Array::new(Storage::of_host(&self.inner, memory, bytes.len() as u64), elements.len().into(), elements.len()))
    }

    /// An array of a shape with these elements, the last axis the fastest.
    pub fn from_shape<T: Element>(&self, shape: impl Into<Shape>, elements: &[T]) -> Result<Array<T>, Error> {
        self.array(elements)?.shaped(shape)
    }

    /// An array of zeros.
    pub fn zeros<T: Element>(&self, shape: impl Into<Shape>) -> Result<Array<T>, Error> {
        let shape = shape.into();
        let length = shape.elements()?;
        let bytes = (length as u64).checked_mul(size_of::<T>() as u64).filter(|&bytes| bytes <= isize::MAX as u64);
        let bytes = bytes.ok_or_else(|| {
            Diagnostic::new(&codes::engine::SHAPE, format!("an array of {shape} takes more bytes than can be counted"))
        })?;
        Ok(Array::new(Storage::zeros(&self.inner, bytes), shape, length))
    }

    /// An array of zeros of the same type and shape as another.
    pub fn zeros_like<T: Element>(&self, other: &Array<T>) -> Result<Array<T>, Error> {
        self.zeros(other.shape.clone())
    }
}

impl<T: Element> Array<T> {
    pub(crate) fn new(storage: Arc<Storage>, shape: Shape, length: usize) -> Array<T> {
        Array { storage, shape, length, element: PhantomData }
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

    /// The same elements in another shape.
    pub fn shaped(mut self, shape: impl Into<Shape>) -> Result<Array<T>, Error> {
        let shape = shape.into();
        if shape.elements()? != self.length {
            let message = format!("{} elements can't have the shape {shape}", self.length);
            return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
        }
        self.shape = shape;
        Ok(self)
    }

    /// Gives it a name for messages and statistics.
    pub fn labelled(self, label: &str) -> Array<T> {
        self.storage.set_label(label);
        self
    }

    /// The elements, after the work that they need.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.read(None)
    }

    /// [`to_vec`](Self::to_vec) that gives up after a time, with V0706. The work goes on.
    pub fn to_vec_within(&self, limit: Duration) -> Result<Vec<T>, Error> {
        self.read(Instant::now().checked_add(limit))
    }

    fn read(&self, deadline: Option<Instant>) -> Result<Vec<T>, Error> {
        let mut elements = room_for(self.length);
        self.storage.read(0, bytemuck::cast_slice_mut(&mut elements), deadline)?;
        Ok(elements)
    }

    /// Reads all elements into the caller's memory, which has to have as many.
    pub fn read_into(&self, elements: &mut [T]) -> Result<(), Error> {
        same_length(self.length, elements.len())?;
        self.storage.read(0, bytemuck::cast_slice_mut(elements), None)
    }

    /// The elements as a future, which owns its memory.
    pub fn read_async(&self) -> Read<T> {
        Read::new(self.storage.clone(), self.length)
    }

    /// Waits for the work that the elements need; an error is the one that it ended with.
    pub fn wait(&self) -> Result<(), Error> {
        self.storage.settle(&(0..self.storage.bytes), None)
    }

    /// Writes all elements; there have to be as many as before. They are copied before this returns.
    pub fn write(&mut self, elements: &[T]) -> Result<(), Error> {
        same_length(self.length, elements.len())?;
        if Arc::strong_count(&self.storage) > 1 {
            *self = Engine { inner: self.storage.engine.clone() }.array(elements)?.shaped(self.shape.clone())?;
            return Ok(());
        }
        self.storage.write(0, bytemuck::cast_slice(elements), None)
    }

    /// Writes some elements from a position on.
    pub fn write_at(&mut self, start: usize, elements: &[T]) -> Result<(), Error> {
        in_range(self.length, start, elements.len())?;
        self.unshare()?;
        self.storage.write((start * size_of::<T>()) as u64, bytemuck::cast_slice(elements), None)
    }

    /// Copies all elements of another array of the same length, where they are.
    pub fn copy_from(&mut self, other: &Array<T>) -> Result<(), Error> {
        same_length(self.length, other.length)?;
        // Copying is done when one of the two is first written.
        self.storage = other.storage.clone();
        Ok(())
    }

    /// A part along the first axis, to be read.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<ArrayView<'_, T>, Error> {
        self.view().slice(range)
    }

    /// A part along the first axis, to be written. Parts that don't overlap are ordered apart.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ArrayViewMut<'_, T>, Error> {
        self.view_mut()?.slice(range)
    }

    /// All of it, to be read.
    pub fn view(&self) -> ArrayView<'_, T> {
        let layout = Layout::of(self.shape.clone(), self.length);
        ArrayView::new(&self.storage, layout)
    }

    /// All of it, to be written.
    pub fn view_mut(&mut self) -> Result<ArrayViewMut<'_, T>, Error> {
        self.unshare()?;
        Ok(ArrayViewMut::new(&self.storage, 0, self.shape.clone(), self.length))
    }

    /// Two parts along the first axis, which can be written at once.
    pub fn split_at_mut(&mut self, at: usize) -> Result<(ArrayViewMut<'_, T>, ArrayViewMut<'_, T>), Error> {
        self.view_mut()?.split_at(at)
    }

    /// An array of its own with the same elements, copied now and where they are.
    pub fn copied(&self) -> Result<Array<T>, Error> {
        Ok(Array { storage: self.storage.duplicate()?, ..self.clone() })
    }

    /// The bytes of the array, without a type.
    pub fn into_buffer(self) -> Buffer {
        Buffer::new(self.storage)
    }

    pub(crate) fn unshare(&mut self) -> Result<(), Error> {
        if Arc::strong_count(&self.storage) > 1 {
            self.storage = self.storage.duplicate()?;
        }
        Ok(())
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    pub(crate) fn storage_mut(&mut self) -> &mut Arc<Storage> {
        &mut self.storage
    }
}

pub(crate) fn same_length(expected: usize, given: usize) -> Result<(), Error> {
    if expected == given {
        return Ok(());
    }
    let message = format!("{given} elements were given for an array of {expected}");
    Err(Diagnostic::new(&codes::engine::SHAPE, message).into())
}

fn in_range(length: usize, start: usize, count: usize) -> Result<(), Error> {
    if start.checked_add(count).is_some_and(|end| end <= length) {
        return Ok(());
    }
    let message = format!("{count} elements from {start} on are not within {length}");
    Err(Diagnostic::new(&codes::engine::SHAPE, message).into())
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array<{}>({})", std::any::type_name::<T>(), self.shape)
    }
}
