//! `V12xx`: which backends are here.

codes! {}
