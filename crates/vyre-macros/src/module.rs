//! The module that a file becomes.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use vyre_wgsl::import_all;

use crate::input::Input;
use crate::kernel::{Context, shown};
use crate::names::Taken;
use crate::records::Records;

/// Reads the file and writes its module. Paths are from the folder of the manifest of the crate that is compiled.
pub(crate) fn of_file(input: &Input) -> syn::Result<TokenStream> {
    let wrong = |why: String| syn::Error::new(input.path.span(), why);
    let file = input.path.value();
    let folder = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| {
        wrong("CARGO_MANIFEST_DIR is not set; paths start at the folder of a crate's Cargo.toml".into())
    })?;
    let path = Path::new(&folder).join(&file);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        wrong(format!("can't read {}: {error}; paths start at the folder of the crate's Cargo.toml", path.display()))
    })?;
    let path = path.to_str().ok_or_else(|| wrong(format!("{} is no text in UTF-8", path.display())))?;
    // The compiler includes the text by itself, so that it knows to compile again when the file changes.
    of_text(input, &file, &text, &quote!(::core::include_str!(#path))).map_err(wrong)
}

/// The module of a text; `included` is the same text as an expression.
fn of_text(input: &Input, file: &str, text: &str, included: &TokenStream) -> Result<TokenStream, String> {
    let Input { vyre, attributes, visibility, name, .. } = input;
    let programs = import_all(text, Some(file)).map_err(|problems| shown(&problems))?;
    let records = Records::new(vyre.clone());
    let mut context = Context { vyre, file, records, taken: Taken::default() };
    let source = context.taken.name_function("SOURCE_TEXT", "the text of the file")?;
    let source = quote!(#source);
    let kernels =
        programs.iter().map(|program| context.kernel(program, &source)).collect::<Result<Vec<_>, String>>()?;
    let records = context.records.into_tokens();
    let doc = format!("Kernels of `{file}`.");
    Ok(quote! {
        #[doc = #doc]
        #(#attributes)*
        #[allow(
            dead_code, non_camel_case_types, non_snake_case,
            reason = "the file says what there is and how it is called"
        )]
        #visibility mod #name {
            const #source: &str = #included;
            #(#records)*
            #(#kernels)*
        }
    })
}

#[cfg(test)]
mod tests;
