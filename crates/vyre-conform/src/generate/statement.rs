//! Random statements.

use vyre_foundation::ir::{
    Access, AtomicOp, BarrierScope, BinaryOp, Builtin, Case, DataType, Expr, Literal, Name, Node, SubgroupOp, TypeId,
};
use vyre_foundation::kernel::{Scalar, Type};

use super::value::{data_type, type_of};
use super::{Element, Floats, Generator, Local, LocalType, Phase, Role, StructInfo, Subgroups};

impl Generator {
    /// Statements until the budget is spent, with names of their own.
    fn statements(&mut self) -> Vec<Node> {
        let scope = self.locals.len();
        let nodes = self.open_statements();
        self.locals.truncate(scope);
        nodes
    }

    /// Statements until the budget is spent, whose names stay visible.
    pub(super) fn open_statements(&mut self) -> Vec<Node> {
        let mut nodes = Vec::new();
        while self.budget > 0 {
            nodes.extend(self.statement());
        }
        nodes
    }

    /// A nested list of a few statements.
    fn nested(&mut self, most: u32) -> Vec<Node> {
        let share = self.rng.range(1, most.max(1)).min(self.budget);
        let rest = self.budget - share;
        self.budget = share;
        let nodes = self.statements();
        self.budget = rest;
        nodes
    }

    /// One step: usually one node, at times a few that belong together.
    fn statement(&mut self) -> Vec<Node> {
        self.budget = self.budget.saturating_sub(1);
        let has = |generator: &Generator, role: fn(Role) -> bool| generator.buffers.iter().any(|b| role(b.role));
        let shared = !self.in_function && has(self, |role| matches!(role, Role::Shared | Role::SharedAtomic(_)));
        let atomics = !self.in_function && has(self, |role| matches!(role, Role::Atomic(_) | Role::OwnAtomic));
        let stores = !self.in_function && has(self, |role| matches!(role, Role::Output | Role::Own));
        let calls = !self.functions.is_empty() && (!self.in_function || self.options.handed);
        let nest = self.loops < 3;
        let on = |yes: bool, weight: u32| if yes { weight } else { 0 };
        let weights = [
            6,                                                                         // let
            4,                                                                         // var
            8,                                                                         // assign
            on(stores, 3),                                                             // store
            4,                                                                         // if
            on(self.options.switch, 2),                                                // switch
            on(nest, 3),                                                               // counted loop
            on(nest && self.options.general_loops, 3),                                 // general loop
            on(self.may_leave, 2),                                                     // break or continue
            on(self.may_return, 1),                                                    // return
            on(shared && self.phase == Phase::Own, 4),                                 // write workgroup memory
            on(shared && self.uniform, 4),                                             // barrier
            on(atomics, 4),                                                            // atomic
            on(calls, 3),                                                              // call
            1,                                                                         // block
            on(self.uniform && nest && !self.in_function, 2),                          // uniform if or loop
            on(self.together && self.options.subgroups != Subgroups::None, 6),         // subgroup
            on(nest && self.options.local_arrays, 2),                                  // array in loops
            on(self.together && nest && self.options.subgroups != Subgroups::None, 3), // if or loop of a subgroup
            on(nest, if self.options.searches { 16 } else { 2 }),                      // rounds over a buffer
            1,                                                                         // product of halves
        ];
        match self.rng.weighted(&weights) {
            0 => {
                let ty = self.any_type();
                let value = self.expr(ty, 3);
                let value = self.tame(value, ty);
                vec![self.bind(ty, value)]
            }
            1 => vec![self.variable()],
            2 => self.assign(),
            3 => self.store(),
            4 => self.branch(),
            5 => self.switch(),
            6 => vec![self.counted_loop()],
            7 => self.general_loop(),
            8 => {
                let cond = self.expr(Scalar::Bool.into(), 2);
                let leave = if self.rng.chance(1, 2) { Node::Break } else { Node::Continue };
                vec![Node::if_then(cond, vec![leave])]
            }
            9 => {
                let cond = self.expr(Scalar::Bool.into(), 2);
                vec![Node::if_then(cond, vec![Node::Return(None)])]
            }
            10 => self.write_shared(),
            11 => vec![self.barrier()],
            12 => self.atomic(),
            13 if self.options.handed => self.handed_call(),
            13 => vec![self.call()],
            14 => vec![Node::Block(self.nested(3))],
            15 => vec![self.uniform_region()],
            16 => self.subgroup(),
            17 => self.array_loops(),
            18 => vec![self.subgroup_region()],
            19 => self.walk(),
            _ => self.wide_product(),
        }
    }

