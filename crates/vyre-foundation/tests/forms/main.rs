//! The wire and text forms give back every program exactly and survive hostile input.

mod hostile;
mod random;
mod text;
mod wire;
