use std::fmt;

use smallvec::SmallVec;
use vyre_spec::{Diagnostic, codes};

use crate::Error;

/// The extents of an array, the slowest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// The extents.
    pub fn extents(&self) -> &[usize] {
        &self.0
    }

    /// Number of elements, or an error where it is more than can be counted.
    pub fn elements(&self) -> Result<usize, Error> {
        let product = self.0.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        product.ok_or_else(|| {
            Diagnostic::new(&codes::engine::SHAPE, format!("an array of {self} has more elements than can be counted"))
                .into()
        })
    }

    /// Elements from one position along the first axis to the next.
    pub fn row(&self) -> usize {
        self.0.iter().skip(1).product()
    }

    /// The shape with so many positions along an axis.
    pub(crate) fn with(&self, axis: usize, count: usize) -> Shape {
        let mut shape = self.clone();
        match shape.0.get_mut(axis) {
            Some(extent) => *extent = count,
            None => shape.0.push(count),
        }
        shape
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, extent) in self.0.iter().enumerate() {
            write!(f, "{}{extent}", if index > 0 { " x " } else { "" })?;
        }
        Ok(())
    }
}

impl From<usize> for Shape {
    fn from(length: usize) -> Self {
        Shape(SmallVec::from_slice(&[length]))
    }
}

impl From<&[usize]> for Shape {
    fn from(extents: &[usize]) -> Self {
        Shape(SmallVec::from_slice(extents))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(extents: [usize; N]) -> Self {
        Shape(SmallVec::from_slice(&extents))
    }
}
