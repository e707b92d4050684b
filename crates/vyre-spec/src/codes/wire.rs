//! `V03xx`: wire bytes can't be decoded.

codes! {}
