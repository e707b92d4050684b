//! Buffers: bytes with a type.

use std::borrow::Cow;
use std::rc::Rc;

use vyre_foundation::ir::{Element, Literal};

use crate::stored;
use crate::types::Type;
use crate::value::{Composite, Value};

/// A buffer while the program runs.
pub(crate) struct Buffer<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    /// Number of elements.
    pub(crate) count: u64,
    /// Number of elements of the open array at the end of its one element.
    pub(crate) tail: u64,
}

/// A part of a buffer: all of its indices are inside.
#[derive(Clone, Copy)]
pub(crate) struct Place<'t> {
    offset: u64,
    /// The second of two 4-bit elements in a byte.
    high_half: bool,
    ty: &'t Rc<Type>,
}

impl Buffer<'_> {
    /// An element; `None` outside.
    pub(crate) fn element<'t>(&self, ty: &'t Rc<Type>, index: Option<u64>) -> Option<Place<'t>> {
        let index = index.filter(|&index| index < self.count)?;
        Some(match **ty {
            Type::Scalar(element) if element.bits() == 4 => Place { offset: index / 2, high_half: index % 2 == 1, ty },
            _ => Place { offset: index * ty.stride(), high_half: false, ty },
        })
    }

    /// Reads a value. Bytes that are not there are zero.
    pub(crate) fn load(&self, place: Place<'_>) -> Value {
        match &**place.ty {
            Type::Scalar(element) => Value::Scalar(self.load_scalar(*element, place)),
            Type::Vector { scalar, element, count } => {
                let mut vector = Value::splat(Literal::U32(0), *count);
                for (i, lane) in vector.lanes_mut().iter_mut().enumerate() {
                    *lane = self.load_scalar(*scalar, place.after(i as u64 * element.stride(), element));
                }
                vector
            }
            Type::Array { element, count, stride } => {
                let count = count.map_or(self.tail, u64::from);
                let part = |i| self.load(place.after(i * u64::from(*stride), element));
                Value::Composite(Composite { ty: place.ty.clone(), parts: (0..count).map(part).collect() })
            }
            Type::Struct { members, .. } => {
                let parts = members.iter().map(|(ty, offset)| self.load(place.after(u64::from(*offset), ty)));
                Value::Composite(Composite { ty: place.ty.clone(), parts: parts.collect() })
            }
        }
    }

    /// Writes a value; padding keeps its bytes. `None` when the value has not the place's type.
    pub(crate) fn store(&mut self, place: Place<'_>, value: &Value) -> Option<()> {
        match (&**place.ty, value) {
            (Type::Scalar(element), Value::Scalar(scalar)) => self.store_scalar(*element, place, *scalar),
            (Type::Vector { scalar, element, count }, Value::Vector(_))
                if value.lanes().len() == usize::from(*count) =>
            {
                for (i, lane) in value.lanes().iter().enumerate() {
                    self.store_scalar(*scalar, place.after(i as u64 * element.stride(), element), *lane)?;
                }
                Some(())
            }
            (Type::Array { element, stride, .. }, Value::Composite(composite)) => {
                for (i, part) in composite.parts.iter().enumerate() {
                    self.store(place.after(i as u64 * u64::from(*stride), element), part)?;
                }
                Some(())
            }
            (Type::Struct { members, .. }, Value::Composite(composite)) => {
                for ((ty, offset), part) in members.iter().zip(&composite.parts) {
                    self.store(place.after(u64::from(*offset), ty), part)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    fn load_scalar(&self, element: Element, place: Place<'_>) -> Literal {
        let size = element.bits().div_ceil(8) as usize;
        let mut word = [0; 8];
        if let Some(bytes) = self.bytes.get(place.offset as usize..).and_then(|rest| rest.get(..size)) {
            word[..size].copy_from_slice(bytes);
        }
        let bits = u64::from_le_bytes(word);
        stored::decode(element, if place.high_half { bits >> 4 } else { bits })
    }

    fn store_scalar(&mut self, element: Element, place: Place<'_>, value: Literal) -> Option<()> {
        let bits = stored::encode(element, value)?;
        let size = element.bits().div_ceil(8) as usize;
        let bytes = self.bytes.to_mut().get_mut(place.offset as usize..).and_then(|rest| rest.get_mut(..size));
        if let Some(bytes) = bytes {
            if element.bits() == 4 {
                let (kept, shift) = if place.high_half { (0x0F, 4) } else { (0xF0, 0) };
                bytes[0] = bytes[0] & kept | (bits as u8) << shift;
            } else {
                bytes.copy_from_slice(&bits.to_le_bytes()[..size]);
            }
        }
        Some(())
    }

    /// The i-th element of an array, component of a vector: `Some(None)` outside of it, `None` for other types.
    pub(crate) fn index<'t>(&self, place: Place<'t>, index: Option<u64>) -> Option<Option<Place<'t>>> {
        let (element, count, stride) = match &**place.ty {
            Type::Array { element, count, stride } => (element, count.map_or(self.tail, u64::from), u64::from(*stride)),
            Type::Vector { element, count, .. } => (element, u64::from(*count), element.stride()),
            _ => return None,
        };
        Some(index.filter(|&index| index < count).map(|index| place.after(index * stride, element)))
    }
}

impl<'t> Place<'t> {
    fn after(self, bytes: u64, ty: &'t Rc<Type>) -> Place<'t> {
        Place { offset: self.offset + bytes, high_half: false, ty }
    }

    /// A member of a struct; `None` when there is none.
    pub(crate) fn member(self, member: u32) -> Option<Place<'t>> {
        match &**self.ty {
            Type::Struct { members, .. } => {
                members.get(member as usize).map(|(ty, offset)| self.after(u64::from(*offset), ty))
            }
            _ => None,
        }
    }
}