    pub(super) fn bind(&mut self, ty: Type, value: Expr) -> Node {
        let name = self.fresh("v");
        self.locals.push(Local { name: name.clone(), ty: LocalType::Value(ty), mutable: false });
        Node::let_bind(name, value)
    }

    pub(super) fn variable(&mut self) -> Node {
        let name = self.fresh("v");
        let arrays = self.array_types();
        if !arrays.is_empty() && self.rng.chance(1, 4) {
            let (id, element, count) = self.rng.pick(&arrays);
            let ty = DataType::Handle(TypeId(id));
            let parts = (0..count).map(|_| self.leaf(element)).collect();
            let init = Expr::construct(ty.clone(), parts);
            self.locals.push(Local { name: name.clone(), ty: LocalType::Array(element, count), mutable: true });
            return if self.rng.chance(1, 2) { Node::var_zero(name, ty) } else { Node::var(name, ty, init) };
        }
        if !self.structs.is_empty() && self.rng.chance(1, 4) {
            let which = self.rng.below(self.structs.len() as u32) as usize;
            let ty = self.struct_type_of(which);
            let init = self.struct_value(which);
            self.locals.push(Local { name: name.clone(), ty: LocalType::Struct(which), mutable: true });
            return if self.rng.chance(1, 3) { Node::var_zero(name, ty) } else { Node::var(name, ty, init) };
        }
        let ty = self.any_type();
        let node = if self.rng.chance(1, 6) {
            Node::var_zero(&name, data_type(ty))
        } else {
            let init = self.expr(ty, 2);
            Node::var(&name, data_type(ty), self.tame(init, ty))
        };
        self.locals.push(Local { name, ty: LocalType::Value(ty), mutable: true });
        node
    }

    fn struct_value(&mut self, which: usize) -> Expr {
        let StructInfo { members, array, .. } = self.structs[which].clone();
        let mut parts: Vec<Expr> = members
            .into_iter()
            .map(|ty| {
                let value = self.expr(ty, 1);
                self.tame(value, ty)
            })
            .collect();
        if let Some((id, element, count)) = array {
            let elements = (0..count).map(|_| self.leaf(element)).collect();
            parts.push(Expr::construct(DataType::Handle(TypeId(id)), elements));
        }
        Expr::construct(self.struct_type_of(which), parts)
    }

    fn assign(&mut self) -> Vec<Node> {
        let mutable: Vec<Local> = self.locals.iter().filter(|local| local.mutable).cloned().collect();
        if mutable.is_empty() {
            return vec![self.variable()];
        }
        let local = self.rng.pick(&mutable);
        let (path, ty) = match local.ty {
            LocalType::Value(ty) if ty.width > 1 && self.rng.chance(1, 3) => {
                (vec![Access::Index(self.index(u32::from(ty.width)))], ty.scalar.into())
            }
            LocalType::Value(ty) => (Vec::new(), ty),
            LocalType::Array(element, count) => (vec![Access::Index(self.index(count))], element),
            LocalType::Grid(element, rows, columns) => {
                (vec![Access::Index(self.index(rows)), Access::Index(self.index(columns))], element)
            }
            LocalType::Struct(which) if self.rng.chance(1, 5) => {
                let value = self.struct_value(which);
                return vec![Node::assign(&local.name, value)];
            }
            LocalType::Struct(which) => self.some_path(which),
        };
        let value = self.expr(ty, 3);
        let value = self.tame(value, ty);
        vec![Node::Assign { name: local.name, path, value }]
    }

