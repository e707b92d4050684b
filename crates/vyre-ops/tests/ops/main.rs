//! Every op against its plain reference, on every backend that is here.

mod matrices;
mod reductions;
mod scans;
mod sorting;
mod support;
