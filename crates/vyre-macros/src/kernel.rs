//! One kernel: what it binds, its constants, and the functions that make and launch it.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use vyre_foundation::ir::{
    AtomicOp, BufferDecl, BufferKind, Count, DataType, Literal, Name, Node, Program, SpecConstant, TypeDef, TypeId,
};

use crate::names::{Taken, camel_case, ident};
use crate::records::Records;

/// What the kernels of a module share.
pub(crate) struct Context<'a> {
    pub(crate) vyre: &'a TokenTree,
    /// The file as the user wrote it.
    pub(crate) file: &'a str,
    pub(crate) records: Records,
    pub(crate) taken: Taken,
}

/// A field of the struct that a launch takes.
struct Field {
    declared: TokenStream,
    /// How it is bound, as a call on what is already bound.
    bound: TokenStream,
    borrows: bool,
}

impl Context<'_> {
    /// Everything of one kernel; `text` is the file's text as an expression.
    pub(crate) fn kernel(&mut self, program: &Program, text: &TokenStream) -> Result<TokenStream, String> {
        let Context { vyre, file, .. } = *self;
        let entry = program.name();
        let of = format!("the kernel `{entry}`");
        let camel = camel_case(entry);
        let bindings = self.taken.name_type(&camel, &of)?;
        let handle = self.taken.name_type(&format!("{camel}Kernel"), &of)?;
        let make = self.taken.name_function(entry, &of)?;
        let fields = self.fields(program)?;
        let lifetime = fields.iter().any(|field| field.borrows).then(|| quote!(<'a>));
        let (declared, bound): (Vec<_>, Vec<_>) = fields.iter().map(|field| (&field.declared, &field.bound)).unzip();
        let constants = self.constants(program, &camel)?;
        let (source, made) = (quote!(#vyre::typed::Source), quote!(::core::result::Result<#handle, #vyre::Error>));
        let docs = [
            format!("What a launch of the kernel `{entry}` of `{file}` works on."),
            format!("The kernel `{entry}` of `{file}`, ready to be launched. Cheap to clone."),
            format!("Makes the kernel `{entry}` of `{file}`."),
        ];
        let [bindings_doc, handle_doc, make_doc] = &docs;
        let static_source = quote!(static SOURCE: #source = #source::new(#text, #file, #entry););
        let constructors = match constants {
            None => quote! {
                #[doc = #make_doc]
                pub fn #make(engine: &#vyre::Engine) -> #made {
                    #static_source
                    ::core::result::Result::Ok(#handle { kernel: SOURCE.kernel(engine, [])? })
                }
            },
            Some(Constants { name, definition, values }) => {
                let make_with = self.taken.name_function(&format!("{entry}_with"), &of)?;
                let make_doc = format!("{make_doc} Its constants have the values that the file gives them.");
                let with_doc = format!("Makes the kernel `{entry}` of `{file}` with these constants.");
                quote! {
                    #definition
                    #[doc = #make_doc]
                    pub fn #make(engine: &#vyre::Engine) -> #made {
                        #make_with(engine, ::core::default::Default::default())
                    }
                    #[doc = #with_doc]
                    pub fn #make_with(engine: &#vyre::Engine, constants: #name) -> #made {
                        #static_source
                        ::core::result::Result::Ok(#handle { kernel: SOURCE.kernel(engine, [#(#values),*])? })
                    }
                }
            }
        };
        Ok(quote! {
            #[doc = #bindings_doc]
            pub struct #bindings #lifetime { #(#declared),* }

            #[doc = #handle_doc]
            #[derive(Clone)]
            pub struct #handle {
                kernel: #vyre::Kernel,
            }

            impl #handle {
                #[doc = "Queues a launch and returns at once."]
                pub fn launch<'a>(
                    &'a self,
                    bindings: #bindings #lifetime,
                ) -> ::core::result::Result<#vyre::Launch, #vyre::Error> {
                    self.call(bindings).launch()
                }

                #[doc = "A launch to which a grid, a device, a timeout or a label can be added."]
                pub fn call<'a>(&'a self, bindings: #bindings #lifetime) -> #vyre::Call<'a> {
                    self.kernel.call()#(#bound)*
                }

                #[doc = "The same kernel by name, for graphs and explanations."]
                pub fn kernel(&self) -> &#vyre::Kernel {
                    &self.kernel
                }
            }

            #constructors
        })
    }

    fn fields(&mut self, program: &Program) -> Result<Vec<Field>, String> {
        let written = written(program);
        let mut fields = Vec::new();
        for position in program.binding_order() {
            let buffer = &program.buffers()[position];
            let writes = written.contains(&buffer.name);
            fields.push(self.field(program, buffer, writes)?);
        }
        Ok(fields)
    }

    fn field(&mut self, program: &Program, buffer: &BufferDecl, writes: bool) -> Result<Field, String> {
        let vyre = self.vyre;
        let wgsl = buffer.name.as_str();
        let name = ident(wgsl)?;
        let place = format!("Binding {} of group {}", buffer.binding, buffer.group);
        let refuse = |why: String| format!("buffer `{wgsl}` of `{}`: {why}", program.name());
        let lent = if writes { quote!(&'a mut) } else { quote!(&'a) };
        let access = if writes { "the kernel writes it" } else { "the kernel only reads it" };
        if is_open(&buffer.ty, program) {
            let doc = format!("{place}: a struct that ends in an array of open length, as bytes; {access}.");
            let declared = quote!(#[doc = #doc] pub #name: #lent #vyre::Buffer);
            return Ok(Field { declared, bound: quote!(.bind(#wgsl, bindings.#name)), borrows: true });
        }
        let element = self.records.element(&buffer.ty, program, &mut self.taken).map_err(refuse)?;
        let (ty, written) = (element.tokens, element.wgsl);
        if let (BufferKind::Uniform, Count::Fixed(count)) = (buffer.kind, &buffer.count) {
            let length = *count as usize;
            let (ty, written) = match length {
                1 => (ty, written),
                _ => (quote!([#ty; #length]), format!("array<{written}, {count}>")),
            };
            let doc = format!("{place}: the value of a uniform `{written}`.");
            let declared = quote!(#[doc = #doc] pub #name: #ty);
            return Ok(Field { declared, bound: quote!(.value(#wgsl, &bindings.#name)), borrows: false });
        }
        let doc = match buffer.count {
            Count::Fixed(1) => format!("{place}: one `{written}`; {access}."),
            Count::Fixed(count) => format!("{place}: {count} elements `{written}`; {access}."),
            _ => format!("{place}: elements `{written}`; {access}."),
        };
        let declared = quote!(#[doc = #doc] pub #name: #lent #vyre::Array<#ty>);
        Ok(Field { declared, bound: quote!(.bind(#wgsl, bindings.#name)), borrows: true })
    }

    /// The struct of a kernel's specialization constants, where it has any.
    fn constants(&mut self, program: &Program, camel: &str) -> Result<Option<Constants>, String> {
        if program.constants().is_empty() {
            return Ok(None);
        }
        let (vyre, entry) = (self.vyre, program.name());
        let name = self.taken.name_type(&format!("{camel}Constants"), &format!("the kernel `{entry}`"))?;
        let (mut declared, mut defaults, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for SpecConstant { name: wgsl, default } in program.constants() {
            let (wgsl, field) = (wgsl.as_str(), ident(wgsl.as_str())?);
            let (ty, default, shown, value) = match *default {
                Literal::U32(value) => (quote!(u32), quote!(#value), value.to_string(), quote!(constants.#field)),
                Literal::I32(value) => (quote!(i32), quote!(#value), value.to_string(), quote!(constants.#field)),
                Literal::Bool(value) => (quote!(bool), quote!(#value), value.to_string(), quote!(constants.#field)),
                Literal::F32(value) => {
                    let bits = value.to_bits();
                    (quote!(f32), quote!(f32::from_bits(#bits)), value.to_string(), quote!(constants.#field))
                }
                Literal::F16(value) => {
                    let (f16, bits) = (quote!(#vyre::typed::f16), value.to_bits());
                    let widened = quote!(constants.#field.to_f32());
                    (f16.clone(), quote!(#f16::from_bits(#bits)), value.to_string(), widened)
                }
                other => return Err(format!("constant `{wgsl}` of `{entry}` is {}", other.data_type())),
            };
            let doc = format!("The constant `{wgsl}`, {shown} unless it is set.");
            declared.push(quote!(#[doc = #doc] pub #field: #ty));
            defaults.push(quote!(#field: #default));
            values.push(quote!((#wgsl, #vyre::specialization::SpecValue::from(#value))));
        }
        let doc = format!("The constants of the kernel `{entry}`; `default()` has the values of `{}`.", self.file);
        let definition = quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct #name { #(#declared),* }

            impl ::core::default::Default for #name {
                fn default() -> Self {
                    #name { #(#defaults),* }
                }
            }
        };
        Ok(Some(Constants { name, definition, values }))
    }
}

struct Constants {
    name: proc_macro2::Ident,
    definition: TokenStream,
    /// Name and value of each, from a variable `constants`.
    values: Vec<TokenStream>,
}

/// The buffers that a program writes under some constants.
fn written(program: &Program) -> BTreeSet<&Name> {
    fn look<'a>(nodes: &'a [Node], written: &mut BTreeSet<&'a Name>) {
        for node in nodes {
            match node {
                Node::Store { buffer, .. } => drop(written.insert(buffer)),
                Node::Atomic { op, buffer, .. } if *op != AtomicOp::Load => drop(written.insert(buffer)),
                _ => node.for_each_list(|nodes| look(nodes, written)),
            }
        }
    }
    let mut written = BTreeSet::new();
    look(program.body(), &mut written);
    program.functions().iter().for_each(|function| look(&function.body, &mut written));
    written
}

/// A struct that ends in an array of open length.
fn is_open(ty: &DataType, program: &Program) -> bool {
    let definition = |ty: &DataType| match ty {
        DataType::Handle(TypeId(id)) => program.types().get(*id as usize),
        _ => None,
    };
    let Some(TypeDef::Struct { members, .. }) = definition(ty) else { return false };
    let last = members.last().and_then(|member| definition(&member.ty));
    matches!(last, Some(TypeDef::Array { count: Count::Runtime, .. }))
}

/// Everything that is wrong with a file.
pub(crate) fn shown(problems: &[vyre_spec::Diagnostic]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}
