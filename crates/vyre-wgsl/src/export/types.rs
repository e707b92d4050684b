//! Types, declarations, and what the program does with its buffers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;

use vyre_foundation::ir::{
    Access, BufferDecl, BufferKind, Count, DataType, Expr, Member, Name, Node, Program, TypeDef, TypeId, layout_of,
};

use super::{Exporter, Res, builtin_kind, plain, refuse};

/// The way to a part of an element: members by position, `None` for any index.
pub(crate) type MemberPath = Vec<Option<u32>>;

pub(crate) fn member_path(path: &[Access]) -> MemberPath {
    path.iter()
        .map(|step| match step {
            Access::Member(member) => Some(*member),
            Access::Index(_) => None,
        })
        .collect()
}

/// What the program does with its buffers and built-ins.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) atomics: HashMap<Name, HashSet<MemberPath>>,
    /// Functions that the entry point reaches; true once they have been looked at.
    pub(crate) called: HashMap<Name, bool>,
    /// Positions in the table of built-ins, with whether a function uses them.
    pub(crate) builtins: BTreeSet<(usize, bool)>,
}

impl Facts {
    pub(crate) fn new(program: &Program) -> Facts {
        let mut facts = Facts::default();
        facts.nodes(program.body(), false);
        let mut waiting = true;
        while std::mem::take(&mut waiting) {
            for function in program.functions() {
                if facts.called.get(&function.name) == Some(&false) {
                    facts.called.insert(function.name.clone(), true);
                    facts.nodes(&function.body, true);
                    waiting = true;
                }
            }
        }
        facts
    }

    fn nodes(&mut self, nodes: &[Node], in_function: bool) {
        for node in nodes {
            match node {
                Node::Atomic { buffer, path, .. } => {
                    self.atomics.entry(buffer.clone()).or_default().insert(member_path(path));
                }
                Node::Call { function, .. } => {
                    self.called.entry(function.clone()).or_insert(false);
                }
                _ => {}
            }
            node.for_each_expr(|expr| self.expr(expr, in_function));
            node.for_each_list(|list| self.nodes(list, in_function));
        }
    }

    fn expr(&mut self, expr: &Expr, in_function: bool) {
        if let Expr::Builtin(builtin) = expr
            && let Some(kind) = builtin_kind(*builtin)
        {
            self.builtins.insert((kind, in_function));
        }
        expr.for_each_child(|child| self.expr(child, in_function));
    }
}

