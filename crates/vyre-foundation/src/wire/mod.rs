//! The canonical wire form: the same bytes for equal programs, and one program for the same bytes.
//!
//! `VYRE`, the version, the length of the rest, then the program in declaration order: each item is a tag with its own
//! fields, followed by the items inside it. Integers are little-endian words, texts and lists carry their length in front.
//! The first byte of a program says whether it has a name (1) and whether its
//! arithmetic is fast (2). Nothing has two spellings, so the bytes that [`decode`] accepts are exactly those that [`encode`] makes.

mod decode;
mod encode;

pub use decode::decode;
pub use encode::encode;

/// Version that [`encode`] writes and [`decode`] reads.
pub const VERSION: u32 = 1;
/// The most bytes that [`decode`] looks at.
pub const MAX_BYTES: usize = 32 << 20;
/// The most statements, expressions, cases, members and declarations of a program together.
pub const MAX_ITEMS: u32 = 1 << 20;
/// How deep statements may nest, and how deep the expressions in them.
pub const MAX_DEPTH: u32 = 256;

const MAGIC: [u8; 4] = *b"VYRE";