    fn store(&mut self) -> Vec<Node> {
        let targets: Vec<usize> =
            (0..self.buffers.len()).filter(|&i| matches!(self.buffers[i].role, Role::Output | Role::Own)).collect();
        let target = self.rng.pick(&targets);
        let index = self.own_index(Expr::var("id"), self.buffers[target].per);
        self.store_at(target, index)
    }

    fn store_at(&mut self, target: usize, index: Expr) -> Vec<Node> {
        let buffer = self.buffers[target].clone();
        let (path, value) = match buffer.element {
            Element::Value(ty) if ty.width > 1 && self.rng.chance(1, 4) => {
                let part: Type = ty.scalar.into();
                let value = self.expr(part, 3);
                (vec![Access::Index(self.index(u32::from(ty.width)))], self.tame(value, part))
            }
            Element::Value(ty) => {
                let value = self.expr(ty, 3);
                (Vec::new(), self.tame(value, ty))
            }
            Element::Stored(ref stored, ty) => {
                let mut value = self.expr(ty, 3);
                // These have no NaN to become.
                if matches!(stored, DataType::FP4 | DataType::NF4) {
                    value = self.without_nan(value, ty);
                }
                (Vec::new(), value)
            }
            Element::Struct(which) if self.rng.chance(1, 3) => (Vec::new(), self.struct_value(which)),
            Element::Struct(which) => {
                let (path, ty) = self.some_path(which);
                let value = self.expr(ty, 3);
                (path, self.tame(value, ty))
            }
        };
        vec![Node::Store { buffer: buffer.name, index, path, value }]
    }

    /// The store at the end of the program, of what the variables hold by then.
    pub(super) fn final_store(&mut self, target: usize, k: u32) -> Vec<Node> {
        let buffer = self.buffers[target].clone();
        let index =
            if buffer.per == 1 { Expr::var("id") } else { Expr::var("id") * Expr::u32(buffer.per) + Expr::u32(k) };
        if buffer.role == Role::MathOutput
            && let Element::Value(ty) = buffer.element
        {
            let value = self.math_call(ty);
            return vec![Node::store(&buffer.name, index, value)];
        }
        if let (Element::Value(ty) | Element::Stored(_, ty), true) = (&buffer.element, self.rng.chance(2, 3)) {
            // Mix what was computed into one value.
            let ty = *ty;
            let mut value = self.leaf(ty);
            for _ in 0..self.rng.range(2, 5) {
                let other = self.leaf(ty);
                let op = match ty.scalar {
                    Scalar::Bool => BinaryOp::Xor,
                    scalar if scalar.is_float() => BinaryOp::Add,
                    _ => self.rng.pick(&[BinaryOp::Add, BinaryOp::Xor]),
                };
                value = Expr::binary(op, value, other);
            }
            value = self.tame(value, ty);
            if matches!(buffer.element, Element::Stored(DataType::FP4 | DataType::NF4, _)) {
                value = self.without_nan(value, ty);
            }
            return vec![Node::store(&buffer.name, index, value)];
        }
        self.store_at(target, index)
    }

    /// Statements in flow that invocations take differently.
    fn divergent(&mut self, most: u32) -> Vec<Node> {
        let before = (self.uniform, self.together);
        (self.uniform, self.together) = (false, false);
        let nodes = self.nested(most);
        (self.uniform, self.together) = before;
        nodes
    }

