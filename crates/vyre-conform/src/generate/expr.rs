//! Random expressions of a wanted type.

use vyre_foundation::ir::{Access, BinaryOp, Builtin, DataType, Expr, MathOp, SubgroupOp, TypeId, UnaryOp};
use vyre_foundation::kernel::{Scalar, Type};

use super::value::data_type;
use super::{Element, Floats, Generator, Local, LocalType, Phase, Role, StructInfo, Subgroups};

impl Generator {
    /// An expression of this type, at most `depth` operations deep (a few more for guards).
    pub(super) fn expr(&mut self, ty: Type, depth: u32) -> Expr {
        if depth == 0 || self.rng.chance(1, 6) {
            return self.leaf(ty);
        }
        let depth = depth - 1;
        if ty.width > 1 && self.rng.chance(1, 2) {
            return match self.rng.below(3) {
                0 => self.construct(ty, depth),
                1 => {
                    let wide = Type { width: self.rng.range(2, 4) as u8, ..ty };
                    let lanes = self.lanes(wide.width, ty.width);
                    Expr::Swizzle { value: Box::new(self.expr(wide, depth)), lanes }
                }
                _ => self.select(ty, depth),
            };
        }
        match self.rng.below(20) {
            0 | 1 => self.select(ty, depth),
            2 | 3 => self.cast(ty, depth),
            4 => self.bit_cast(ty, depth),
            5 if ty.width == 1 && self.options.vectors => self.out_of_vector(ty, depth),
            6 => self.leaf(ty),
            _ => self.operation(ty, depth),
        }
    }

    fn construct(&mut self, ty: Type, depth: u32) -> Expr {
        if self.rng.chance(1, 4) {
            // One scalar for all components.
            return Expr::construct(data_type(ty), vec![self.expr(ty.scalar.into(), depth)]);
        }
        let mut parts = Vec::new();
        let mut left = ty.width;
        while left > 0 {
            let width = if left == ty.width { self.rng.range(1, u32::from(left) - 1) as u8 } else { left };
            let width = if self.rng.chance(1, 2) { 1 } else { width };
            parts.push(self.expr(Type { scalar: ty.scalar, width }, depth.min(1)));
            left -= width;
        }
        Expr::construct(data_type(ty), parts)
    }

    fn select(&mut self, ty: Type, depth: u32) -> Expr {
        let cond_width = if self.rng.chance(1, 2) { ty.width } else { 1 };
        let cond = self.expr(Type { scalar: Scalar::Bool, width: cond_width }, depth);
        Expr::select(cond, self.expr(ty, depth), self.expr(ty, depth))
    }

    fn cast(&mut self, ty: Type, depth: u32) -> Expr {
        let from = Type { scalar: self.any_scalar(), width: ty.width };
        let value = self.expr(from, depth);
        let value = if ty.scalar.is_float() && !from.scalar.is_float() { self.whole(value, from) } else { value };
        let cast = value.cast(data_type(ty));
        self.tame(cast, ty)
    }

    /// In the mode of small whole numbers, brings an integer into their range before it becomes a float.
    fn whole(&mut self, value: Expr, ty: Type) -> Expr {
        if self.options.floats != Floats::Whole || ty.scalar == Scalar::Bool {
            return value;
        }
        let mask = self.splat(ty, 7);
        Expr::binary(BinaryOp::And, value, mask)
    }

    /// In the mode of small whole numbers, brings a float back into their range.
    pub(super) fn tame(&mut self, value: Expr, ty: Type) -> Expr {
        if self.options.floats != Floats::Whole || !ty.scalar.is_float() {
            return value;
        }
        let limit = if ty.scalar == Scalar::F16 { 8 } else { 64 };
        let high = self.splat(ty, limit);
        let low = Expr::unary(UnaryOp::Neg, high.clone());
        Expr::math(MathOp::Clamp, vec![value, low, high])
    }

