//! Which backend is fastest here, for an op at a size.

mod agree;
pub mod pgo;

pub use agree::difference;
pub use pgo::{BackendLatency, PgoTable, Rejection, RouteDecision, default_pgo_path};
