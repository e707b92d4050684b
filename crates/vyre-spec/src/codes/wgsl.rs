//! `V04xx`: WGSL or SPIR-V can't be imported, or a program can't be exported.

codes! {}