    /// A small number of this type.
    pub(super) fn splat(&mut self, ty: Type, value: u32) -> Expr {
        let scalar = match ty.scalar {
            Scalar::Bool => Expr::bool(value != 0),
            Scalar::U32 => Expr::u32(value),
            Scalar::I32 => Expr::i32(value as i32),
            Scalar::U64 => Expr::u64(u64::from(value)),
            Scalar::I64 => Expr::i64(i64::from(value)),
            Scalar::F16 => Expr::f16(half::f16::from_f32(value as f32)),
            Scalar::F32 => Expr::f32(value as f32),
            Scalar::F64 => Expr::f64(f64::from(value)),
        };
        if ty.width == 1 { scalar } else { Expr::construct(data_type(ty), vec![scalar]) }
    }

    /// NaN becomes zero, because a NaN's bits are not specified.
    pub(super) fn without_nan(&mut self, value: Expr, ty: Type) -> Expr {
        let zero = self.splat(ty, 0);
        Expr::select(value.clone().eq(value.clone()), value, zero)
    }

    fn bit_cast(&mut self, ty: Type, depth: u32) -> Expr {
        if self.options.vectors
            && self.rng.chance(1, 3)
            && let Some(cast) = self.wide_bit_cast(ty, depth)
        {
            return cast;
        }
        let from = match ty.scalar {
            Scalar::U32 if self.float32() && self.rng.chance(1, 2) => Scalar::F32,
            Scalar::I32 if self.float32() && self.rng.chance(1, 2) => Scalar::F32,
            Scalar::U32 => Scalar::I32,
            Scalar::I32 => Scalar::U32,
            Scalar::U64 if self.float64() && self.rng.chance(1, 2) => Scalar::F64,
            Scalar::U64 => Scalar::I64,
            Scalar::I64 => Scalar::U64,
            Scalar::F32 if self.float32() => self.rng.pick(&[Scalar::U32, Scalar::I32]),
            Scalar::F64 if self.float64() && self.options.int64 => self.rng.pick(&[Scalar::U64, Scalar::I64]),
            _ => return self.operation(ty, depth),
        };
        let from = Type { scalar: from, ..ty };
        let mut value = self.expr(from, depth.min(2));
        if from.scalar.is_float() {
            value = self.without_nan(value, from);
        }
        value.bit_cast(data_type(ty))
    }

    /// Between different numbers of components of the same size in all.
    fn wide_bit_cast(&mut self, ty: Type, depth: u32) -> Option<Expr> {
        let bits = u32::from(ty.width) * ty.scalar.bits();
        let mut scalars = vec![Scalar::U32, Scalar::I32];
        if self.options.int64 {
            scalars.extend([Scalar::U64, Scalar::I64]);
        }
        if self.float32() {
            scalars.push(Scalar::F32);
            if self.options.f16 {
                scalars.extend([Scalar::F16, Scalar::F16]);
            }
        }
        let scalar = self.rng.pick(&scalars);
        let width = bits / scalar.bits();
        if ty.scalar == Scalar::Bool || !(1..=4).contains(&width) || width * scalar.bits() != bits {
            return None;
        }
        if ty.scalar.is_float() && !self.float32() {
            return None;
        }
        let from = Type { scalar, width: width as u8 };
        let mut value = self.expr(from, depth.min(2));
        if from.scalar.is_float() {
            value = self.without_nan(value, from);
        }
        Some(value.bit_cast(data_type(ty)))
    }

    fn float32(&self) -> bool {
        self.options.floats == Floats::Exact
    }

    fn float64(&self) -> bool {
        self.options.floats == Floats::Exact && self.options.f64
    }

