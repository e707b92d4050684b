//! `V15xx`: the wgpu backend.

codes! {}
