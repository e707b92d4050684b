use vyre::expression::Term;
use vyre::{Array, Buffer, DataType, Element, Error};

use crate::launch::mistyped;

/// A result without a Rust type.
#[derive(Clone, Debug)]
pub struct Output {
    /// The elements.
    pub buffer: Buffer,
    /// Their type.
    pub ty: DataType,
    /// The extents, the slowest first.
    pub shape: Vec<usize>,
}

impl Output {
    /// The result as an array of its type.
    pub fn typed<T: Element>(self) -> Result<Array<T>, Error> {
        if T::data_type().as_ref() != Some(&self.ty) {
            return Err(mistyped(format!("a result of {} is no array of {}", self.ty, std::any::type_name::<T>())));
        }
        self.buffer.into_array::<T>()?.shaped(&self.shape[..])
    }

    /// The result for further expressions.
    pub fn term(&self) -> Term {
        Term::array(self.buffer.clone(), self.ty.clone(), (&self.shape[..]).into())
    }
}
