//! Names of WGSL as names of Rust.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span};

/// A name as an identifier, raw where it is a keyword.
pub(crate) fn ident(name: &str) -> Result<Ident, String> {
    syn::parse_str::<Ident>(name)
        .or_else(|_| syn::parse_str::<Ident>(&format!("r#{name}")))
        .map(|mut ident| {
            ident.set_span(Span::call_site());
            ident
        })
        .map_err(|_| format!("`{name}` can't be a name in Rust; call it otherwise in the file"))
}

/// `reduce_max` as `ReduceMax`.
pub(crate) fn camel_case(name: &str) -> String {
    let mut camel = String::new();
    for part in name.split('_') {
        let mut letters = part.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

/// The names of a module's items, each with what it is of.
#[derive(Default)]
pub(crate) struct Taken {
    types: BTreeMap<String, String>,
    functions: BTreeMap<String, String>,
}

impl Taken {
    pub(crate) fn name_type(&mut self, name: &str, of: &str) -> Result<Ident, String> {
        take(&mut self.types, name, of)
    }

    pub(crate) fn name_function(&mut self, name: &str, of: &str) -> Result<Ident, String> {
        take(&mut self.functions, name, of)
    }
}

fn take(taken: &mut BTreeMap<String, String>, name: &str, of: &str) -> Result<Ident, String> {
    if let Some(first) = taken.insert(name.to_owned(), of.to_owned()) {
        return Err(format!("{first} and {of} would both make `{name}`; call one of them otherwise in the file"));
    }
    ident(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_names_of_rust() {
        assert_eq!(camel_case("step"), "Step");
        assert_eq!(camel_case("reduce_max_index"), "ReduceMaxIndex");
        assert_eq!(camel_case("stepTwice"), "StepTwice");
        assert_eq!(camel_case("_blur_2d"), "Blur2d");
        assert_eq!(ident("type").unwrap().to_string(), "r#type");
        assert!(ident("self").is_err() && ident(&camel_case("_2d")).is_err());
    }
}
