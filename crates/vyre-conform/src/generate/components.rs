//! Kernels that work on vectors of four component by component, as an optimiser that has an invocation for each component looks for; and some that
//! nearly do.
//!
//! Places along x say which vector an invocation has. What else there is — limits, rounds, ways — is of rows, of the workgroup and of words that are
//! loaded at such places.

use vyre_foundation::ir::{BarrierScope, BinaryOp, Builtin, Expr, Literal, MathOp, Name, Node, Program};
use vyre_foundation::kernel::{Scalar, Type};

use super::value::data_type;
use super::{Case, Element, Floats, Generator, Role};

/// What such a kernel has.
struct Parts {
    vector: Type,
    data: Name,
    /// Scalars of the vectors' kind, and numbers.
    words: Name,
    numbers: Name,
    out: Name,
    own: Name,
    /// Vectors in workgroup memory, and words.
    quads: Name,
    tile: Name,
    /// Variables that hold vectors, and numbers that neighbours along x have in common.
    vectors: Vec<Name>,
    shared: Vec<Name>,
    /// Steps that may still be made, and loops around.
    budget: u32,
    loops: u32,
    /// Steps that another order of components, or the place, has a part in.
    mixed: bool,
    /// Nothing from here on needs the whole workgroup.
    may_return: bool,
}

const TILE: u32 = 48;

impl Generator {
    pub(super) fn components_case(&mut self) -> Case {
        self.workgroup = [
            self.rng.pick(&[1, 2, 4, 4, 8, 8, 16, 32, 64]),
            self.rng.pick(&[1, 1, 1, 2, 4, 8]),
            self.rng.pick(&[1, 1, 1, 1, 1, 2]),
        ];
        while self.workgroup.iter().product::<u32>() > 128 {
            let axis = if self.workgroup[0] > 8 { 0 } else { 1 };
            self.workgroup[axis] /= 2;
        }
        self.grid =
            [self.rng.range(1, 4), self.rng.weighted(&[0, 3, 1, 1]) as u32, self.rng.weighted(&[0, 4, 1]) as u32];
        let (specialization, workgroup_exprs) = self.spec_constants();
        let mut parts = self.parts_of_components();
        let decls = self.declare_buffers();
        let mut body = vec![Node::let_bind("id", self.id_expr())];
        for _ in 0..self.rng.range(1, 3) {
            body.push(self.vector_variable(&mut parts));
        }
        parts.budget = self.rng.range(2, 10);
        if self.rng.chance(1, 2) {
            body.extend(self.tiles_of_vectors(&mut parts));
        }
        parts.may_return = true;
        parts.budget = self.rng.range(2, 12);
        body.extend(self.vector_steps(&mut parts));
        let last = self.vector(&mut parts, 2);
        body.push(Node::store(&parts.out, Expr::var("id"), last));
        if self.rng.chance(1, 2) {
            let last = self.vector(&mut parts, 2);
            body.push(Node::store(&parts.own, Expr::var("id"), last));
        }
        let inputs = self.inputs(&decls);
        let mut program = Program::wrapped(decls, self.workgroup, body)
            .with_constants(std::mem::take(&mut self.constants))
            .with_workgroup_exprs(workgroup_exprs);
        let mut grid = Some(self.grid);
        if self.rng.chance(1, 4) {
            let domain = [0, 1, 2].map(|axis| {
                let whole = self.workgroup[axis] * self.grid[axis];
                Expr::u32(whole - self.rng.below(self.workgroup[axis]))
            });
            program = program.with_domain(domain);
            grid = None;
        }
        Case { seed: 0, program, inputs, specialization, grid }
    }

    fn parts_of_components(&mut self) -> Parts {
        let mut scalars = vec![Scalar::U32, Scalar::I32];
        // What fast arithmetic may differ by, a sum of many terms may differ by more.
        if self.options.floats == Floats::Whole || self.options.floats == Floats::Exact && !self.options.fast {
            scalars.extend([Scalar::F32; 2]);
        }
        let vector = Type { scalar: self.rng.pick(&scalars), width: 4 };
        let all = self.invocations();
        let each: u32 = self.workgroup.iter().product();
        let length = match self.rng.below(6) {
            0 => self.rng.range(1, 9),
            1 => all.saturating_sub(self.rng.range(1, 3)).max(1),
            _ => all + self.rng.below(9),
        };
        let mut add = |role: Role, ty: Type, length: u32| {
            self.buffer(role, Element::Value(ty), length, 1);
            self.buffers[self.buffers.len() - 1].name.clone()
        };
        let data = add(Role::Input, vector, length);
        let words = add(Role::Input, vector.scalar.into(), TILE);
        let numbers = add(Role::Input, Scalar::U32.into(), 24);
        let out = add(Role::Output, vector, all);
        let own = add(Role::Own, vector, all);
        let quads = add(Role::Shared, vector, each);
        let tile = add(Role::Shared, vector.scalar.into(), TILE);
        Parts {
            vector,
            data,
            words,
            numbers,
            out,
            own,
            quads,
            tile,
            vectors: Vec::new(),
            shared: Vec::new(),
            budget: 0,
            loops: 0,
            mixed: self.rng.chance(1, 5),
            may_return: false,
        }
    }

