//! `V11xx`: routing and its file.

codes! {}
