//! `V08xx`: the pipeline cache.

codes! {}