    fn vector_variable(&mut self, parts: &mut Parts) -> Node {
        let name = self.fresh("v");
        let value = self.vector(parts, 2);
        parts.vectors.push(name.clone());
        Node::var(name, data_type(parts.vector), value)
    }

    /// A vector whose components depend on each other nowhere.
    fn vector(&mut self, parts: &mut Parts, depth: u32) -> Expr {
        let ty = parts.vector;
        if parts.mixed && self.rng.chance(1, 12) {
            let value = self.vector(parts, depth.saturating_sub(1));
            return match self.rng.below(3) {
                0 => Expr::Swizzle { value: Box::new(value), lanes: self.lanes(4, 4) },
                1 => Expr::construct(data_type(ty), vec![value.lane(self.rng.below(4) as u8)]),
                _ => {
                    let literals = (0..4).map(|_| Expr::from(self.literal(ty.scalar))).collect();
                    let steps = Expr::construct(data_type(ty), literals);
                    let sum = value + steps;
                    self.tame(sum, ty)
                }
            };
        }
        if depth == 0 || self.rng.chance(1, 5) {
            return match self.rng.below(8) {
                0 => Expr::construct(data_type(ty), vec![Expr::from(self.literal(ty.scalar))]),
                1 | 2 => {
                    let index = self.row_number(parts);
                    Expr::construct(data_type(ty), vec![Expr::load(&parts.words, index)])
                }
                3 if !parts.vectors.is_empty() => Expr::var(self.rng.pick(&parts.vectors)),
                4 if !parts.vectors.is_empty() => Expr::var(self.rng.pick(&parts.vectors)),
                5 => Expr::load(&parts.own, Expr::var("id")),
                _ => {
                    let index = self.vector_place(parts);
                    Expr::load(&parts.data, index)
                }
            };
        }
        let (a, b) = (self.vector(parts, depth - 1), self.vector(parts, depth - 1));
        let value = match self.rng.below(8) {
            0 => Expr::binary(BinaryOp::Sub, a, b),
            1 => Expr::binary(BinaryOp::Mul, a, b),
            2 if !ty.scalar.is_float() => Expr::binary(BinaryOp::Xor, a, b),
            3 if !ty.scalar.is_float() => Expr::math(self.rng.pick(&[MathOp::Min, MathOp::Max]), vec![a, b]),
            4 if !ty.scalar.is_float() => {
                let by = self.splat(Type { scalar: Scalar::U32, width: 4 }, 3);
                Expr::binary(self.rng.pick(&[BinaryOp::Shl, BinaryOp::Shr]), a, by)
            }
            5 => {
                let test =
                    Expr::binary(self.rng.pick(&[BinaryOp::Lt, BinaryOp::Ge, BinaryOp::Ne]), a.clone(), b.clone());
                Expr::select(test, b, a)
            }
            6 => {
                let test = self.way(parts);
                Expr::select(test, b, a)
            }
            _ => a + b,
        };
        self.tame(value, ty)
    }

    /// A number that neighbours along x have in common.
    fn row_number(&mut self, parts: &Parts) -> Expr {
        let number = Expr::u32;
        match self.rng.below(8) {
            0 | 1 => number(self.rng.below(20)),
            2 => Expr::global_id(1),
            3 => {
                Expr::Builtin(self.rng.pick(&[Builtin::WorkgroupId(0), Builtin::NumWorkgroups(0), Builtin::LocalId(2)]))
            }
            4 => Expr::local_id(1) * number(self.rng.range(1, 9)) + number(self.rng.below(3)),
            5 => Expr::binary(BinaryOp::Rem, Expr::load(&parts.numbers, number(self.rng.below(26))), number(13)),
            6 if !parts.shared.is_empty() => Expr::var(self.rng.pick(&parts.shared)) * number(self.rng.range(1, 5)),
            _ if !parts.shared.is_empty() => Expr::var(self.rng.pick(&parts.shared)),
            _ => number(self.rng.below(9)),
        }
    }