    /// A scalar out of a vector.
    fn out_of_vector(&mut self, ty: Type, depth: u32) -> Expr {
        let wide = Type { width: self.rng.range(2, 4) as u8, ..ty };
        match self.rng.below(4) {
            0 if ty.scalar == Scalar::Bool => {
                let op = self.rng.pick(&[MathOp::All, MathOp::Any]);
                Expr::math(op, vec![self.expr(wide, depth)])
            }
            0 if !self.dot_may_round(ty.scalar) => {
                let (a, b) = (self.expr(wide, depth.min(1)), self.expr(wide, depth.min(1)));
                Expr::math(MathOp::Dot, vec![a, b])
            }
            1 => {
                // A component by a computed index, at times outside.
                let index = self.index(u32::from(wide.width));
                Expr::Part { value: Box::new(self.expr(wide, depth)), path: vec![Access::Index(index)] }
            }
            _ => {
                let lanes = self.lanes(wide.width, 1);
                Expr::Swizzle { value: Box::new(self.expr(wide, depth)), lanes }
            }
        }
    }

    fn dot_may_round(&self, scalar: Scalar) -> bool {
        scalar.is_float() && self.options.floats == Floats::Whole
    }

    fn operation(&mut self, ty: Type, depth: u32) -> Expr {
        match ty.scalar {
            Scalar::Bool => self.bool_operation(ty, depth),
            Scalar::F16 | Scalar::F32 | Scalar::F64 => self.float_operation(ty, depth),
            _ => self.integer_operation(ty, depth),
        }
    }

    fn bool_operation(&mut self, ty: Type, depth: u32) -> Expr {
        use BinaryOp as B;
        match self.rng.below(8) {
            0 => {
                let op = self.rng.pick(&[B::And, B::Or, B::Xor, B::Eq, B::Ne]);
                Expr::binary(op, self.expr(ty, depth), self.expr(ty, depth))
            }
            1 => Expr::unary(UnaryOp::Not, self.expr(ty, depth)),
            _ => {
                let operand = Type { scalar: self.numeric_scalar(), ..ty };
                let op = self.rng.pick(&[B::Eq, B::Ne, B::Lt, B::Le, B::Gt, B::Ge]);
                Expr::binary(op, self.expr(operand, depth), self.expr(operand, depth))
            }
        }
    }

    fn integer_operation(&mut self, ty: Type, depth: u32) -> Expr {
        use BinaryOp as B;
        use MathOp as M;
        let narrow = ty.scalar.bits() == 32;
        let counts = Type { scalar: Scalar::U32, ..ty };
        match self.rng.below(16) {
            0..=5 => {
                let op = self.rng.pick(&[B::Add, B::Sub, B::Mul, B::Add, B::And, B::Or, B::Xor]);
                Expr::binary(op, self.expr(ty, depth), self.expr(ty, depth))
            }
            6 | 7 => {
                let op = self.rng.pick(&[B::Div, B::Rem]);
                Expr::binary(op, self.expr(ty, depth), self.expr(ty, depth))
            }
            8 | 9 => {
                let op = self.rng.pick(&[B::Shl, B::Shr]);
                Expr::binary(op, self.expr(ty, depth), self.expr(counts, depth))
            }
            10 => {
                let op = if ty.scalar.is_signed() && self.rng.chance(1, 2) { UnaryOp::Neg } else { UnaryOp::Not };
                Expr::unary(op, self.expr(ty, depth))
            }
            11 => {
                let op = self.rng.pick(&[M::Min, M::Max]);
                Expr::math(op, vec![self.expr(ty, depth), self.expr(ty, depth)])
            }
            12 => Expr::math(M::Clamp, vec![self.expr(ty, depth), self.expr(ty, 1), self.expr(ty, 1)]),
            13 => {
                let mut ops = vec![
                    M::Abs,
                    M::CountOneBits,
                    M::CountLeadingZeros,
                    M::CountTrailingZeros,
                    M::ReverseBits,
                    M::FirstLeadingBit,
                    M::FirstTrailingBit,
                ];
                if ty.scalar.is_signed() {
                    ops.push(M::Sign);
                }
                let op = self.rng.pick(&ops);
                Expr::math(op, vec![self.expr(ty, depth)])
            }
            14 if narrow => match self.rng.below(3) {
                0 => Expr::math(M::MulHigh, vec![self.expr(ty, depth), self.expr(ty, depth)]),
                1 => {
                    let (offset, count) = (self.bit_position(), self.bit_position());
                    Expr::math(M::ExtractBits, vec![self.expr(ty, depth), offset, count])
                }
                _ => {
                    let (offset, count) = (self.bit_position(), self.bit_position());
                    Expr::math(M::InsertBits, vec![self.expr(ty, depth), self.expr(ty, depth), offset, count])
                }
            },
            _ => self.leaf(ty),
        }
    }

