//! `V02xx`: the text form can't be read.

codes! {}
