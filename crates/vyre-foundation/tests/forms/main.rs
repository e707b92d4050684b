//! The wire and text forms give back every program exactly and survive hostile input.

mod random;
mod text;
mod wire;
