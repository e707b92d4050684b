use syn::visit::{self, Visit};
use syn::{Attribute, Field, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemStruct, Visibility};

use super::*;

const EVERYTHING: &str = "
    struct Inner { a: vec3<f32>, b: u32, c: mat3x3<f32> }
    struct Outer { x: f32, inner: Inner, few: array<vec3<u32>, 2>, y: i32 }
    struct Open { count: atomic<u32>, rest: array<u32> }
    override width: u32 = 8;
    override scale: f32 = 0.5;
    @group(0) @binding(0) var<uniform> outer: Outer;
    @group(0) @binding(1) var<storage, read> points: array<vec3<f32>>;
    @group(0) @binding(2) var<storage, read_write> open: Open;
    @group(0) @binding(3) var<storage, read_write> out: array<Inner>;
    @compute @workgroup_size(8) fn fill_all(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < width {
            atomicAdd(&open.count, 1u);
            open.rest[id.x] = u32(scale);
            out[id.x].a = points[id.x] + outer.inner.a;
        }
    }
    @compute @workgroup_size(8) fn clear(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x].b = 0u; }";

fn module(text: &str) -> Result<String, String> {
    let input: Input = syn::parse_str("vyre, pub mod kernels = \"some.wgsl\"").unwrap();
    of_text(&input, "some.wgsl", text, &quote!("…")).map(|tokens| tokens.to_string())
}

/// What is public and has no documentation.
#[derive(Default)]
struct Undocumented {
    wrong: Vec<String>,
    seen: usize,
    in_trait: bool,
}

impl Undocumented {
    fn look(&mut self, visibility: &Visibility, attributes: &[Attribute], name: &dyn std::fmt::Display) {
        let public = matches!(visibility, Visibility::Public(_)) && !self.in_trait;
        self.seen += usize::from(public);
        if public && !attributes.iter().any(|attribute| attribute.path().is_ident("doc")) {
            self.wrong.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Undocumented {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.look(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_mod(self, item);
    }
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.look(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_struct(self, item);
    }
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.look(&item.vis, &item.attrs, &item.sig.ident);
    }
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.in_trait = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        self.in_trait = false;
    }
    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.look(&item.vis, &item.attrs, &item.sig.ident);
    }
    fn visit_field(&mut self, field: &'ast Field) {
        let name = field.ident.as_ref().map_or_else(String::new, ToString::to_string);
        self.look(&field.vis, &field.attrs, &name);
    }
}

#[test]
fn everything_public_says_what_it_is() {
    let file: syn::File = syn::parse_str(&module(EVERYTHING).unwrap()).unwrap();
    let mut looked = Undocumented::default();
    looked.visit_file(&file);
    assert_eq!(looked.wrong, [""; 0]);
    assert!(looked.seen > 30, "{} were looked at", looked.seen);
}

#[test]
fn structs_lie_as_wgsl_says() {
    let made = module(EVERYTHING).unwrap().replace(' ', "");
    for expected in [
        // vec3, u32 in its gap, three columns of 16 bytes.
        "puba:[f32;3usize]",
        "pubb:u32",
        "pubc:[vyre::Vec3<f32>;3usize]",
        "size_of::<Inner>()==64usize",
        "_gap_4:[u8;12usize]",
        "pubfew:[vyre::Vec3<u32>;2usize]",
        "offset_of!(Outer,few)==80usize",
        "_gap_116:[u8;12usize]",
        "size_of::<Outer>()==128usize",
        "pubouter:Outer",
        "pubpoints:&'avyre::Array<vyre::Vec3<f32>>",
        "pubopen:&'amutvyre::Buffer",
        "pubout:&'amutvyre::Array<Inner>",
    ] {
        assert!(made.contains(expected), "{expected} is not in\n{made}");
    }
}

#[test]
fn mistakes_are_told_with_their_line() {
    let syntax = module("\nfn f( {}\n").unwrap_err();
    assert!(syntax.contains("some.wgsl:2:"), "{syntax}");
    let unknown = module("\n\n@compute @workgroup_size(1) fn main() { missing[0] = 1u; }").unwrap_err();
    assert!(unknown.contains("missing") && unknown.contains("some.wgsl:3:"), "{unknown}");
    let nothing = module("fn helper() {}").unwrap_err();
    assert!(nothing.contains("no compute entry point"), "{nothing}");
    let same = "struct Step { a: u32 }
        @group(0) @binding(0) var<storage, read_write> x: array<Step>;
        @compute @workgroup_size(1) fn step() { x[0].a = 1u; }";
    let same = module(same).unwrap_err();
    assert!(same.contains("the kernel `step` and the struct `Step` would both make `Step`"), "{same}");
}
