//! Types of WGSL as types of Rust that lie in memory the same way.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{format_ident, quote};
use vyre_foundation::ir::{Count, DataType, Member, Program, TypeDef, TypeId};

use crate::names::{Taken, ident};

/// A type of Rust, and how it is written in WGSL.
pub(crate) struct RustType {
    pub(crate) tokens: TokenStream,
    /// Bytes.
    size: u32,
    pub(crate) wgsl: String,
}

/// The structs of a file that its buffers hold.
pub(crate) struct Records {
    vyre: TokenTree,
    made: BTreeMap<String, Record>,
}

struct Record {
    name: Ident,
    size: u32,
    tokens: TokenStream,
}

/// A field of a struct; those between the members have no name in WGSL.
struct Field {
    name: Ident,
    ty: TokenStream,
    offset: u32,
    member: bool,
    doc: String,
}

impl Records {
    pub(crate) fn new(vyre: TokenTree) -> Records {
        Records { vyre, made: BTreeMap::new() }
    }

    /// The structs' definitions.
    pub(crate) fn into_tokens(self) -> impl Iterator<Item = TokenStream> {
        self.made.into_values().map(|record| record.tokens)
    }

    /// A type whose neighbours in an array follow one another as in WGSL, which gives a vector of three the room of four.
    pub(crate) fn element(&mut self, ty: &DataType, program: &Program, taken: &mut Taken) -> Result<RustType, String> {
        let vyre = &self.vyre;
        match ty.as_vector() {
            Some((scalar, 3)) => {
                let RustType { tokens, size, wgsl } = self.scalar(&scalar)?;
                Ok(RustType { tokens: quote!(#vyre::Vec3<#tokens>), size: size * 4, wgsl: format!("vec3<{wgsl}>") })
            }
            _ => self.member(ty, program, taken),
        }
    }

    /// A type without what may follow it.
    fn member(&mut self, ty: &DataType, program: &Program, taken: &mut Taken) -> Result<RustType, String> {
        if let Some((scalar, count)) = ty.as_vector() {
            let RustType { tokens, size, wgsl } = self.scalar(&scalar)?;
            let length = count as usize;
            return Ok(RustType {
                tokens: quote!([#tokens; #length]),
                size: size * count,
                wgsl: format!("vec{count}<{wgsl}>"),
            });
        }
        let DataType::Handle(TypeId(id)) = ty else { return self.scalar(ty) };
        match program.types().get(*id as usize) {
            Some(TypeDef::Struct { name, members, size, .. }) => {
                self.record(name.as_str(), members, *size, program, taken)
            }
            Some(TypeDef::Array { element, count: Count::Fixed(count), stride }) => {
                let element = self.element(element, program, taken)?;
                let wgsl = format!("array<{}, {count}>", element.wgsl);
                let size = stride.checked_mul(*count).filter(|_| element.size == *stride);
                let size = size.ok_or_else(|| {
                    format!("elements of `{wgsl}` are {stride} bytes apart, and Rust has no such array of them")
                })?;
                let (element, length) = (element.tokens, *count as usize);
                Ok(RustType { tokens: quote!([#element; #length]), size, wgsl })
            }
            _ => Err("an array whose length is not known has no type in Rust".to_owned()),
        }
    }

    fn scalar(&self, ty: &DataType) -> Result<RustType, String> {
        let vyre = &self.vyre;
        let (tokens, size) = match ty {
            DataType::U32 => (quote!(u32), 4),
            DataType::I32 => (quote!(i32), 4),
            DataType::F32 => (quote!(f32), 4),
            DataType::F16 => (quote!(#vyre::typed::f16), 2),
            DataType::U64 => (quote!(u64), 8),
            DataType::I64 => (quote!(i64), 8),
            DataType::F64 => (quote!(f64), 8),
            other => return Err(format!("`{other}` has no type in Rust that lies in memory the same way")),
        };
        Ok(RustType { tokens, size, wgsl: ty.to_string() })
    }

    fn record(
        &mut self,
        wgsl: &str,
        members: &[Member],
        size: u32,
        program: &Program,
        taken: &mut Taken,
    ) -> Result<RustType, String> {
        // A file has one struct of a name, whichever of its kernels use it.
        if !self.made.contains_key(wgsl) {
            let name = taken.name_type(wgsl, &format!("the struct `{wgsl}`"))?;
            let fields = self.fields(wgsl, members, size, program, taken)?;
            let tokens = self.define(&name, wgsl, &fields, size);
            self.made.insert(wgsl.to_owned(), Record { name, size, tokens });
        }
        let Record { name, size, .. } = &self.made[wgsl];
        Ok(RustType { tokens: quote!(#name), size: *size, wgsl: wgsl.to_owned() })
    }

    /// The members, and fields for the bytes between them and at the end.
    fn fields(
        &mut self,
        wgsl: &str,
        members: &[Member],
        size: u32,
        program: &Program,
        taken: &mut Taken,
    ) -> Result<Vec<Field>, String> {
        let mut fields: Vec<Field> = Vec::new();
        let mut at = 0;
        let gap = |fields: &mut Vec<Field>, from: u32, to: u32| {
            let bytes = to.checked_sub(from).ok_or_else(|| format!("the members of `{wgsl}` overlap"))? as usize;
            if bytes > 0 {
                let mut name = format_ident!("_gap_{from}");
                while members.iter().any(|member| name == member.name.as_str()) {
                    name = format_ident!("{name}_");
                }
                let doc = format!("Bytes {from} to {to}, which mean nothing.");
                fields.push(Field { name, ty: quote!([u8; #bytes]), offset: from, member: false, doc });
            }
            Ok::<(), String>(())
        };
        for member in members {
            let RustType { tokens, size, wgsl: ty } = self.member(&member.ty, program, taken)?;
            gap(&mut fields, at, member.offset)?;
            let doc = format!("`{ty}` at byte {}.", member.offset);
            let name = ident(member.name.as_str())?;
            fields.push(Field { name, ty: tokens, offset: member.offset, member: true, doc });
            at = member.offset.checked_add(size).ok_or_else(|| format!("`{wgsl}` is too large"))?;
        }
        gap(&mut fields, at, size)?;
        Ok(fields)
    }

    /// A struct is plain data when its fields are, no byte is outside them, and each is where WGSL has it; all of that is asserted beside
    /// the claim, so that a struct for which it does not hold does not compile.
    fn define(&self, name: &Ident, wgsl: &str, fields: &[Field], size: u32) -> TokenStream {
        let vyre = &self.vyre;
        let doc = format!("The struct `{wgsl}` of the file: {size} bytes, laid out as WGSL does.");
        let declared = fields.iter().map(|Field { name, ty, member, doc, .. }| {
            let public = member.then(|| quote!(pub));
            quote!(#[doc = #doc] #public #name: #ty)
        });
        let members: Vec<_> = fields.iter().filter(|field| field.member).collect();
        let (names, types): (Vec<_>, Vec<_>) = members.iter().map(|field| (&field.name, &field.ty)).unzip();
        let labels = names.iter().map(|name| name.to_string().trim_start_matches("r#").to_owned());
        let gaps = fields
            .iter()
            .filter(|field| !field.member)
            .map(|Field { name, ty, .. }| quote!(#name: <#ty as #vyre::typed::Zeroable>::zeroed()));
        let offsets = fields.iter().map(|Field { name: field, offset, .. }| {
            let offset = *offset as usize;
            quote!(::core::assert!(::core::mem::offset_of!(#name, #field) == #offset);)
        });
        let sizes = fields.iter().map(|Field { ty, .. }| quote!(bytes_of_plain::<#ty>()));
        let total = size as usize;
        let label = name.to_string();
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub struct #name { #(#declared),* }

            impl #name {
                #[doc = "The struct with these members."]
                #[allow(clippy::too_many_arguments, reason = "they are the members")]
                pub fn new(#(#names: #types),*) -> #name {
                    #name { #(#names,)* #(#gaps),* }
                }
            }

            const _: () = {
                const fn bytes_of_plain<T: #vyre::typed::Pod>() -> usize {
                    ::core::mem::size_of::<T>()
                }
                #(#offsets)*
                ::core::assert!(::core::mem::size_of::<#name>() == #total);
                ::core::assert!(0 #(+ #sizes)* == #total);
            };
            unsafe impl #vyre::typed::Zeroable for #name {}
            unsafe impl #vyre::typed::Pod for #name {}
            impl #vyre::Element for #name {}

            impl ::core::default::Default for #name {
                fn default() -> Self {
                    <#name as #vyre::typed::Zeroable>::zeroed()
                }
            }
            impl ::core::cmp::PartialEq for #name {
                fn eq(&self, other: &Self) -> bool {
                    true #(&& self.#names == other.#names)*
                }
            }
            impl ::core::fmt::Debug for #name {
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    f.debug_struct(#label)#(.field(#labels, &self.#names))*.finish()
                }
            }
        }
    }
}
