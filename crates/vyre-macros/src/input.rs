//! What the macro is given.

use proc_macro2::{Ident, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, LitStr, Token, Visibility};

/// `$crate, pub mod life = "life.wgsl"`.
pub(crate) struct Input {
    /// The path of the crate `vyre`, whatever it is called where the macro is used.
    pub(crate) vyre: TokenTree,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) name: Ident,
    pub(crate) path: LitStr,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Input> {
        let vyre = input.parse()?;
        input.parse::<Token![,]>()?;
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Token![mod]>()?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let path = input.parse()?;
        input.parse::<Option<Token![;]>>()?;
        Ok(Input { vyre, attributes, visibility, name, path })
    }
}
