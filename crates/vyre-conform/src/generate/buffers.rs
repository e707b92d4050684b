//! Types, buffers and the bytes bound to them.

use vyre_foundation::ir::{AtomicOp, BufferDecl, BufferKind, Count, DataType, Member, TypeDef, TypeId, layout_of};
use vyre_foundation::kernel::{self, Scalar, Type};

use super::value::data_type;
use super::{Buffer, Element, Floats, Generator, Role, StructInfo, Subgroups, decl};

impl Generator {
    pub(super) fn type_table(&mut self) {
        if self.options.structs {
            for _ in 0..self.rng.range(1, 2) {
                self.struct_type();
            }
        }
        if self.options.local_arrays {
            for _ in 0..self.rng.range(1, 2) {
                let element = self.numeric_type();
                let count = self.rng.range(1, 9);
                let stride = layout_of(&data_type(element), &[]).map_or(4, |layout| layout.stride);
                self.types.push(TypeDef::Array { element: data_type(element), count: Count::Fixed(count), stride });
                if self.rng.chance(1, 2) {
                    let row = DataType::Handle(TypeId(self.types.len() as u32 - 1));
                    let (rows, stride) = (self.rng.range(1, 5), stride * count);
                    self.types.push(TypeDef::Array { element: row, count: Count::Fixed(rows), stride });
                }
            }
        }
    }

    fn struct_type(&mut self) {
        let members: Vec<Type> = (0..self.rng.range(1, 4)).map(|_| self.numeric_type()).collect();
        let (mut offset, mut align) = (0u32, 1u32);
        let mut placed = Vec::new();
        for (i, &member) in members.iter().enumerate() {
            let ty = data_type(member);
            let Some(layout) = layout_of(&ty, &[]) else { continue };
            offset = offset.next_multiple_of(layout.align);
            placed.push(Member { name: format!("m{i}").into(), ty, offset });
            offset += layout.size;
            align = align.max(layout.align);
        }
        let mut array = None;
        if self.rng.chance(1, 3) {
            let element = self.numeric_type();
            let count = self.rng.range(1, 4);
            if let Some(layout) = layout_of(&data_type(element), &[]) {
                let id = self.types.len() as u32;
                let ty = data_type(element);
                self.types.push(TypeDef::Array { element: ty, count: Count::Fixed(count), stride: layout.stride });
                offset = offset.next_multiple_of(layout.align);
                placed.push(Member { name: "list".into(), ty: DataType::Handle(TypeId(id)), offset });
                offset += layout.stride * count;
                align = align.max(layout.align);
                array = Some((id, element, count));
            }
        }
        let id = self.types.len() as u32;
        self.types.push(TypeDef::Struct {
            name: format!("S{id}").into(),
            members: placed,
            size: offset.next_multiple_of(align),
            align,
        });
        self.structs.push(StructInfo { id, members, array });
    }

    pub(super) fn element_type(&self, element: &Element) -> DataType {
        match element {
            Element::Value(ty) => data_type(*ty),
            Element::Stored(ty, _) => ty.clone(),
            Element::Struct(i) => DataType::Handle(TypeId(self.structs[*i].id)),
        }
    }

    fn some_element(&mut self) -> Element {
        if !self.structs.is_empty() && self.rng.chance(1, 5) {
            return Element::Struct(self.rng.below(self.structs.len() as u32) as usize);
        }
        if self.options.stored_types && self.rng.chance(2, 5) {
            let mut types = vec![DataType::U8, DataType::U16, DataType::I8, DataType::I16, DataType::I4];
            if self.options.floats == Floats::Exact {
                types.extend([DataType::BF16, DataType::F8E4M3, DataType::F8E5M2, DataType::FP4, DataType::NF4]);
            }
            let ty = self.rng.pick(&types);
            if let Some(element) = kernel::Element::of(&ty) {
                return Element::Stored(ty, element.scalar().into());
            }
        }
        Element::Value(self.any_type())
    }

