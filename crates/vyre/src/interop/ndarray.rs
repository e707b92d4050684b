//! Arrays of the `ndarray` crate.

use ndarray::{ArrayBase, ArrayD, ArrayView, Data, Dimension, IxDyn};
use vyre_spec::{Diagnostic, codes};

use crate::array::{Array, Element};
use crate::{Engine, Error};

impl Engine {
    /// An array with the elements and the shape of one of `ndarray`'s. They are copied once, however they lie.
    pub fn array_of_view<T, S, D>(&self, view: &ArrayBase<S, D>) -> Result<Array<T>, Error>
    where
        T: Element,
        S: Data<Elem = T>,
        D: Dimension,
    {
        match view.as_slice() {
            Some(elements) => self.from_shape(view.shape(), elements),
            None => self.array_of_vec(view.iter().copied().collect())?.shaped(view.shape()),
        }
    }

    /// An array in the memory of one of `ndarray`'s. It is copied only where its elements don't lie one after another.
    pub fn array_of_ndarray<T: Element, D: Dimension>(&self, array: ndarray::Array<T, D>) -> Result<Array<T>, Error> {
        if !array.is_standard_layout() {
            return self.array_of_view(&array);
        }
        let shape = array.shape().to_vec();
        let (elements, offset) = array.into_raw_vec_and_offset();
        match offset {
            None | Some(0) if elements.len() == shape.iter().product::<usize>() => {
                self.array_of_vec(elements)?.shaped(&shape[..])
            }
            // What was sliced off is still there.
            start => {
                let start = start.unwrap_or(0);
                self.from_shape(&shape[..], &elements[start..start + shape.iter().product::<usize>()])
            }
        }
    }
}

impl<T: Element> Array<T> {
    /// The elements in an array of `ndarray`, after the work that they need.
    pub fn to_ndarray(&self) -> Result<ArrayD<T>, Error> {
        let shape = IxDyn(self.shape());
        ArrayD::from_shape_vec(shape, self.to_vec()?).map_err(|error| misfit(&error))
    }

    /// Writes all elements from a view of the same shape; they are copied once where they lie one after another, else twice.
    pub fn write_view<D: Dimension>(&mut self, view: &ArrayView<'_, T, D>) -> Result<(), Error> {
        if view.shape() != self.shape() {
            let message = format!("an array of shape {:?} can't take one of {:?}", self.shape(), view.shape());
            return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
        }
        match view.as_slice() {
            Some(elements) => self.write(elements),
            None => self.write(&view.iter().copied().collect::<Vec<T>>()),
        }
    }
}

fn misfit(error: &ndarray::ShapeError) -> Error {
    Diagnostic::new(&codes::engine::SHAPE, format!("the elements don't fit the shape: {error}")).into()
}
