//! `V13xx`: the engine.

codes! {}
