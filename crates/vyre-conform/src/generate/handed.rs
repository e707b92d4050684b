//! Functions that change variables of their caller: they take values and give them back, as a front end writes pointers.

use vyre_foundation::ir::{Access, DataType, Expr, Function, Member, Name, Node, Param, TypeDef, TypeId, layout_of};
use vyre_foundation::kernel::{Scalar, Type};

use super::value::data_type;
use super::{Generator, Local, LocalType};

/// A function that gives back what it was handed.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    function: Name,
    /// Types of the parameters that come back, each with its member of the result; nothing where it is the result.
    taken: Vec<(LocalType, DataType, Option<u32>)>,
    /// Type of a parameter that is only read.
    lent: (LocalType, DataType),
    value: Option<(Type, u32)>,
}

impl Generator {
    /// A type of variables: mostly an array.
    fn handed_type(&mut self) -> (LocalType, DataType) {
        let arrays = self.array_types();
        // Of two types with the same parts, a variable does not say which one it has.
        let alone = |&(_, element, count): &(u32, Type, u32)| {
            arrays.iter().filter(|(_, e, c)| *e == element && *c == count).count() == 1
        };
        let usable: Vec<_> = arrays.iter().copied().filter(alone).collect();
        if !usable.is_empty() && self.rng.chance(2, 3) {
            let (id, element, count) = self.rng.pick(&usable);
            return (LocalType::Array(element, count), DataType::Handle(TypeId(id)));
        }
        if !self.structs.is_empty() && self.rng.chance(1, 2) {
            let which = self.rng.below(self.structs.len() as u32) as usize;
            return (LocalType::Struct(which), self.struct_type_of(which));
        }
        let ty = self.any_type();
        (LocalType::Value(ty), data_type(ty))
    }

    pub(super) fn handed_function(&mut self) {
        let outer = std::mem::take(&mut self.locals);
        self.in_function = true;
        (self.uniform, self.together) = (false, false);
        let name = self.fresh("f");
        let mut params = vec![Param { name: "id".into(), ty: DataType::U32 }];
        self.locals.push(Local { name: "id".into(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
        let (mut taken, mut variables, mut body) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rng.range(1, 3) {
            let (ty, data) = self.handed_type();
            let (param, variable) = (self.fresh("p"), self.fresh("v"));
            body.push(Node::var(&variable, data.clone(), Expr::var(&param)));
            params.push(Param { name: param, ty: data.clone() });
            self.locals.push(Local { name: variable.clone(), ty: ty.clone(), mutable: true });
            variables.push(variable);
            taken.push((ty, data, None));
        }
        let lent = self.handed_type();
        let param = self.fresh("p");
        self.locals.push(Local { name: param.clone(), ty: lent.0.clone(), mutable: false });
        params.push(Param { name: param, ty: lent.1.clone() });

        let mut value = None;
        let result = if taken.len() == 1 && self.rng.chance(1, 3) {
            taken[0].1.clone()
        } else {
            let ty = self.any_type();
            value = Some((ty, 0));
            let mut members = vec![data_type(ty)];
            for (i, part) in taken.iter_mut().enumerate() {
                members.push(part.1.clone());
                part.2 = Some(i as u32 + 1);
            }
            self.record(members)
        };
        self.budget = self.rng.range(2, 8);
        body.extend(self.open_statements());
        if self.rng.chance(2, 3) {
            let scope = self.locals.len();
            let var = self.fresh("i");
            self.locals.push(Local { name: var.clone(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
            self.loops += 1;
            self.budget = self.rng.range(1, 3);
            let mut inner = self.open_statements();
            let cond = self.expr(Scalar::Bool.into(), 2);
            let early = self.handed_back(&result, &value, &variables);
            inner.push(Node::if_then(cond, vec![early]));
            self.loops -= 1;
            self.locals.truncate(scope);
            body.push(Node::For { var, from: Expr::u32(0), to: Expr::u32(self.rng.range(1, 5)), step: 1, body: inner });
        }
        body.push(self.handed_back(&result, &value, &variables));
        self.functions.push(Function { name: name.clone(), params, result: Some(result), body });
        self.handed.push(Handed { function: name, taken, lent, value });
        self.in_function = false;
        self.locals = outer;
    }

    fn handed_back(&mut self, result: &DataType, value: &Option<(Type, u32)>, variables: &[Name]) -> Node {
        let Some((ty, _)) = value else { return Node::Return(Some(Expr::var(&variables[0]))) };
        let mut parts = vec![self.expr(*ty, 2)];
        parts.extend(variables.iter().map(Expr::var));
        Node::Return(Some(Expr::construct(result.clone(), parts)))
    }

    fn record(&mut self, parts: Vec<DataType>) -> DataType {
        let (mut offset, mut align) = (0u32, 1u32);
        let mut members = Vec::new();
        for (i, ty) in parts.into_iter().enumerate() {
            let (size, own) = layout_of(&ty, &self.types).map_or((4, 4), |layout| (layout.size, layout.align));
            offset = offset.next_multiple_of(own);
            members.push(Member { name: format!("m{i}").into(), ty, offset });
            offset += size;
            align = align.max(own);
        }
        let id = self.types.len() as u32;
        let size = offset.next_multiple_of(align);
        self.types.push(TypeDef::Struct { name: format!("S{id}").into(), members, size, align });
        DataType::Handle(TypeId(id))
    }

    /// A variable of this type, new where there is none.
    fn variable_of(&mut self, ty: &LocalType, data: &DataType, mutable: bool, nodes: &mut Vec<Node>) -> Name {
        let found: Vec<Name> =
            self.locals.iter().filter(|l| l.ty == *ty && (l.mutable || !mutable)).map(|l| l.name.clone()).collect();
        if !found.is_empty() && self.rng.chance(7, 8) {
            return self.rng.pick(&found);
        }
        let name = self.fresh("v");
        nodes.push(Node::var_zero(&name, data.clone()));
        self.locals.push(Local { name: name.clone(), ty: ty.clone(), mutable: true });
        name
    }

    /// A call, mostly with what it was handed put back where it came from.
    pub(super) fn handed_call(&mut self) -> Vec<Node> {
        let handed = self.handed.clone();
        let Handed { function, taken, lent, value } = self.rng.pick(&handed);
        let mut nodes = Vec::new();
        let mut args = vec![Expr::var("id")];
        let result: Name = self.fresh("r");
        let mut back = Vec::new();
        for (ty, data, member) in &taken {
            let name = self.variable_of(ty, data, true, &mut nodes);
            args.push(Expr::var(&name));
            let whole = Expr::var(&result);
            let value = match member {
                Some(member) => Expr::Part { value: Box::new(whole), path: vec![Access::Member(*member)] },
                None => whole,
            };
            back.push(Node::Assign { name, path: Vec::new(), value });
        }
        let name = self.variable_of(&lent.0, &lent.1, false, &mut nodes);
        args.push(Expr::var(name));
        nodes.push(Node::Call { function, args, result: Some(result.clone()) });
        match self.rng.below(12) {
            0 => back.reverse(),
            1 => _ = back.pop(),
            2 => back.push(back[0].clone()),
            3 => {
                let ty = self.any_type();
                let between = self.expr(ty, 2);
                let between = self.tame(between, ty);
                nodes.push(self.bind(ty, between));
            }
            _ => {}
        }
        nodes.extend(back);
        if let Some((ty, member)) = value {
            let part = Expr::Part { value: Box::new(Expr::var(&result)), path: vec![Access::Member(member)] };
            let part = self.tame(part, ty);
            nodes.push(self.bind(ty, part));
        }
        nodes
    }
}
