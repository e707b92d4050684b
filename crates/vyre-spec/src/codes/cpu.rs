//! `V14xx`: the CPU backend.

codes! {}
