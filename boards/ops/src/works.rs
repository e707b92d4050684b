//! What is measured, and how each library does it. Works of one kind follow each other.

mod elements;
mod moves;
mod products;
mod rows;
mod texts;
mod waves;

use crate::data::Data;
use crate::measure::Work;

pub(crate) fn all(data: &Data) -> Vec<Work<'_>> {
    let mut works = elements::works(data);
    works.extend(moves::works(data));
    works.extend(rows::works(data));
    works.extend(products::works(data));
    works.extend(waves::works(data));
    works.extend(texts::works(data));
    works
}
