//! `V10xx`: the tuner and its file.

codes! {}