    pub(super) fn buffer(&mut self, role: Role, element: Element, length: u32, per: u32) {
        let prefix = match role {
            Role::Input => "in",
            Role::Uniform => "uni",
            Role::Own => "own",
            Role::Output | Role::MathOutput => "out",
            Role::Atomic(_) | Role::OwnAtomic => "at",
            Role::Shared | Role::SharedAtomic(_) => "sh",
        };
        let name = self.fresh(prefix);
        self.buffers.push(Buffer { name, role, element, length, per });
    }

    fn atomic_element(&mut self) -> Element {
        let mut scalars = vec![Scalar::U32, Scalar::I32];
        if self.options.int64 && self.options.atomics64 {
            scalars.extend([Scalar::U64, Scalar::I64]);
        }
        Element::Value(self.rng.pick(&scalars).into())
    }

    fn commutative(&mut self) -> AtomicOp {
        self.rng.pick(&[AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor])
    }

    /// Lengths around the number of invocations, a few shorter or longer.
    fn own_length(&mut self, per: u32) -> u32 {
        let exact = self.invocations() * per;
        match self.rng.below(8) {
            0 => exact + self.rng.range(1, 5),
            1 => exact.saturating_sub(self.rng.range(1, 5)).max(1),
            _ => exact,
        }
    }

    /// Decides on the buffers and declares them in random binding order.
    pub(super) fn make_buffers(&mut self) -> Vec<BufferDecl> {
        for _ in 0..self.rng.range(1, 3) {
            let element = self.some_element();
            let length = match self.rng.below(12) {
                0 => 0,
                1 => 1,
                2 => self.rng.range(2, 9),
                _ => self.rng.range(8, 80),
            };
            self.buffer(Role::Input, element, length, 1);
        }
        if self.rng.chance(1, 2) {
            let element = match self.rng.below(3) {
                0 if !self.structs.is_empty() => Element::Struct(0),
                _ => Element::Value(self.numeric_type()),
            };
            self.buffer(Role::Uniform, element, 1, 1);
        }
        for _ in 0..self.rng.range(1, 2) {
            let per = self.rng.weighted(&[0, 6, 2, 1]) as u32;
            let (element, length) = (self.some_element(), self.own_length(per));
            self.buffer(Role::Output, element, length, per);
        }
        if self.rng.chance(1, 2) {
            let per = self.rng.weighted(&[0, 6, 2, 1]) as u32;
            let (element, length) = (self.some_element(), self.own_length(per));
            self.buffer(Role::Own, element, length, per);
        }
        if self.options.math && self.options.floats != Floats::None {
            for _ in 0..self.rng.range(1, 3) {
                let mut scalars = vec![Scalar::F32, Scalar::F32];
                if self.options.f16 {
                    scalars.push(Scalar::F16);
                }
                if self.options.f64 {
                    scalars.push(Scalar::F64);
                }
                let scalar = self.rng.pick(&scalars);
                let element = Element::Value(self.widened(scalar));
                let length = self.invocations();
                self.buffer(Role::MathOutput, element, length, 1);
            }
        }
        if self.options.atomics {
            let (element, op) = (self.atomic_element(), self.commutative());
            let length = self.rng.range(1, 9);
            self.buffer(Role::Atomic(op), element, length, 1);
            if self.rng.chance(1, 2) {
                let (element, length) = (self.atomic_element(), self.own_length(1));
                self.buffer(Role::OwnAtomic, element, length, 1);
            }
        }
        if self.options.workgroup_memory || self.options.subgroups != Subgroups::None {
            let per_group: u32 = self.workgroup.iter().product();
            let per = self.rng.range(1, 2);
            let element = Element::Value(self.any_type());
            let short = if self.rng.chance(1, 8) { 1 } else { 0 };
            self.buffer(Role::Shared, element, (per_group * per - short).max(1), per);
            if self.options.atomics || self.options.subgroups != Subgroups::None {
                let op = if self.options.subgroups == Subgroups::None { self.commutative() } else { AtomicOp::Add };
                let element = Element::Value(self.rng.pick(&[Scalar::U32, Scalar::I32]).into());
                let length = self.rng.range(1, 5);
                self.buffer(Role::SharedAtomic(op), element, length, 1);
            }
        }
        self.declare_buffers()
    }

