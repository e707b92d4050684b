//! `V09xx`: specialization values.

codes! {}
