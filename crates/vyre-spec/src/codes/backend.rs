//! `V07xx`: a backend refused or failed.

codes! {}
