//! `V16xx`: the CUDA backend.

codes! {}
