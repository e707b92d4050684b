//! Kernels that the lowering takes apart in ways of its own, a file for each way: every path of this machine gives what the reference gives.

mod arrays;
mod bounds;
mod choices;
mod components;
mod deals;
mod even;
mod exchange;
mod exponentials;
mod few_words;
mod grids;
mod halos;
mod lanes;
mod places;
mod results;
mod rows;
mod some_lanes;
mod stacks;
mod sums;
mod support;
mod teams;
mod tiles;
