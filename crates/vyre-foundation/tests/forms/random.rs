//! Random programs for the round trips: every kind of item, with no regard to whether it makes sense.

use half::f16;
use smallvec::SmallVec;
use vyre_foundation::ir::*;

/// How many random cases to try: `VYRE_RANDOM`, else `default`.
pub(crate) fn cases(default: u64) -> u64 {
    std::env::var("VYRE_RANDOM").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A small deterministic generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.word() & 1 == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    fn list<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| one(self)).collect()
    }

    pub(crate) fn name(&mut self) -> Name {
        let names = [
            "a",
            "b",
            "c",
            "x",
            "i",
            "n",
            "out",
            "tmp_1",
            "let",
            "f32",
            "len",
            "main",
            "",
            "two words",
            "quo\"te",
            "back\\slash",
            "line\nbreak",
            "ünï",
            "9lives",
            "$",
            "vec2",
            "true",
            "type",
            "inf",
            "_",
            "step",
            "compare",
            "select",
            "min",
            "size",
            "array",
            "output",
        ];
        self.pick(&names).into()
    }

    pub(crate) fn ty(&mut self, depth: u32) -> DataType {
        let plain = [
            DataType::U32,
            DataType::I32,
            DataType::U64,
            DataType::Vec2U32,
            DataType::Vec4U32,
            DataType::Bool,
            DataType::Bytes,
            DataType::F16,
            DataType::BF16,
            DataType::F32,
            DataType::F64,
            DataType::Tensor,
            DataType::U8,
            DataType::U16,
            DataType::I8,
            DataType::I16,
            DataType::I64,
            DataType::F8E4M3,
            DataType::F8E5M2,
            DataType::I4,
            DataType::FP4,
            DataType::NF4,
        ];
        if depth == 0 || self.below(3) > 0 {
            return self.pick(&plain);
        }
        let axes = |this: &mut Self| -> SmallVec<[u32; 4]> { this.list(5, |r| r.word() as u32).into() };
        let element = Box::new(self.ty(depth - 1));
        match self.below(9) {
            0 => DataType::Array { element_size: self.word() as u32 },
            1 => DataType::Handle(TypeId(self.below(4) as u32)),
            2 => DataType::Vec { element, count: self.below(6) as u32 },
            3 => DataType::TensorShaped { element, shape: axes(self) },
            4 => DataType::SparseCsr { element },
            5 => DataType::SparseCoo { element },
            6 => DataType::SparseBsr { element, block_rows: self.word() as u32, block_cols: 3 },
            7 => DataType::DeviceMesh { axes: axes(self) },
            _ => DataType::Opaque(TypeId(self.word() as u32)),
        }
    }

    pub(crate) fn literal(&mut self) -> Literal {
        let bits = match self.below(4) {
            0 => self.word(),
            1 => self.below(10) as u64,
            2 => (self.below(2000) as f32 / 16.0 - 20.0).to_bits().into(),
            _ => self.pick(&[
                0x7FC0_0001,
                0x7F80_0000,
                0xFF80_0000,
                0x8000_0000,
                u64::MAX,
                1 << 63,
                0x7FF0_0000_0000_0000,
                1,
            ]),
        };
        match self.below(8) {
            0 => Literal::Bool(bits & 1 == 1),
            1 => Literal::U32(bits as u32),
            2 => Literal::I32(bits as i32),
            3 => Literal::U64(bits),
            4 => Literal::I64(bits as i64),
            5 => Literal::F16(f16::from_bits((bits >> 8) as u16)),
            6 => Literal::F32(f32::from_bits(bits as u32)),
            _ => Literal::F64(f64::from_bits(bits ^ bits << 32)),
        }
    }

    fn boxed(&mut self, depth: u32) -> Box<Expr> {
        Box::new(self.expr(depth))
    }

    fn path(&mut self, depth: u32) -> Vec<Access> {
        self.list(
            2,
            |r| {
                if r.flip() { Access::Member(r.pick(&[0, 1, 2, u32::MAX])) } else { Access::Index(r.expr(depth)) }
            },
        )
    }

    pub(crate) fn expr(&mut self, depth: u32) -> Expr {
        if depth == 0 {
            return match self.below(5) {
                0 => Expr::Literal(self.literal()),
                1 => Expr::Var(self.name()),
                2 => Expr::Constant(self.name()),
                3 => Expr::Length(self.name()),
                _ => {
                    let axis = self.pick(&[0, 1, 2, 3, 255]);
                    Expr::Builtin(self.pick(&[
                        Builtin::GlobalId(axis),
                        Builtin::LocalId(axis),
                        Builtin::WorkgroupId(axis),
                        Builtin::NumWorkgroups(axis),
                        Builtin::WorkgroupSize(axis),
                        Builtin::LocalIndex,
                        Builtin::SubgroupSize,
                        Builtin::SubgroupLane,
                        Builtin::SubgroupId,
                        Builtin::NumSubgroups,
                    ]))
                }
            };
        }
        let d = depth - 1;
        match self.below(14) {
            0 => Expr::Load { buffer: self.name(), index: self.boxed(d), path: self.path(d) },
            1 => Expr::Unary { op: self.pick(UnaryOp::ALL), value: self.boxed(d) },
            2 | 3 => Expr::Binary { op: self.pick(BinaryOp::ALL), left: self.boxed(d), right: self.boxed(d) },
            4 => Expr::Math { op: self.pick(MathOp::ALL), args: self.list(4, |r| r.expr(d)) },
            5 => Expr::Select { cond: self.boxed(d), yes: self.boxed(d), no: self.boxed(d) },
            6 => Expr::Cast { to: self.ty(2), value: self.boxed(d) },
            7 => Expr::BitCast { to: self.ty(2), value: self.boxed(d) },
            8 => Expr::Construct { ty: self.ty(2), parts: self.list(3, |r| r.expr(d)) },
            9 => Expr::Swizzle { value: self.boxed(d), lanes: self.list(5, |r| r.pick(&[0, 1, 2, 3, 9])).into() },
            10 => Expr::Part { value: self.boxed(d), path: self.path(d) },
            11 => Expr::Subgroup {
                op: self.pick(SubgroupOp::ALL),
                value: self.boxed(d),
                argument: if self.flip() { Some(self.boxed(d)) } else { None },
            },
            12 => Expr::MatrixMultiplyAdd {
                kind: self.pick(MatrixKind::ALL),
                a: self.boxed(d),
                b: self.boxed(d),
                c: self.boxed(d),
            },
            _ => self.expr(0),
        }
    }

    fn maybe_expr(&mut self, depth: u32) -> Option<Expr> {
        if self.flip() { Some(self.expr(depth)) } else { None }
    }

    pub(crate) fn nodes(&mut self, depth: u32) -> Vec<Node> {
        self.list(4, |r| r.node(depth))
    }

    pub(crate) fn node(&mut self, depth: u32) -> Node {
        let e = 3;
        let d = depth.saturating_sub(1);
        match self.below(if depth == 0 { 11 } else { 17 }) {
            0 => Node::Let { name: self.name(), value: self.expr(e) },
            1 => Node::Var { name: self.name(), ty: self.ty(2), init: self.maybe_expr(e) },
            2 => Node::Assign { name: self.name(), path: self.path(e), value: self.expr(e) },
            3 => Node::Store { buffer: self.name(), index: self.expr(e), path: self.path(e), value: self.expr(e) },
            4 => Node::Break,
            5 => Node::Continue,
            6 => Node::Return(self.maybe_expr(e)),
            7 => Node::Barrier(self.pick(&[BarrierScope::Workgroup, BarrierScope::Storage])),
            8 | 9 => Node::Atomic {
                op: self.pick(AtomicOp::ALL),
                buffer: self.name(),
                index: self.expr(e),
                path: self.path(e),
                value: self.maybe_expr(e),
                compare: self.maybe_expr(e),
                result: if self.flip() { Some(self.name()) } else { None },
            },
            10 => Node::Call {
                function: self.name(),
                args: self.list(3, |r| r.expr(e)),
                result: if self.flip() { Some(self.name()) } else { None },
            },
            11 | 12 => Node::If { cond: self.expr(e), then: self.nodes(d), otherwise: self.nodes(d) },
            13 => Node::Switch {
                selector: self.expr(e),
                cases: self.list(3, |r| Case { values: r.list(3, Self::literal), default: r.flip(), body: r.nodes(d) }),
            },
            14 => Node::For {
                var: self.name(),
                from: self.expr(e),
                to: self.expr(e),
                step: self.pick(&[0, 1, 2, u32::MAX]),
                body: self.nodes(d),
            },
            15 => Node::Loop { body: self.nodes(d), continuing: self.nodes(d), break_if: self.maybe_expr(e) },
            _ => Node::Block(self.nodes(d)),
        }
    }

    fn count(&mut self) -> Count {
        match self.below(3) {
            0 => Count::Runtime,
            1 => Count::Fixed(self.pick(&[0, 1, 64, u32::MAX])),
            _ => Count::Constant(self.boxed(2)),
        }
    }

    pub(crate) fn program(&mut self) -> Program {
        let types = self.list(3, |r| {
            if r.flip() {
                TypeDef::Struct {
                    name: r.name(),
                    members: r.list(3, |r| Member { name: r.name(), ty: r.ty(2), offset: r.below(64) as u32 }),
                    size: r.below(64) as u32,
                    align: r.below(17) as u32,
                }
            } else {
                TypeDef::Array { element: r.ty(2), count: r.count(), stride: r.below(64) as u32 }
            }
        });
        let kinds =
            [BufferKind::Read, BufferKind::ReadWrite, BufferKind::Output, BufferKind::Uniform, BufferKind::Workgroup];
        let buffers = self.list(4, |r| BufferDecl {
            name: r.name(),
            group: r.pick(&[0, 0, 1, u32::MAX]),
            binding: r.below(5) as u32,
            kind: r.pick(&kinds),
            ty: r.ty(3),
            count: r.count(),
        });
        let size = [self.below(70) as u32, self.below(3) as u32, self.pick(&[1, u32::MAX])];
        let mut program = Program::wrapped(buffers, size, self.nodes(3)).with_types(types);
        if self.flip() {
            program = program.with_math(Math::Fast);
        }
        if self.flip() {
            program = program.with_name(self.name());
        }
        if self.flip() {
            program = program
                .with_constants(self.list(3, |r| SpecConstant { name: r.name(), default: r.literal() }))
                .with_functions(self.list(2, |r| Function {
                    name: r.name(),
                    params: r.list(3, |r| Param { name: r.name(), ty: r.ty(2) }),
                    result: if r.flip() { Some(r.ty(2)) } else { None },
                    body: r.nodes(2),
                }));
        }
        if self.flip() {
            program = program.with_workgroup_exprs([self.maybe_expr(2), self.maybe_expr(2), None]);
        }
        if self.flip() {
            program = program.with_domain([self.expr(2), self.expr(1), self.expr(0)]);
        }
        program
    }
}