    /// An offset or a count of bits, at times more than there are.
    fn bit_position(&mut self) -> Expr {
        if self.rng.chance(1, 4) {
            self.expr(Scalar::U32.into(), 1)
        } else {
            let position = self.rng.below(36);
            Expr::u32(position)
        }
    }

    fn float_operation(&mut self, ty: Type, depth: u32) -> Expr {
        use BinaryOp as B;
        use MathOp as M;
        let whole = self.options.floats == Floats::Whole;
        match self.rng.below(16) {
            0..=5 => {
                let op = self.rng.pick(&[B::Add, B::Sub, B::Mul]);
                let (mut a, mut b) = (self.expr(ty, depth), self.expr(ty, depth));
                if whole {
                    (a, b) = (self.tame(a, ty), self.tame(b, ty));
                }
                Expr::binary(op, a, b)
            }
            6 | 7 if !whole => {
                let op = self.rng.pick(&[B::Div, B::Div, B::Rem]);
                Expr::binary(op, self.expr(ty, depth), self.expr(ty, depth))
            }
            8 => Expr::unary(UnaryOp::Neg, self.expr(ty, depth)),
            9 => {
                let op = self.rng.pick(&[M::Min, M::Max]);
                Expr::math(op, vec![self.expr(ty, depth), self.expr(ty, depth)])
            }
            10 => Expr::math(M::Clamp, vec![self.expr(ty, depth), self.expr(ty, 1), self.expr(ty, 1)]),
            11 if !whole => Expr::math(M::Sqrt, vec![self.expr(ty, depth)]),
            12 if !whole => Expr::math(M::Fma, vec![self.expr(ty, depth), self.expr(ty, depth), self.expr(ty, depth)]),
            13 | 14 => {
                let mut ops = vec![M::Abs, M::Sign, M::Floor, M::Ceil, M::Round, M::Trunc];
                if !whole {
                    ops.push(M::Fract);
                }
                let op = self.rng.pick(&ops);
                Expr::math(op, vec![self.expr(ty, depth)])
            }
            15 if !whole => {
                // Keeps values from all ending as infinity or NaN.
                let value = self.expr(ty, depth);
                let bound = self.splat(ty, 1000);
                let one = self.splat(ty, 1);
                Expr::select(value.clone().abs().lt(bound), value, one)
            }
            _ => self.leaf(ty),
        }
    }

    /// A variable, a load, a constant or a built-in.
    pub(super) fn leaf(&mut self, ty: Type) -> Expr {
        for _ in 0..3 {
            let found = match self.rng.below(8) {
                0..=3 => self.local(ty),
                4 | 5 => self.load(ty),
                6 => self.given(ty),
                _ => None,
            };
            if let Some(expr) = found {
                return expr;
            }
        }
        let literal = self.literal(ty.scalar);
        if ty.width == 1 {
            return literal.into();
        }
        let parts = if self.rng.chance(1, 3) {
            vec![literal.into()]
        } else {
            (0..ty.width).map(|_| self.literal(ty.scalar).into()).collect()
        };
        Expr::construct(data_type(ty), parts)
    }

