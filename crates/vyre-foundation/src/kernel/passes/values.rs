//! The values of a kernel while a pass adds to them.

use std::ops::RangeInclusive;

use hashbrown::HashMap;

use crate::ir::Literal;
use crate::kernel::build::is_comparison;
use crate::kernel::walk::{each_inst, each_use_mut, end_values_mut};
use crate::kernel::{Binary, Block, Counter, Inst, Kernel, Loop, Op, Scalar, Type, Value, ValueInfo, fold};

pub(super) struct Values {
    infos: Vec<ValueInfo>,
    /// The operation of each value that a `Let` defines, where a pass asks for it.
    defs: Option<Vec<Option<Op>>>,
    /// What is to be defined before everything else.
    constants: Vec<Inst>,
}

impl Values {
    /// Takes the values of a kernel, to be given back.
    pub(super) fn of(kernel: &mut Kernel) -> Values {
        Values { infos: std::mem::take(&mut kernel.values), defs: None, constants: Vec::new() }
    }

    /// Takes them with how they are made.
    pub(super) fn with_definitions(kernel: &mut Kernel) -> Values {
        let mut values = Values { defs: Some(Vec::new()), ..Values::of(kernel) };
        values.note(&kernel.body);
        values
    }

    pub(super) fn give_back(self, kernel: &mut Kernel) {
        kernel.values = self.infos;
        if !self.constants.is_empty() {
            kernel.body.insts.splice(0..0, self.constants);
        }
    }

    /// Notes how the values of a block are made.
    pub(super) fn note(&mut self, block: &Block) {
        each_inst(block, &mut |inst| {
            if let Inst::Let(value, op) = inst {
                self.set(*value, op);
            }
        });
    }

