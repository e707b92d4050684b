//! `V06xx`: the reference interpreter stopped.

codes! {}