impl Exporter<'_> {
    pub(crate) fn def(&self, id: TypeId) -> &TypeDef {
        &self.program.types()[id.0 as usize]
    }

    /// The WGSL type of a value.
    pub(crate) fn ty(&mut self, ty: &DataType) -> Res<String> {
        if let Some((element, count)) = ty.as_vector() {
            return Ok(format!("vec{count}<{}>", self.ty(&element)?));
        }
        Ok(match ty {
            DataType::Bool => "bool".into(),
            DataType::U32 => "u32".into(),
            DataType::I32 => "i32".into(),
            DataType::U64 => "u64".into(),
            DataType::I64 => "i64".into(),
            DataType::F16 => {
                self.uses_f16 = true;
                "f16".into()
            }
            DataType::F32 => "f32".into(),
            DataType::F64 => "f64".into(),
            DataType::Handle(id) => match self.def(*id).clone() {
                TypeDef::Struct { .. } => self.structs[id.0 as usize].clone(),
                TypeDef::Array { element, count, stride } => {
                    let natural = layout_of(&element, self.program.types()).map(|layout| layout.stride);
                    if natural.is_some_and(|natural| natural != stride) {
                        return refuse(format!(
                            "an array of {element} with a stride of {stride} bytes has no WGSL type"
                        ));
                    }
                    let element = self.ty(&element)?;
                    match count {
                        Count::Fixed(0) => return refuse("WGSL has no arrays of length 0"),
                        Count::Fixed(count) => format!("array<{element}, {count}>"),
                        Count::Runtime => format!("array<{element}>"),
                        Count::Constant(_) => {
                            return refuse("WGSL allows a length from override constants only for workgroup variables");
                        }
                    }
                }
            },
            other => return refuse(format!("WGSL has no type for {other}")),
        })
    }

    /// The declarations of the program's structs.
    pub(crate) fn struct_texts(&mut self) -> Res<Vec<String>> {
        for def in self.program.types() {
            match def {
                TypeDef::Struct { name, members, .. } => {
                    let text = self.module_name(name);
                    self.structs.push(text);
                    let mut taken = Taken::default();
                    let names = members.iter().map(|member| taken.fresh(plain(member.name.as_str()))).collect();
                    self.members.push(names);
                }
                TypeDef::Array { .. } => {
                    self.structs.push(String::new());
                    self.members.push(Vec::new());
                }
            }
        }
        let mut texts = Vec::new();
        for (i, def) in self.program.types().iter().enumerate() {
            if let TypeDef::Struct { members, size, align, .. } = def {
                let name = self.structs[i].clone();
                let types = members.iter().map(|member| self.ty(&member.ty)).collect::<Res<Vec<_>>>()?;
                texts.push(self.struct_text(&name, i, members, &types, *size, *align)?);
            }
        }
        Ok(texts)
    }

    /// One struct, with the attributes that put its members where the program has them.
    fn struct_text(
        &self,
        name: &str,
        id: usize,
        members: &[Member],
        types: &[String],
        size: u32,
        align: u32,
    ) -> Res<String> {
        let mut text = format!("struct {name} {{\n");
        let layouts: Vec<_> = members.iter().map(|member| self.member_layout(&member.ty)).collect::<Res<Vec<_>>>()?;
        let natural_align = layouts.iter().map(|layout| layout.1).max().unwrap_or(1);
        let mut end = 0u32;
        for (i, (member, &(own, own_align))) in members.iter().zip(&layouts).enumerate() {
            let place = end.next_multiple_of(own_align);
            if !member.offset.is_multiple_of(own_align) || place > member.offset || (i == 0 && member.offset != 0) {
                return refuse(format!(
                    "struct `{name}` has member `{}` at an offset that WGSL can't express",
                    member.name
                ));
            }
            let next = members.get(i + 1).map(|next| next.offset);
            let natural_end = member.offset + own;
            let natural_next = match layouts.get(i + 1) {
                Some((_, next_align)) => natural_end.next_multiple_of(*next_align),
                None => natural_end.next_multiple_of(natural_align.max(align)),
            };
            let wanted_next = next.unwrap_or(size);
            let open = own == 0;
            end = natural_end;
            text.push_str("    ");
            if i == 0 && align > natural_align {
                let _ = write!(text, "@align({align}) ");
            }
            if !open && wanted_next > natural_next {
                let _ = write!(text, "@size({}) ", wanted_next - member.offset);
                end = wanted_next;
            } else if !open && wanted_next < natural_next {
                return refuse(format!("struct `{name}` is packed more tightly than WGSL can express"));
            }
            let _ = writeln!(text, "{}: {},", self.members[id][i], types[i]);
        }
        if align < natural_align {
            return refuse(format!("struct `{name}` has a smaller alignment than WGSL gives it"));
        }
        text.push_str("}\n");
        Ok(text)
    }

    /// Bytes and alignment of a member; an array of open length has no bytes.
    fn member_layout(&self, ty: &DataType) -> Res<(u32, u32)> {
        if let DataType::Handle(id) = ty
            && let TypeDef::Array { element, count: Count::Runtime, .. } = self.def(*id)
        {
            return Ok((0, layout_of(element, self.program.types()).map_or(1, |layout| layout.align)));
        }
        match layout_of(ty, self.program.types()) {
            Some(layout) => Ok((layout.size, layout.align)),
            None => refuse(format!("a struct member of type {ty} has no size in WGSL")),
        }
    }

    /// Element type of a buffer as declared: with atomics where they are used, and u32 for bools that the host sees.
    fn declared_type(
        &mut self,
        ty: &DataType,
        at: &MemberPath,
        atomics: &HashSet<MemberPath>,
        host: bool,
    ) -> Res<String> {
        if atomics.contains(at) {
            return Ok(format!("atomic<{}>", self.ty(ty)?));
        }
        if let Some((element, count)) = ty.as_vector() {
            if element == DataType::Bool && host {
                return Ok(format!("vec{count}<u32>"));
            }
            if atomics.iter().any(|path| path.len() > at.len() && path.starts_with(at)) {
                return refuse("an atomic operation on a component of a vector has no WGSL form");
            }
            return self.ty(ty);
        }
        match ty {
            DataType::Bool if host => Ok("u32".into()),
            DataType::Handle(id) => {
                let inner = atomics.iter().any(|path| path.len() > at.len() && path.starts_with(at));
                if host && self.holds_bool(ty) {
                    return refuse("a struct or array with bools in a buffer has no WGSL type");
                }
                if !inner {
                    return self.ty(ty);
                }
                match self.def(*id).clone() {
                    TypeDef::Array { element, count, .. } => {
                        let mut step = at.clone();
                        step.push(None);
                        let element = self.declared_type(&element, &step, atomics, host)?;
                        Ok(match count {
                            Count::Fixed(count) => format!("array<{element}, {count}>"),
                            Count::Runtime => format!("array<{element}>"),
                            Count::Constant(_) => return refuse("an array of specialized length inside a buffer"),
                        })
                    }
                    TypeDef::Struct { name, members, size, align } => {
                        let mut types = Vec::with_capacity(members.len());
                        for (i, member) in members.iter().enumerate() {
                            let mut step = at.clone();
                            step.push(Some(i as u32));
                            types.push(self.declared_type(&member.ty, &step, atomics, host)?);
                        }
                        let variant = self.module_name(&Name::from(format!("{name}_atomic")));
                        let text = self.struct_text(&variant, id.0 as usize, &members, &types, size, align)?;
                        self.atomic_structs.push(text);
                        Ok(variant)
                    }
                }
            }
            _ => self.ty(ty),
        }
    }

    fn holds_bool(&self, ty: &DataType) -> bool {
        if let Some((element, _)) = ty.as_vector() {
            return element == DataType::Bool;
        }
        match ty {
            DataType::Bool => true,
            DataType::Handle(id) => match self.def(*id) {
                TypeDef::Struct { members, .. } => members.iter().any(|member| self.holds_bool(&member.ty)),
                TypeDef::Array { element, .. } => self.holds_bool(element),
            },
            _ => false,
        }
    }

    /// Ends in an array of open length.
    pub(crate) fn open_member(&self, ty: &DataType) -> Option<(usize, u32)> {
        let DataType::Handle(id) = ty else { return None };
        let TypeDef::Struct { members, .. } = self.def(*id) else { return None };
        let DataType::Handle(tail) = &members.last()?.ty else { return None };
        matches!(self.def(*tail), TypeDef::Array { count: Count::Runtime, .. })
            .then_some((id.0 as usize, members.len() as u32 - 1))
    }

    pub(crate) fn declared_as_array(&self, buffer: &BufferDecl) -> bool {
        if self.open_member(&buffer.ty).is_some() {
            return false;
        }
        !(buffer.kind == BufferKind::Uniform && buffer.count == Count::Fixed(1))
    }

    /// The rules for uniform buffers hold: distances within arrays are multiples of 16.
    fn fits_uniform(&self, ty: &DataType) -> bool {
        match ty {
            DataType::Handle(id) => match self.def(*id) {
                TypeDef::Array { element, count, stride } => {
                    stride.is_multiple_of(16) && *count != Count::Runtime && self.fits_uniform(element)
                }
                TypeDef::Struct { members, .. } => {
                    let nested = |ty: &DataType| matches!(ty, DataType::Handle(_));
                    members.iter().enumerate().all(|(i, member)| {
                        let after_struct = i > 0 && nested(&members[i - 1].ty);
                        self.fits_uniform(&member.ty)
                            && (!nested(&member.ty) && !after_struct || member.offset.is_multiple_of(16))
                    })
                }
            },
            _ => true,
        }
    }

    pub(crate) fn buffer_text(&mut self, buffer: &BufferDecl, out: &mut String) -> Res<()> {
        let (text, is_array) = (self.buffers[&buffer.name].text.clone(), self.buffers[&buffer.name].is_array);
        let atomics = self.buffers[&buffer.name].atomics.clone();
        let host = buffer.kind != BufferKind::Workgroup;
        let element = self
            .declared_type(&buffer.ty, &Vec::new(), &atomics, host)
            .map_err(|problem| problem.at(format!("buffer `{}`", buffer.name)))?;
        let ty = if !is_array {
            element
        } else {
            match &buffer.count {
                Count::Runtime => format!("array<{element}>"),
                Count::Fixed(0) => {
                    return refuse(format!("buffer `{}` has no elements, which WGSL can't declare", buffer.name));
                }
                Count::Fixed(count) => format!("array<{element}, {count}>"),
                Count::Constant(count) if buffer.kind == BufferKind::Workgroup => {
                    format!("array<{element}, {}>", self.size_text(count)?)
                }
                Count::Constant(_) => {
                    return refuse(format!(
                        "buffer `{}` takes its length from specialization constants, which WGSL allows only in workgroup memory",
                        buffer.name
                    ));
                }
            }
        };
        if buffer.kind == BufferKind::Workgroup {
            let _ = writeln!(out, "var<workgroup> {text}: {ty};");
            return Ok(());
        }
        let uniform_fits = self.fits_uniform(&buffer.ty)
            && (!is_array
                || matches!(buffer.count, Count::Fixed(_))
                    && layout_of(&buffer.ty, self.program.types())
                        .is_some_and(|layout| layout.stride.is_multiple_of(16)));
        let (space, note) = match buffer.kind {
            BufferKind::Read => ("storage, read", ""),
            BufferKind::Uniform if uniform_fits => ("uniform", ""),
            BufferKind::Uniform => ("storage, read", " // vyre: uniform"),
            BufferKind::Output => ("storage, read_write", " // vyre: output"),
            _ => ("storage, read_write", " // vyre: read_write"),
        };
        let (group, binding) = (buffer.group, buffer.binding);
        let _ = writeln!(out, "@group({group}) @binding({binding}) var<{space}> {text}: {ty};{note}");
        Ok(())
    }
}

/// Names of one scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    names: HashSet<String>,
    /// The number to try next behind a name, so that many names of one kind don't take a search each.
    next: HashMap<String, u32>,
}

impl Taken {
    /// As long as nobody has the name.
    pub(crate) fn insert(&mut self, name: String) -> bool {
        self.names.insert(name)
    }

    /// `wanted`, with a number where it is taken.
    pub(crate) fn fresh(&mut self, wanted: String) -> String {
        if self.names.insert(wanted.clone()) {
            return wanted;
        }
        let next = self.next.entry(wanted.clone()).or_insert(1);
        loop {
            let name = format!("{wanted}_{next}");
            *next += 1;
            if self.names.insert(name.clone()) {
                return name;
            }
        }
    }
}
