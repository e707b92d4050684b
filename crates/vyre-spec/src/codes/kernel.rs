//! `V05xx`: a program can't be lowered.

codes! {}