    fn local(&mut self, ty: Type) -> Option<Expr> {
        let mut found = Vec::new();
        for local in &self.locals {
            let whole = Expr::var(&local.name);
            match &local.ty {
                LocalType::Value(own) if *own == ty => found.push((whole, None)),
                LocalType::Value(own) if own.scalar == ty.scalar && own.width > 1 => {
                    found.push((whole, Some(LocalType::Value(*own))));
                }
                LocalType::Array(element, _) | LocalType::Grid(element, ..) if *element == ty => {
                    found.push((whole, Some(local.ty.clone())));
                }
                LocalType::Struct(i) if self.structs[*i].holds(ty) => {
                    found.push((whole, Some(local.ty.clone())));
                }
                _ => {}
            }
        }
        if found.is_empty() {
            return None;
        }
        // Recent ones more often: they carry what was computed.
        let back = self.rng.below(found.len() as u32).min(self.rng.below(found.len() as u32)) as usize;
        let (whole, part) = found.swap_remove(found.len() - 1 - back);
        Some(match part {
            None => whole,
            Some(LocalType::Value(own)) => {
                let lanes = self.lanes(own.width, ty.width);
                Expr::Swizzle { value: Box::new(whole), lanes }
            }
            Some(LocalType::Array(_, count)) => {
                let index = self.index(count);
                Expr::Part { value: Box::new(whole), path: vec![Access::Index(index)] }
            }
            Some(LocalType::Grid(_, rows, columns)) => {
                let path = vec![Access::Index(self.index(rows)), Access::Index(self.index(columns))];
                Expr::Part { value: Box::new(whole), path }
            }
            Some(LocalType::Struct(i)) => {
                let path = self.path_into(i, ty)?;
                Expr::Part { value: Box::new(whole), path }
            }
        })
    }

    /// The way to a part of this type.
    fn path_into(&mut self, structure: usize, ty: Type) -> Option<Vec<Access>> {
        let StructInfo { members, array, .. } = self.structs[structure].clone();
        let mut fitting: Vec<u32> = (0..members.len()).filter(|&i| members[i] == ty).map(|i| i as u32).collect();
        let array = array.filter(|(_, element, _)| *element == ty);
        if array.is_some() {
            fitting.push(members.len() as u32);
        }
        if fitting.is_empty() {
            return None;
        }
        let member = self.rng.pick(&fitting);
        let mut path = vec![Access::Member(member)];
        if let (Some((_, _, count)), true) = (array, member == members.len() as u32) {
            path.push(Access::Index(self.index(count)));
        }
        Some(path)
    }

    /// The way to some part, and its type.
    pub(super) fn some_path(&mut self, structure: usize) -> (Vec<Access>, Type) {
        let StructInfo { members, array, .. } = self.structs[structure].clone();
        if let Some((_, element, count)) = array
            && self.rng.chance(1, 3)
        {
            return (vec![Access::Member(members.len() as u32), Access::Index(self.index(count))], element);
        }
        let member = self.rng.below(members.len() as u32);
        (vec![Access::Member(member)], members[member as usize])
    }

    /// An index into something of this length: mostly inside, at times far outside, of any integer type.
    pub(super) fn index(&mut self, length: u32) -> Expr {
        let index = match self.rng.below(8) {
            0 => Expr::u32(self.rng.below(length.max(1) + 2)),
            1 => self.leaf(Scalar::U32.into()),
            2 => return self.leaf(Scalar::I32.into()),
            3 if self.options.int64 => {
                let scalar = self.rng.pick(&[Scalar::U64, Scalar::I64]);
                return self.leaf(scalar.into());
            }
            4 => Expr::var("id"),
            5 if self.rng.chance(1, 2) => self.index_at_edges(length),
            5 => self.even_index(),
            _ => {
                let value = self.leaf(Scalar::U32.into());
                Expr::binary(BinaryOp::Rem, value, Expr::u32(length.max(1)))
            }
        };
        match self.rng.below(12) {
            0 => index.cast(DataType::I32),
            1 if self.options.int64 => index.cast(DataType::U64),
            _ => index,
        }
    }