    /// A branch or loop that each subgroup takes as a whole. In the mode for any size all take it, and what counts is not used.
    fn subgroup_region(&mut self) -> Node {
        let (uniform, may_leave) = (self.uniform, self.may_leave);
        (self.uniform, self.may_leave) = (false, false);
        self.loops += 1;
        let body = self.nested(4);
        self.loops -= 1;
        (self.uniform, self.may_leave) = (uniform, may_leave);
        let number = || Expr::Builtin(Builtin::SubgroupId);
        let fixed = self.options.subgroups == Subgroups::FixedSize;
        if self.rng.chance(1, 2) {
            let to = if fixed { Expr::u32(self.rng.range(1, 3)) } else { number() + Expr::u32(self.rng.range(1, 2)) };
            return Node::For { var: self.fresh("i"), from: number(), to, step: 1, body };
        }
        if fixed {
            let op = self.rng.pick(&[BinaryOp::Lt, BinaryOp::Ne, BinaryOp::Eq]);
            return Node::if_then(Expr::binary(op, number(), self.uniform_u32()), body);
        }
        Node::if_then(number().lt(Expr::Builtin(Builtin::NumSubgroups)), body)
    }

    fn branch(&mut self) -> Vec<Node> {
        let cond = self.expr(Scalar::Bool.into(), 3);
        let then = self.divergent(4);
        let otherwise = if self.rng.chance(1, 2) { self.divergent(4) } else { Vec::new() };
        vec![Node::if_else(cond, then, otherwise)]
    }

    fn switch(&mut self) -> Vec<Node> {
        let signed = self.rng.chance(1, 2);
        let scalar = if signed { Scalar::I32 } else { Scalar::U32 };
        let value = self.expr(scalar.into(), 2);
        let bound = self.splat(scalar.into(), 5);
        let selector = if self.rng.chance(3, 4) { Expr::binary(BinaryOp::Rem, value, bound) } else { value };
        let arms = self.rng.range(1, 4);
        let default = self.rng.below(arms + 1);
        let mut next = if signed { -1i32 } else { 0 };
        // Leaving from inside an arm leaves the switch; going on with the loop is still possible.
        let may_leave = std::mem::replace(&mut self.may_leave, false);
        let mut cases = Vec::new();
        for arm in 0..arms {
            let values = (0..self.rng.range(if arm == default { 0 } else { 1 }, 2))
                .map(|_| {
                    next += 1;
                    if signed { Literal::I32(next - 1) } else { Literal::U32((next - 1) as u32) }
                })
                .collect();
            let mut body = self.divergent(3);
            if self.rng.chance(1, 3) {
                let cond = self.expr(Scalar::Bool.into(), 1);
                let leave = if may_leave && self.rng.chance(1, 2) { Node::Continue } else { Node::Break };
                body.insert(0, Node::if_then(cond, vec![leave]));
            }
            cases.push(Case { values, default: arm == default, body });
        }
        if default == arms {
            cases.push(Case { values: Vec::new(), default: true, body: Vec::new() });
        }
        self.may_leave = may_leave;
        vec![Node::Switch { selector, cases }]
    }

    /// Where the counter starts and ends: mostly short, at times at the edge of the type.
    fn bounds(&mut self) -> (Scalar, Expr, Expr, u32) {
        let step = self.rng.range(1, 3);
        match self.rng.below(8) {
            0 => {
                let from = u32::MAX - self.rng.below(7);
                (Scalar::U32, Expr::u32(from), Expr::u32(u32::MAX), step)
            }
            1 => {
                let from = i32::MAX - self.rng.below(7) as i32;
                (Scalar::I32, Expr::i32(from), Expr::i32(i32::MAX), step)
            }
            2 | 3 => {
                let from = self.rng.below(9) as i32 - 4;
                (Scalar::I32, Expr::i32(from), Expr::i32(from + self.rng.below(7) as i32 - 1), step)
            }
            4 | 5 => {
                let to = Expr::binary(BinaryOp::Rem, self.expr(Scalar::U32.into(), 2), Expr::u32(6));
                (Scalar::U32, Expr::u32(self.rng.below(3)), to, step)
            }
            6 if !self.in_function => {
                // Over more than the workgroup has invocations; of the same length for all of them, or of one more for some.
                let size = self.workgroup[0];
                let to = size * step + if self.rng.chance(1, 3) { 1 } else { 0 };
                (Scalar::U32, Expr::local_id(0), Expr::u32(to), size)
            }
            _ => (Scalar::U32, Expr::u32(self.rng.below(3)), Expr::u32(self.rng.below(7)), step),
        }
    }

