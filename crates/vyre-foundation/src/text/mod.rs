//! The readable text form: `.vyre` files.
//!
//! ```text
//! override SCALE = 2.0;                                   // specialization constant with its default
//! type 0 = struct Pair size 8 align 4 { a: f32 at 0, b: u32 at 4 };
//! type 1 = array<f32, 4> stride 4;
//! read input: Pair @0;                                    // kind name: element[count] @group:binding
//! output out: f32[64] @1;
//! workgroup tile: f32[64] @0;
//! workgroup_size [64, 1, 1];
//! domain [len(input), 1, 1];                              // optional
//! math fast;                                              // optional; exact unless it says so
//! fn twice(x: f32) -> f32 { return x * SCALE; }
//! entry main {
//!     let i = global_id.x;
//!     if i < len(input) {
//!         let y = call twice(input[i].a);
//!         out[i] = y + cast<f32>(input[i].b);
//!     }
//! }
//! ```
//!
//! Statements: `let`, `var x: f32 = …;`, assignment and store, `if`/`else`, `switch` with `case 1, 2 {…}` and `default {…}`,
//! `for i in 0..n step 2 {…}`, `loop {…} continuing {…} until cond;`, `break`, `continue`, `return`, `barrier`,
//! `storage_barrier`, `atomic.add(place, value)`, `call f(…)`, `{…}`. Operators bind as in Rust: `* / %`, `+ -`, `<< >>`, `&`,
//! `^`, `|`, comparisons. Functions are called by name (`min(a, b)`, `select(cond, yes, no)`, `cast<u32>(x)`, `bitcast<u32>(x)`,
//! `subgroup.add(x)`, `len(buffer)`); a type makes a value of its parts: `vec<f32, 2>(1.0, 2.0)`.
//!
//! `7` is u32 and `1.5` f32; other types have a suffix (`7i32`, `1.5f64`), and `f32#7fc00000` gives a float by its bits. A name
//! that is no identifier, or is a word of the language, stands in quotes. A plain name means the innermost variable, else the
//! constant of that name, and `name[i]` a part of the variable, else an element of the buffer; `%x`, `$x` and `@x` say variable,
//! constant and buffer where that would mean something else. Members are named where the struct is known from a declaration,
//! and else numbered: `x.1`.
//!
//! [`print()`] and [`parse`] are exact: `parse(&print(p)) == p` for every program that the wire form can carry, valid or not.

mod lex;
mod parse;
mod print;

pub use parse::{MAX_BYTES, parse};
pub use print::print;

use std::collections::HashMap;

use crate::ir::{DataType, Name};

/// Words that statements, values and parts of a size start with. A bare name is none of them.
const KEYWORDS: &[&str] = &[
    "_",
    "let",
    "var",
    "if",
    "else",
    "switch",
    "for",
    "loop",
    "continuing",
    "until",
    "break",
    "continue",
    "return",
    "barrier",
    "storage_barrier",
    "atomic",
    "call",
    "subgroup",
    "true",
    "false",
    "cast",
    "bitcast",
    "global_id",
    "local_id",
    "workgroup_id",
    "num_workgroups",
    "workgroup_size",
    "local_index",
    "subgroup_size",
    "subgroup_lane",
    "subgroup_id",
    "num_subgroups",
];

/// Functions of the text form besides those of `MathOp`.
const FUNCTIONS: &[&str] = &["len", "select", "swizzle", "part"];

/// Words that types start with. A bare name is none of these either.
const TYPE_WORDS: &[&str] = &[
    "u32", "i32", "u64", "vec2u32", "vec4u32", "bool", "bytes", "raw", "f16", "bf16", "f32", "f64", "tensor", "u8",
    "u16", "i8", "i16", "i64", "type", "vec", "csr", "coo", "bsr", "f8e4m3", "f8e5m2", "i4", "fp4", "nf4", "mesh",
    "opaque",
];

fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || TYPE_WORDS.contains(&word)
}

/// Whether a name can stand without quotes.
fn is_bare(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !is_reserved(name)
}

/// The lanes that letters name, and back.
const LANES: &[u8; 4] = b"xyzw";

/// The variables in scope, with their types where a declaration says them.
#[derive(Default)]
struct Scope {
    locals: HashMap<Name, Vec<Option<DataType>>>,
    frames: Vec<Vec<Name>>,
}

impl Scope {
    fn open(&mut self) {
        self.frames.push(Vec::new());
    }

    fn close(&mut self) {
        for name in self.frames.pop().unwrap_or_default() {
            if let Some(types) = self.locals.get_mut(&name) {
                types.pop();
            }
        }
    }

    fn declare(&mut self, name: &Name, ty: Option<&DataType>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.push(name.clone());
            self.locals.entry(name.clone()).or_default().push(ty.cloned());
        }
    }

    /// Outer: in scope; inner: with a known type.
    fn get(&self, name: &str) -> Option<Option<&DataType>> {
        self.locals.get(name)?.last().map(Option::as_ref)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}