    pub(super) fn declare_buffers(&mut self) -> Vec<BufferDecl> {
        // Bindings are not in the order of declaration, and may have holes.
        let mut bindings: Vec<u32> = (0..self.buffers.len() as u32).map(|i| i + i / 3).collect();
        for i in (1..bindings.len()).rev() {
            let j = self.rng.below(i as u32 + 1) as usize;
            bindings.swap(i, j);
        }
        let buffers = self.buffers.clone();
        let mut decls: Vec<BufferDecl> = buffers
            .iter()
            .zip(bindings)
            .map(|(buffer, binding)| {
                let ty = self.element_type(&buffer.element);
                let ty = match (&ty.as_vector(), self.rng.chance(1, 2)) {
                    (Some((DataType::U32, 2)), true) => DataType::Vec2U32,
                    (Some((DataType::U32, 4)), true) => DataType::Vec4U32,
                    _ => ty,
                };
                let decl = decl(buffer, binding, ty);
                let open = match buffer.role {
                    Role::Input | Role::Own | Role::Atomic(_) | Role::OwnAtomic => {
                        buffer.length == 0 || self.rng.chance(1, 2)
                    }
                    _ => false,
                };
                // Bytes that are bound hold whole pairs of 4-bit elements.
                if open || buffer.role == Role::Uniform { decl } else { decl.with_count(buffer.length) }
            })
            .collect();
        if self.rng.chance(1, 4) {
            let second_group = self.rng.below(decls.len() as u32) as usize;
            if decls[second_group].kind != BufferKind::Workgroup {
                decls[second_group].group = 1;
            }
        }
        decls
    }

    /// Bytes for every input, in binding order.
    pub(super) fn inputs(&mut self, decls: &[BufferDecl]) -> Vec<Vec<u8>> {
        let mut order: Vec<usize> = (0..decls.len()).filter(|&i| decls[i].kind.is_input()).collect();
        order.sort_by_key(|&i| (decls[i].group, decls[i].binding));
        let types = self.types.clone();
        order
            .into_iter()
            .map(|i| {
                let ty = &decls[i].ty;
                let (stride, packed) = match layout_of(ty, &types) {
                    Some(layout) => (layout.stride, if ty.bits() == Some(4) { 2 } else { 1 }),
                    None => (0, 1),
                };
                let mut bytes = Vec::new();
                for element in 0..self.buffers[i].length.div_ceil(packed) {
                    self.element_bytes(ty, &types, &mut bytes);
                    bytes.resize(((element + 1) * stride) as usize, 0);
                }
                bytes
            })
            .collect()
    }

    fn element_bytes(&mut self, ty: &DataType, types: &[TypeDef], out: &mut Vec<u8>) {
        let start = out.len();
        if let Some((element, count)) = ty.as_vector() {
            return (0..count).for_each(|_| self.scalar_bytes(&element, out));
        }
        match ty {
            DataType::Handle(id) => match types.get(id.0 as usize) {
                Some(TypeDef::Struct { members, .. }) => {
                    for member in members {
                        out.resize(start + member.offset as usize, 0);
                        self.element_bytes(&member.ty, types, out);
                    }
                }
                Some(TypeDef::Array { element, count: Count::Fixed(count), stride }) => {
                    for i in 1..=*count {
                        self.element_bytes(element, types, out);
                        out.resize(start + (i * stride) as usize, 0);
                    }
                }
                _ => {}
            },
            scalar => self.scalar_bytes(scalar, out),
        }
    }
}