    /// Notes how a value is made.
    pub(super) fn set(&mut self, value: Value, op: &Op) {
        if let Some(defs) = &mut self.defs {
            defs.resize(self.infos.len(), None);
            defs[value.index()] = Some(op.clone());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.infos.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Value> {
        (0..self.infos.len() as u32).map(Value)
    }

    /// Forgets all but the first.
    pub(super) fn truncate(&mut self, count: usize) {
        self.infos.truncate(count);
        self.defs.iter_mut().for_each(|defs| defs.truncate(count));
    }

    pub(super) fn ty(&self, value: Value) -> Type {
        self.infos[value.index()].ty
    }

    pub(super) fn scalar(&self, value: Value) -> Scalar {
        self.ty(value).scalar
    }

    /// All invocations of a workgroup have the same.
    pub(super) fn is_uniform(&self, value: Value) -> bool {
        self.infos[value.index()].uniform
    }

    /// How a value is made.
    pub(super) fn def(&self, value: Value) -> Option<&Op> {
        self.defs.as_ref()?.get(value.index())?.as_ref()
    }

    /// Every value with how it is made.
    pub(super) fn made(&self) -> impl Iterator<Item = (Value, &Op)> {
        self.all().filter_map(|value| Some((value, self.def(value)?)))
    }

    pub(super) fn literal(&self, value: Value) -> Option<Literal> {
        match self.def(value) {
            Some(Op::Const(literal)) => Some(*literal),
            _ => None,
        }
    }

    pub(super) fn number(&self, value: Value) -> Option<i128> {
        fold::integer(&self.literal(value)?)
    }

    /// The numbers that a value made of constants and of the counters around it can be, where it does not wrap.
    pub(super) fn range(&self, value: Value, around: &[Counter]) -> Option<RangeInclusive<i128>> {
        let of = |value: Value| self.range(value, around);
        let (least, most) = match self.scalar(value) {
            Scalar::U32 => (0, i128::from(u32::MAX)),
            Scalar::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            _ => return None,
        };
        if let Some(counter) = around.iter().find(|counter| counter.value == value) {
            let (from, to) = (self.number(counter.from)?, self.number(counter.to)?);
            return (from < to).then_some(from..=to - 1);
        }
        let (first, last) = match *self.def(value)? {
            Op::Const(literal) => fold::integer(&literal).map(|number| (number, number))?,
            Op::Binary(Binary::Add, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                (a.start() + b.start(), a.end() + b.end())
            }
            Op::Binary(Binary::Sub, a, b) => {
                let (a, b) = (of(a)?, of(b)?);
                (a.start() - b.end(), a.end() - b.start())
            }
            _ => return None,
        };
        (least <= first && last <= most).then_some(first..=last)
    }

    /// A new value without a definition yet.
    pub(super) fn fresh(&mut self, ty: impl Into<Type>) -> Value {
        let value = Value(self.infos.len() as u32);
        self.infos.push(ValueInfo { ty: ty.into(), uniform: false });
        value
    }

    /// One of the type of another.
    pub(super) fn like(&mut self, value: Value) -> Value {
        self.fresh(self.ty(value))
    }

    pub(super) fn all_like(&mut self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|value| self.like(*value)).collect()
    }

    /// A new value that is defined here.
    pub(super) fn define(&mut self, ty: impl Into<Type>, op: Op, insts: &mut Vec<Inst>) -> Value {
        let value = self.fresh(ty);
        self.set(value, &op);
        insts.push(Inst::Let(value, op));
        value
    }

    pub(super) fn binary(&mut self, op: Binary, a: Value, b: Value, insts: &mut Vec<Inst>) -> Value {
        let ty = if is_comparison(op) { Scalar::Bool.into() } else { self.ty(a) };
        self.define(ty, Op::Binary(op, a, b), insts)
    }

    /// A number that is defined here.
    pub(super) fn constant(&mut self, ty: Scalar, number: impl Into<i128>, insts: &mut Vec<Inst>) -> Value {
        self.define(ty, Op::Const(fold::of_integer(ty, number.into())), insts)
    }

    /// A constant that is defined before everything else.
    pub(super) fn constant_at_start(&mut self, literal: Literal) -> Value {
        let mut constants = std::mem::take(&mut self.constants);
        let value = self.define(fold::scalar_of(&literal), Op::Const(literal), &mut constants);
        self.constants = constants;
        value
    }

    /// A block with names of its own for what it defines.
    pub(super) fn copy_block(&mut self, block: &Block, names: &mut HashMap<Value, Value>) -> Block {
        let insts = block.insts.iter().map(|inst| self.copy_inst(inst, names)).collect();
        let mut end = block.end.clone();
        end_values_mut(&mut end).iter_mut().for_each(|value| *value = named(*value, names));
        Block { insts, end }
    }

    pub(super) fn copy_inst(&mut self, inst: &Inst, names: &mut HashMap<Value, Value>) -> Inst {
        let mut copy = inst.clone();
        each_use_mut(&mut copy, &mut |value| *value = named(*value, names));
        match &mut copy {
            Inst::Let(value, op) => {
                *value = self.name(*value, names);
                self.set(*value, op);
            }
            Inst::Atomic { result: Some(result), .. } => *result = self.name(*result, names),
            Inst::If { then, otherwise, results, .. } => {
                **then = self.copy_block(then, names);
                **otherwise = self.copy_block(otherwise, names);
                results.iter_mut().for_each(|result| *result = self.name(*result, names));
            }
            Inst::Loop(inner) => **inner = self.copy_loop(inner, names),
            Inst::Atomic { .. } | Inst::Store { .. } | Inst::Barrier(_) => {}
        }
        copy
    }

    pub(super) fn copy_loop(&mut self, inner: &Loop, names: &mut HashMap<Value, Value>) -> Loop {
        let counter = inner.counter.map(|counter| Counter { value: self.name(counter.value, names), ..counter });
        let params = inner.params.iter().map(|param| self.name(*param, names)).collect();
        let body = self.copy_block(&inner.body, names);
        let results = inner.results.iter().map(|result| self.name(*result, names)).collect();
        Loop { counter, params, init: inner.init.clone(), body, results, ..*inner }
    }

    /// Gives a value a new name.
    fn name(&mut self, value: Value, names: &mut HashMap<Value, Value>) -> Value {
        let new = self.like(value);
        names.insert(value, new);
        new
    }
}

/// What a value is called under other names.
pub(super) fn named(value: Value, names: &HashMap<Value, Value>) -> Value {
    names.get(&value).copied().unwrap_or(value)
}