    /// A place that is that of the invocation along x and something more, at times so much that it wraps.
    fn vector_place(&mut self, parts: &Parts) -> Expr {
        let place = match self.rng.below(5) {
            0 => Expr::global_id(0),
            1 => Expr::local_id(0),
            2 if parts.mixed => Expr::var("id") * Expr::u32(self.rng.range(1, 3)),
            _ => Expr::var("id"),
        };
        let by = self.row_number(parts);
        match self.rng.below(12) {
            0 | 1 => place + by,
            2 => by + place,
            3 => place - by,
            4 => {
                let far = 1u32 << self.rng.range(27, 31);
                place + Expr::u32(far.wrapping_mul(self.rng.range(1, 7)).wrapping_sub(self.rng.below(3)))
            }
            5 => {
                let far = Expr::load(&parts.numbers, Expr::u32(self.rng.below(24)));
                place + (far << Expr::u32(self.rng.below(32)))
            }
            6 => {
                let signed = |value: Expr| value.cast(vyre_foundation::ir::DataType::I32);
                let sum = signed(place) - signed(by);
                if self.rng.chance(1, 2) { sum.cast(vyre_foundation::ir::DataType::U32) } else { sum }
            }
            _ => place,
        }
    }

    /// What neighbours along x have in common, or a limit of their place.
    fn way(&mut self, parts: &Parts) -> Expr {
        let place = if self.rng.chance(1, 2) { Expr::global_id(0) } else { Expr::var("id") };
        let number = self.row_number(parts);
        let limit = match self.rng.below(5) {
            0 => Expr::len(&parts.data),
            1 => Expr::load(&parts.numbers, Expr::u32(self.rng.below(24))),
            2 => Expr::u32(1 << self.rng.range(0, 31)),
            _ => Expr::u32(self.rng.below(self.invocations() + 2)),
        };
        match self.rng.below(9) {
            0 | 1 => Expr::binary(BinaryOp::Lt, place, limit),
            2 => Expr::binary(BinaryOp::Ge, place, limit),
            3 => Expr::binary(self.rng.pick(&[BinaryOp::Gt, BinaryOp::Le]), limit, place),
            4 => !Expr::binary(BinaryOp::Lt, place, limit),
            5 if parts.mixed => Expr::binary(BinaryOp::Eq, place, number),
            6 => Expr::binary(BinaryOp::Ne, number & Expr::u32(3), Expr::u32(self.rng.below(4))),
            _ => Expr::binary(BinaryOp::Gt, number, Expr::u32(self.rng.below(8))),
        }
    }

    fn vector_steps(&mut self, parts: &mut Parts) -> Vec<Node> {
        let (vectors, shared) = (parts.vectors.len(), parts.shared.len());
        let mut nodes = Vec::new();
        while parts.budget > 0 {
            parts.budget -= 1;
            nodes.extend(self.vector_step(parts));
            if parts.loops > 0 && self.rng.chance(1, 3) {
                break;
            }
        }
        parts.vectors.truncate(vectors);
        parts.shared.truncate(shared);
        nodes
    }

    fn vector_step(&mut self, parts: &mut Parts) -> Vec<Node> {
        match self.rng.below(12) {
            0 => vec![self.vector_variable(parts)],
            1 => {
                let value = self.vector(parts, 2);
                let place = if self.rng.chance(1, 6) { self.far_place() } else { Expr::var("id") };
                vec![Node::store(self.rng.pick(&[parts.own.clone(), parts.out.clone()]), place, value)]
            }
            2 | 3 => {
                let test = self.way(parts);
                let then = self.vector_steps(parts);
                let otherwise = if self.rng.chance(1, 2) { self.vector_steps(parts) } else { Vec::new() };
                vec![Node::if_else(test, then, otherwise)]
            }
            4 | 5 if parts.loops < 2 => vec![self.vector_rounds(parts)],
            6 if parts.loops < 2 => self.rounds_left_early(parts),
            7 if parts.may_return && self.rng.chance(1, 2) => {
                vec![Node::if_then(self.way(parts), vec![Node::Return(None)])]
            }
            _ if parts.vectors.is_empty() => vec![self.vector_variable(parts)],
            _ => {
                let name = self.rng.pick(&parts.vectors);
                vec![Node::assign(name, self.vector(parts, 3))]
            }
        }
    }