    /// An index that grows evenly with the counter of a loop, where there is one, and leaves the buffer at times.
    fn even_index(&mut self) -> Expr {
        let counted = |local: &&Local| {
            !local.mutable
                && matches!(local.ty, LocalType::Value(ty) if ty == Scalar::U32.into())
                && local
                    .name
                    .as_str()
                    .strip_prefix('i')
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let Some(counter) = self.locals.iter().rev().find(counted).map(|local| Expr::var(&local.name)) else {
            return Expr::var("id");
        };
        let growth = match self.rng.below(4) {
            0 => counter * Expr::u32(self.rng.range(2, 5)),
            1 => counter * self.leaf(Scalar::U32.into()),
            _ => counter,
        };
        match self.rng.below(4) {
            0 => growth,
            1 => growth + self.leaf(Scalar::U32.into()),
            2 => Expr::var("id") + growth - Expr::u32(2),
            _ => Expr::var("id") + growth,
        }
    }

    /// An index that is even but at an edge: clamped, wrapped around, or a row or column of another.
    fn index_at_edges(&mut self, length: u32) -> Expr {
        let base = if self.rng.chance(1, 3) { self.even_index() } else { Expr::var("id") };
        let base = if self.rng.chance(1, 4) { base * Expr::u32(self.rng.range(2, 8)) } else { base };
        let by = Expr::u32(self.rng.below(7).wrapping_sub(3));
        let edge = match self.rng.below(3) {
            0 => self.uniform_u32(),
            1 => Expr::u32(1 << self.rng.range(1, 6)),
            _ => Expr::u32(length.max(1)),
        };
        let both = |op: MathOp, a: Expr, b: Expr| Expr::math(op, vec![a, b]);
        let signed = |value: Expr| value.cast(DataType::I32);
        match self.rng.below(7) {
            0 => both(MathOp::Min, base + by, edge),
            1 => both(MathOp::Max, base, edge.clone()) - edge,
            2 => {
                let least = both(MathOp::Max, signed(base + by), Expr::i32(0));
                both(MathOp::Min, least, signed(edge - Expr::u32(1))).cast(DataType::U32)
            }
            3 => Expr::binary(BinaryOp::Rem, base + edge.clone() + by, edge),
            4 => Expr::binary(BinaryOp::Rem, signed(base + by), signed(edge)).cast(DataType::U32),
            5 => Expr::binary(BinaryOp::Div, base + by, edge),
            _ => (base + by) & (edge - Expr::u32(1)),
        }
    }

    /// A load that can't race here.
    fn load(&mut self, ty: Type) -> Option<Expr> {
        let mut fitting = Vec::new();
        for (i, buffer) in self.buffers.iter().enumerate() {
            let readable = match buffer.role {
                Role::Input | Role::Uniform => true,
                Role::Own => true,
                // Plain and atomic accesses of one invocation don't race.
                Role::OwnAtomic => !self.in_function,
                Role::Shared => !self.in_function,
                Role::SharedAtomic(_) => !self.in_function && self.phase == Phase::Read,
                _ => false,
            };
            let fits = match &buffer.element {
                Element::Value(own) => *own == ty || (ty.width == 1 && own.scalar == ty.scalar),
                Element::Stored(_, own) => *own == ty,
                Element::Struct(s) => self.structs[*s].holds(ty),
            };
            if readable && fits {
                fitting.push(i);
            }
        }
        if fitting.is_empty() {
            return None;
        }
        let position = self.rng.pick(&fitting);
        let buffer = self.buffers[position].clone();
        let index = match buffer.role {
            Role::Input => self.index(buffer.length),
            Role::Uniform => Expr::u32(if self.rng.chance(1, 8) { 1 } else { 0 }),
            Role::Shared if self.phase == Phase::Own => self.own_index(Expr::Builtin(Builtin::LocalIndex), buffer.per),
            Role::Shared | Role::SharedAtomic(_) => self.index(buffer.length),
            _ => self.own_index(Expr::var("id"), buffer.per),
        };
        let path = match &buffer.element {
            Element::Value(own) if *own != ty => {
                if self.rng.chance(1, 2) {
                    let whole = Expr::load(&buffer.name, index);
                    let lanes = self.lanes(own.width, 1);
                    return Some(Expr::Swizzle { value: Box::new(whole), lanes });
                }
                vec![Access::Index(self.index(u32::from(own.width)))]
            }
            Element::Struct(s) => self.path_into(*s, ty)?,
            _ => Vec::new(),
        };
        Some(Expr::Load { buffer: buffer.name, index: Box::new(index), path })
    }

    /// Built-ins, lengths and specialization constants.
    fn given(&mut self, ty: Type) -> Option<Expr> {
        if ty.width > 1 {
            return None;
        }
        let mut found: Vec<Expr> = self
            .constants
            .iter()
            .filter(|constant| constant.default.data_type() == data_type(ty))
            .filter(|constant| constant.name != "size")
            .map(|constant| Expr::constant(&constant.name))
            .collect();
        if ty.scalar == Scalar::U32 {
            let axis = self.rng.below(3) as u8;
            let builtin = self.rng.pick(&[
                Builtin::GlobalId(axis),
                Builtin::LocalId(axis),
                Builtin::WorkgroupId(axis),
                Builtin::NumWorkgroups(axis),
                Builtin::WorkgroupSize(axis),
                Builtin::LocalIndex,
            ]);
            found.push(Expr::Builtin(builtin));
            let open: Vec<_> = self
                .buffers
                .iter()
                .filter(|buffer| matches!(buffer.role, Role::Input | Role::Own | Role::Output))
                .map(|buffer| Expr::len(&buffer.name))
                .collect();
            if !open.is_empty() && self.rng.chance(1, 2) {
                found.push(self.rng.pick(&open));
            }
        }
        if found.is_empty() { None } else { Some(self.rng.pick(&found)) }
    }

    /// The same for the whole workgroup, and plainly so.
    pub(super) fn uniform_u32(&mut self) -> Expr {
        let mut found = vec![
            Expr::u32(self.rng.below(4)),
            Expr::workgroup_id(self.rng.below(3) as u8),
            Expr::Builtin(Builtin::NumWorkgroups(0)),
        ];
        found.extend(
            self.constants
                .iter()
                .filter(|constant| constant.default.data_type() == DataType::U32)
                .map(|constant| Expr::constant(&constant.name)),
        );
        for buffer in &self.buffers {
            if matches!(buffer.role, Role::Uniform)
                && let Element::Value(ty) = buffer.element
                && ty == Type::from(Scalar::U32)
            {
                found.push(Expr::load(&buffer.name, Expr::u32(0)));
            }
        }
        let first = self.rng.pick(&found);
        if self.rng.chance(1, 2) { first + self.rng.pick(&found) } else { first }
    }

    /// A value of an inexact function, with arguments in its domain, for an output of its own.
    pub(super) fn math_call(&mut self, ty: Type) -> Expr {
        use MathOp as M;
        let op = self.rng.pick(&[
            M::InverseSqrt,
            M::Exp,
            M::Exp2,
            M::Log,
            M::Log2,
            M::Pow,
            M::Sin,
            M::Cos,
            M::Tan,
            M::Asin,
            M::Acos,
            M::Atan,
            M::Atan2,
            M::Sinh,
            M::Cosh,
            M::Tanh,
            M::Asinh,
            M::Acosh,
            M::Atanh,
        ]);
        let mut args: Vec<Expr> = (0..op.arity()).map(|_| self.expr(ty, 2)).collect();
        if self.options.fast {
            return self.fast_call(ty, op, args);
        }
        if ty.scalar == Scalar::F64 && matches!(op, M::Sin | M::Cos | M::Tan) {
            // The table has no bound beyond.
            let (bound, one) = (self.splat(ty, 1 << 30), self.splat(ty, 1));
            let x = args.remove(0);
            args.push(Expr::select(x.clone().abs().lt(bound), x, one));
        }
        Expr::math(op, args)
    }

    /// A function, a square root or a quotient for fast arithmetic: where WGSL says how near the result is.
    fn fast_call(&mut self, ty: Type, op: MathOp, mut args: Vec<Expr>) -> Expr {
        use MathOp as M;
        let (one, two) = (self.splat(ty, 1), self.splat(ty, 2));
        let within = |this: &mut Self, value: Expr, bound: u32| {
            let high = this.splat(ty, bound);
            Expr::math(M::Clamp, vec![value, Expr::unary(UnaryOp::Neg, high.clone()), high])
        };
        let at_least_one = |value: Expr| Expr::math(M::Max, vec![value.abs(), one.clone()]);
        let first = args.remove(0);
        if self.rng.chance(1, 6) {
            return Expr::math(M::Sqrt, vec![first.abs()]);
        }
        if self.rng.chance(1, 6) {
            let below = at_least_one(self.expr(ty, 2));
            return Expr::binary(BinaryOp::Div, first, below);
        }
        let first = match op {
            M::InverseSqrt | M::Log | M::Log2 | M::Acosh => at_least_one(first),
            M::Exp | M::Exp2 | M::Sinh | M::Cosh | M::Tanh => within(self, first, 9),
            M::Sin | M::Cos => within(self, first, 3),
            M::Tan | M::Asin | M::Acos => within(self, first, 1),
            M::Atanh => Expr::binary(BinaryOp::Div, within(self, first, 1), two),
            M::Pow => Expr::math(M::Min, vec![at_least_one(first), self.splat(ty, 9)]),
            _ => first,
        };
        let rest: Vec<Expr> = args.into_iter().map(|arg| within(self, arg, 4)).collect();
        Expr::math(op, [vec![first], rest].concat())
    }

    /// A subgroup operation where a subgroup is together. In the mode for any size, one whose value does not depend on the size.
    pub(super) fn subgroup_value(&mut self, ty: Type) -> Expr {
        use SubgroupOp as S;
        let lane = || Expr::Builtin(Builtin::SubgroupLane);
        let value = self.expr(ty, 2);
        let call = |op: SubgroupOp, value: Expr, argument: Option<Expr>| Expr::Subgroup {
            op,
            value: Box::new(value),
            argument: argument.map(Box::new),
        };
        let integer = !ty.scalar.is_float() && ty.scalar != Scalar::Bool;
        if self.options.subgroups == Subgroups::FixedSize && self.rng.chance(1, 2) && ty.scalar != Scalar::Bool {
            let mut ops = vec![S::Min, S::Max, S::BroadcastFirst];
            if integer {
                ops.extend([S::Add, S::Mul, S::And, S::Or, S::Xor, S::InclusiveAdd, S::ExclusiveAdd]);
                ops.extend([S::InclusiveMul, S::ExclusiveMul]);
            }
            if ty.scalar.is_float() {
                // The order of the comparisons shows with NaN.
                let value = self.without_nan(value, ty);
                return call(S::BroadcastFirst, value, None);
            }
            let shuffles = [S::Shuffle, S::ShuffleXor, S::ShuffleUp, S::ShuffleDown];
            if self.rng.chance(1, 3) {
                let op = self.rng.pick(&shuffles);
                let argument = Expr::binary(BinaryOp::Rem, self.expr(Scalar::U32.into(), 1), Expr::u32(40));
                return call(op, value, Some(argument));
            }
            return call(self.rng.pick(&ops), value, None);
        }
        match self.rng.below(3) {
            0 if integer => call(S::InclusiveAdd, value.clone(), None) - call(S::ExclusiveAdd, value, None),
            1 if integer && ty.width == 1 => {
                let broadcast = call(S::Broadcast, value.clone(), Some(Expr::u32(0)));
                broadcast - call(S::BroadcastFirst, value, None)
            }
            _ if ty.scalar == Scalar::Bool && ty.width == 1 => {
                let all = call(S::All, value.clone(), None);
                // True in all lanes implies true in some.
                Expr::binary(BinaryOp::Or, !all, call(S::Any, value, None))
            }
            _ if ty.scalar == Scalar::Bool => value,
            _ => call(S::Shuffle, value, Some(lane())),
        }
    }

    pub(super) fn struct_type_of(&self, structure: usize) -> DataType {
        DataType::Handle(TypeId(self.structs[structure].id))
    }
}
