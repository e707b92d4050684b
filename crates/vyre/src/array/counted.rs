use std::fmt;

use vyre_spec::{Diagnostic, codes};

use super::{Array, Element};
use crate::runtime::room_for;
use crate::{Engine, Error};

/// An array whose length lives on the device beside it: what a kernel makes that finds out while it runs how much there is. Its first
/// [`len`](Self::len) elements count.
///
/// A kernel gets both parts, adds to the length with an atomic operation, and stores where that says. The next kernel runs for just
/// as many by [`Call::domain_from`](crate::Call::domain_from), without the host asking how many they are.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let evens = engine.kernel(&vyre::wgsl("
///     @group(0) @binding(0) var<storage, read> a: array<u32>;
///     @group(0) @binding(1) var<storage, read_write> out: array<u32>;
///     @group(0) @binding(2) var<storage, read_write> count: array<atomic<u32>>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&a) && a[id.x] % 2u == 0u { out[atomicAdd(&count[0], 1u)] = a[id.x]; }
///     }")?)?;
/// let double = engine.kernel(&vyre::wgsl("
///     @group(0) @binding(0) var<storage, read_write> x: array<u32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&x) { x[id.x] *= 2u; }
///     }")?)?;
/// let a = engine.array(&[1u32, 2, 3, 4, 5])?;
/// let mut found = engine.counted::<u32>(a.len())?;
/// let (out, count) = found.parts_mut();
/// evens.bind("a", &a).bind("out", out).bind("count", count).launch()?;
/// let (out, count) = found.parts_mut();
/// double.bind("x", out).domain_from(&*count).launch()?;
/// let mut found = found.to_vec()?;
/// found.sort();
/// assert_eq!(found, [4, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Counted<T> {
    elements: Array<T>,
    length: Array<u32>,
}

impl Engine {
    /// An array of no elements yet, with room for so many.
    pub fn counted<T: Element>(&self, capacity: usize) -> Result<Counted<T>, Error> {
        Ok(Counted { elements: self.zeros(capacity)?, length: self.zeros(1)? })
    }
}

impl<T: Element> Counted<T> {
    /// Elements, and how many of them count.
    pub fn new(elements: Array<T>, length: Array<u32>) -> Result<Counted<T>, Error> {
        super::same_length(1, length.len())?;
        Ok(Counted { elements, length })
    }

    /// The most elements that it can have.
    pub fn capacity(&self) -> usize {
        self.elements.len()
    }

    /// How many elements it has, after the work that says so.
    pub fn len(&self) -> Result<usize, Error> {
        let length = self.length.to_vec()?[0] as usize;
        if length > self.capacity() {
            let message = format!("{length} elements were counted, but there is room for {}", self.capacity());
            return Err(Diagnostic::new(&codes::engine::SHAPE, message)
                .with_fix("Make the array with room for as many as the kernel can count.")
                .into());
        }
        Ok(length)
    }

    /// It has no elements, after the work that says so.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// The elements that count, after the work that they need; no others are read.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let length = self.len()?;
        let mut elements = room_for(length);
        self.elements.storage.read(0, bytemuck::cast_slice_mut(&mut elements), None)?;
        Ok(elements)
    }

    /// All elements that there is room for.
    pub fn elements(&self) -> &Array<T> {
        &self.elements
    }

    /// The length, as an array of one.
    pub fn length(&self) -> &Array<u32> {
        &self.length
    }

    /// Both parts, to be written.
    pub fn parts_mut(&mut self) -> (&mut Array<T>, &mut Array<u32>) {
        (&mut self.elements, &mut self.length)
    }

    /// Both parts.
    pub fn into_parts(self) -> (Array<T>, Array<u32>) {
        (self.elements, self.length)
    }
}

impl<T: Element> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counted(up to {})", self.capacity())
    }
}
