//! Which backend is fastest here, for an op at a size.

mod agree;
mod curve;
mod effort;
pub mod pgo;
mod router;
mod table;
mod trial;

pub use agree::{FirstDifference, difference, difference_within, first_difference};
pub use curve::{Curve, Fit, Prediction};
pub use effort::Effort;
pub use pgo::{BackendLatency, PgoTable, Rejection, RouteDecision, default_pgo_path};
pub use router::{Choice, Crossover, Explanation, Load, Prior, Recertify, RouteOption, Router, Timing};
pub use table::default_routes_path;
pub use trial::{Taken, Totals, Trial};