    fn counted_loop(&mut self) -> Node {
        let (scalar, from, to, step) = self.bounds();
        let var = self.fresh("i");
        let scope = self.locals.len();
        self.locals.push(Local { name: var.clone(), ty: LocalType::Value(scalar.into()), mutable: false });
        let may_leave = std::mem::replace(&mut self.may_leave, true);
        self.loops += 1;
        let body = self.divergent(4);
        self.loops -= 1;
        self.may_leave = may_leave;
        self.locals.truncate(scope);
        Node::For { var, from, to, step, body }
    }

    /// A loop that ends because a counter of its own grows in every round, by one, by more or by its own size, goes down or is halved.
    fn general_loop(&mut self) -> Vec<Node> {
        let counter = self.fresh("c");
        let rounds = self.rng.range(1, 8);
        let now = || Expr::var(&counter);
        let number = Expr::u32;
        let (first, next, done) = match rounds {
            4 => (number(1), now() << 1u32, now().ge(number(12))),
            5 => (number(18), now() >> 1u32, now().eq(number(0))),
            6 => {
                // A test at the end comes after the first step down, which must not wrap.
                let least = self.rng.range(1, 3);
                let more = Expr::binary(BinaryOp::Rem, self.expr(Scalar::U32.into(), 1), number(6));
                (more + number(least), now() - number(1), now().lt(number(least)))
            }
            7 | 8 => {
                // A step of more than one to a limit that is not known, and one that may be the last round.
                let limit = if self.rng.chance(1, 2) { self.uniform_u32() } else { self.expr(Scalar::U32.into(), 1) };
                let limit = Expr::binary(BinaryOp::Rem, limit, number(21));
                let size = self.workgroup[0].max(4);
                let first = if self.in_function { number(1) } else { Expr::local_id(0) };
                let done = if rounds == 7 { now().ge(limit) } else { now().gt(limit) };
                (first, now() + number(size), done)
            }
            _ => (number(0), now() + number(1), now().ge(number(rounds))),
        };
        let grow = Node::assign(&counter, next);
        let declare = Node::var(&counter, DataType::U32, first);
        let scope = self.locals.len();
        self.locals.push(Local { name: counter.clone(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
        let may_leave = std::mem::replace(&mut self.may_leave, true);
        self.loops += 1;
        let node = match self.rng.below(3) {
            0 => {
                let mut continuing = vec![grow];
                let inside = self.divergent(4);
                if self.rng.chance(1, 2) {
                    self.may_leave = false;
                    let may_return = std::mem::replace(&mut self.may_return, false);
                    continuing.extend(self.divergent(2));
                    self.may_return = may_return;
                }
                let break_if = if self.rng.chance(1, 3) {
                    Expr::binary(BinaryOp::Or, done, self.expr(Scalar::Bool.into(), 2))
                } else {
                    done
                };
                Node::Loop { body: inside, continuing, break_if: Some(break_if) }
            }
            1 => {
                let mut body = vec![Node::if_then(done, vec![Node::Break]), grow];
                body.extend(self.divergent(4));
                Node::forever(body)
            }
            _ => {
                let mut body = vec![Node::if_then(done, vec![Node::Break])];
                body.extend(self.divergent(4));
                Node::Loop { body, continuing: vec![grow], break_if: None }
            }
        };
        self.loops -= 1;
        self.may_leave = may_leave;
        self.locals.truncate(scope);
        vec![Node::Block(vec![declare, node])]
    }

    fn barrier(&mut self) -> Node {
        if self.rng.chance(1, 6) {
            return Node::Barrier(BarrierScope::Storage);
        }
        self.phase = if self.phase == Phase::Own { Phase::Read } else { Phase::Own };
        Node::Barrier(BarrierScope::Workgroup)
    }

    /// A branch or loop that the whole workgroup takes together, with barriers inside.
    fn uniform_region(&mut self) -> Node {
        let may_leave = std::mem::replace(&mut self.may_leave, false);
        self.loops += 1;
        let barriers = self.buffers.iter().any(|b| matches!(b.role, Role::Shared | Role::SharedAtomic(_)));
        let looping = self.rng.chance(1, 2);
        let var = self.fresh("i");
        let scope = self.locals.len();
        if looping {
            let local = Local { name: var.clone(), ty: LocalType::Value(Scalar::U32.into()), mutable: false };
            self.locals.push(local);
        }
        let before = self.phase;
        let mut body = self.nested(4);
        if barriers {
            // Leave in the phase that was found on entry: what comes around, and what follows, relies on it.
            body.push(self.barrier());
            body.extend(self.nested(3));
            while self.phase != before {
                body.push(self.barrier());
            }
        }
        self.locals.truncate(scope);
        self.loops -= 1;
        self.may_leave = may_leave;
        if looping {
            let to = if self.rng.chance(1, 2) {
                Expr::u32(self.rng.range(1, 3))
            } else {
                Expr::binary(BinaryOp::Rem, self.uniform_u32(), Expr::u32(4))
            };
            Node::For { var, from: Expr::u32(0), to, step: 1, body }
        } else {
            let op = self.rng.pick(&[BinaryOp::Lt, BinaryOp::Ne, BinaryOp::Eq]);
            Node::if_then(Expr::binary(op, self.uniform_u32(), self.uniform_u32()), body)
        }
    }

    fn write_shared(&mut self) -> Vec<Node> {
        let targets: Vec<usize> = (0..self.buffers.len())
            .filter(|&i| matches!(self.buffers[i].role, Role::Shared | Role::SharedAtomic(_)))
            .collect();
        let target = self.rng.pick(&targets);
        let buffer = self.buffers[target].clone();
        let Element::Value(ty) = buffer.element else { return Vec::new() };
        match buffer.role {
            Role::SharedAtomic(op) => {
                let index = self.index(buffer.length);
                let value = self.expr(ty, 2);
                vec![Node::atomic(op, &buffer.name, index, value)]
            }
            _ => {
                let index = self.own_index(Expr::Builtin(Builtin::LocalIndex), buffer.per);
                let store = |this: &mut Self, index: &Expr| {
                    let value = this.expr(ty, 2);
                    let value = this.tame(value, ty);
                    Node::store(&buffer.name, index.clone(), value)
                };
                match self.rng.below(8) {
                    // All that is its own, so that nothing of the memory need be zero at the start, or all but the last.
                    0 => {
                        let (var, local) = (self.fresh("w"), Expr::Builtin(Builtin::LocalIndex));
                        let own = local * Expr::u32(buffer.per) + Expr::var(var.clone());
                        let rounds = buffer.per - if self.rng.chance(1, 4) { 1 } else { 0 };
                        let (from, to) = (Expr::u32(0), Expr::u32(rounds));
                        vec![Node::For { var, from, to, step: 1, body: vec![store(self, &own)] }]
                    }
                    // The same place on both ways, or on one way only, where who goes there is known or not.
                    1 | 2 => {
                        let cond = match self.rng.chance(1, 2) {
                            true => Expr::Builtin(Builtin::LocalIndex).lt(Expr::u32(self.rng.below(40))),
                            false => self.expr(Scalar::Bool.into(), 2),
                        };
                        let before = (self.uniform, self.together);
                        (self.uniform, self.together) = (false, false);
                        let then = vec![store(self, &index)];
                        let otherwise = if self.rng.chance(2, 3) { vec![store(self, &index)] } else { Vec::new() };
                        (self.uniform, self.together) = before;
                        vec![Node::If { cond, then, otherwise }]
                    }
                    _ => vec![store(self, &index)],
                }
            }
        }
    }

    fn atomic(&mut self) -> Vec<Node> {
        let targets: Vec<usize> = (0..self.buffers.len())
            .filter(|&i| matches!(self.buffers[i].role, Role::Atomic(_) | Role::OwnAtomic))
            .collect();
        let target = self.rng.pick(&targets);
        let buffer = self.buffers[target].clone();
        let Element::Value(ty) = buffer.element else { return Vec::new() };
        if let Role::Atomic(op) = buffer.role {
            let index = self.index(buffer.length);
            // Adding and subtracting commute with each other.
            let op = if op == AtomicOp::Add && self.rng.chance(1, 4) { AtomicOp::Sub } else { op };
            let value = self.expr(ty, 2);
            return vec![Node::atomic(op, &buffer.name, index, value)];
        }
        let index = self.own_index(Expr::var("id"), 1);
        let op = self.rng.pick(&[
            AtomicOp::Load,
            AtomicOp::Store,
            AtomicOp::Add,
            AtomicOp::Sub,
            AtomicOp::Min,
            AtomicOp::Max,
            AtomicOp::And,
            AtomicOp::Or,
            AtomicOp::Xor,
            AtomicOp::Exchange,
            AtomicOp::CompareExchange,
        ]);
        let value = if op == AtomicOp::Load { None } else { Some(self.expr(ty, 2)) };
        let compare = if op == AtomicOp::CompareExchange { Some(self.expr(ty, 1)) } else { None };
        let result = if op == AtomicOp::Store || (op != AtomicOp::Load && self.rng.chance(1, 4)) {
            None
        } else {
            let name = self.fresh("a");
            self.locals.push(Local { name: name.clone(), ty: LocalType::Value(ty), mutable: false });
            Some(name)
        };
        vec![Node::Atomic { op, buffer: buffer.name, index, path: Vec::new(), value, compare, result }]
    }

    fn call(&mut self) -> Node {
        let which = self.rng.below(self.functions.len() as u32) as usize;
        let params: Vec<DataType> = self.functions[which].params.iter().map(|param| param.ty.clone()).collect();
        let (function, ty) = (self.functions[which].name.clone(), self.functions[which].result.clone());
        let mut args = vec![Expr::var("id")];
        for param in &params[1..] {
            let ty = type_of(param);
            let arg = self.expr(ty, 2);
            args.push(self.tame(arg, ty));
        }
        let result: Name = self.fresh("r");
        if let Some(ty) = ty {
            let ty = LocalType::Value(type_of(&ty));
            self.locals.push(Local { name: result.clone(), ty, mutable: false });
        }
        Node::Call { function, args, result: Some(result) }
    }

    fn subgroup(&mut self) -> Vec<Node> {
        if self.rng.chance(1, 3) && self.phase == Phase::Own {
            // The sum over the workgroup is the same, however it is cut into subgroups.
            let found = self.buffers.iter().find_map(|buffer| match (buffer.role, &buffer.element) {
                (Role::SharedAtomic(AtomicOp::Add), Element::Value(ty)) => Some((buffer.name.clone(), *ty)),
                _ => None,
            });
            if let Some((name, ty)) = found {
                let value = self.expr(ty, 2);
                let sum = Expr::Subgroup { op: SubgroupOp::Add, value: Box::new(value), argument: None };
                let node = self.bind(ty, sum);
                // The sum itself depends on the size, so nothing else may use it.
                let Some(local) = self.locals.pop() else { return vec![node] };
                let first = Expr::Builtin(Builtin::SubgroupLane).eq(Expr::u32(0));
                let add = Node::atomic(AtomicOp::Add, name, Expr::u32(0), Expr::var(&local.name));
                return vec![node, Node::if_then(first, vec![add])];
            }
        }
        let ty = loop {
            let ty = self.any_type();
            if ty.width == 1 || ty.scalar != Scalar::Bool {
                break ty;
            }
        };
        if ty.scalar.is_float() && self.options.floats == Floats::None {
            return Vec::new();
        }
        let value = self.subgroup_value(ty);
        vec![self.bind(ty, value)]
    }
}