    /// A place that is outside for all, so that nothing races.
    fn far_place(&mut self) -> Expr {
        let far = self.rng.pick(&[0x4000_0000, 0x8000_0000, 0xc000_0000, 0x2000_0000, 0x1fff_fffe, 0xbfff_ff00]);
        Expr::var("id") + Expr::u32(far)
    }

    fn vector_rounds(&mut self, parts: &mut Parts) -> Node {
        let each = self.fresh("i");
        let to = match self.rng.below(3) {
            0 => Expr::binary(BinaryOp::Rem, self.row_number(parts), Expr::u32(5)),
            _ => Expr::u32(self.rng.range(1, 9)),
        };
        parts.shared.push(each.clone());
        parts.loops += 1;
        let mut body = self.vector_steps(parts);
        if self.rng.chance(1, 4) {
            let leave = if self.rng.chance(1, 2) { Node::Break } else { Node::Continue };
            body.insert(0, Node::if_then(self.way(parts), vec![leave]));
        }
        parts.loops -= 1;
        parts.shared.pop();
        let step = self.rng.range(1, 2);
        Node::For { var: each, from: Expr::u32(self.rng.below(2)), to, step, body }
    }

    fn rounds_left_early(&mut self, parts: &mut Parts) -> Vec<Node> {
        let each = self.fresh("i");
        let most = self.rng.range(1, 6);
        let here = || Expr::var(&each);
        parts.shared.push(each.clone());
        parts.loops += 1;
        let mut body = vec![Node::if_then(Expr::binary(BinaryOp::Ge, here(), Expr::u32(most)), vec![Node::Break])];
        body.push(Node::assign(&each, here() + Expr::u32(1)));
        if self.rng.chance(1, 2) {
            body.push(Node::if_then(self.way(parts), vec![Node::Break]));
        }
        body.extend(self.vector_steps(parts));
        parts.loops -= 1;
        parts.shared.pop();
        vec![Node::var(&each, Scalar::U32.data_type(), Expr::from(Literal::U32(0))), Node::forever(body)]
    }

    /// Workgroup memory that all fill, and then read.
    fn tiles_of_vectors(&mut self, parts: &mut Parts) -> Vec<Node> {
        let each = self.fresh("k");
        parts.shared.push(each.clone());
        let index = || Expr::Builtin(Builtin::LocalIndex);
        let all: u32 = self.workgroup.iter().product();
        let mut body = Vec::new();
        let (fills, words) = (self.rng.chance(3, 4), self.rng.chance(3, 4));
        if words {
            let (round, at) = (self.fresh("i"), self.fresh("a"));
            let place = match self.rng.below(3) {
                0 => {
                    Expr::binary(BinaryOp::Rem, Expr::var(&round), Expr::u32(6)) * Expr::u32(TILE / 6)
                        + Expr::binary(BinaryOp::Div, Expr::var(&round), Expr::u32(6))
                }
                _ => Expr::var(&round),
            };
            let value = Expr::load(&parts.words, Expr::var(&at) * Expr::u32(self.rng.range(1, 3)) + Expr::var(&each));
            let fill = vec![Node::let_bind(&at, Expr::var(&round)), Node::store(&parts.tile, place, value)];
            body.push(Node::For { var: round, from: index(), to: Expr::u32(TILE), step: all, body: fill });
        }
        if fills {
            let value = self.vector(parts, 2);
            body.push(Node::store(&parts.quads, index(), value));
        }
        body.push(Node::Barrier(BarrierScope::Workgroup));
        for _ in 0..self.rng.range(1, 3) {
            let name = self.rng.pick(&parts.vectors);
            let more = self.vector(parts, 1);
            let from_quads = fills && self.rng.chance(1, 2);
            let value = match from_quads {
                true => {
                    let row = Expr::u32(self.rng.below(self.workgroup[1]) * self.workgroup[0]);
                    let row =
                        if self.rng.chance(1, 2) { row } else { Expr::u32(self.workgroup[0]) * Expr::local_id(1) };
                    let place = Expr::local_id(0) + row;
                    Expr::load(&parts.quads, place)
                }
                false if words => {
                    let place = self.row_number(parts);
                    Expr::construct(data_type(parts.vector), vec![Expr::load(&parts.tile, place)])
                }
                false => self.vector(parts, 1),
            };
            let sum = Expr::var(&name) + self.tame(value * more, parts.vector);
            let sum = self.tame(sum, parts.vector);
            body.push(Node::assign(name, sum));
        }
        body.push(Node::Barrier(BarrierScope::Workgroup));
        parts.shared.pop();
        vec![Node::For { var: each, from: Expr::u32(0), to: Expr::u32(self.rng.range(1, 3)), step: 1, body }]
    }
}
