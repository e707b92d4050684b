//! The procedural macro behind `vyre::kernels!`: a WGSL file becomes a module of typed kernels.
//!
//! It asks the importer that `vyre` itself uses what the file's kernels bind, so that a typed launch and one by name have the same
//! signature. It knows nothing about engines or devices; the code that it writes speaks to `vyre::typed`. The macro that users call is
//! documented there.
//!
//! ```text
//! vyre::kernels!(mod life = "life.wgsl");
//! let step = life::step(&engine)?;
//! step.launch(life::Step { now: &now, next: &mut next, rule })?;
//! ```
#![forbid(unsafe_code)]

mod input;
mod kernel;
mod module;
mod names;
mod records;

use input::Input;

/// `$crate, mod name = "path"`: what `vyre::kernels!` expands to.
#[proc_macro]
pub fn kernels(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as Input);
    module::of_file(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}
