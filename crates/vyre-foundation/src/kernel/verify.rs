//! Checks that a kernel keeps the rules of its form.

use super::build::is_comparison;
use super::walk::{breaks, each_use, end_values};
use super::{Address, Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Type, Unary, Value};
use crate::ir::{AtomicOp, MATRIX_LANES, SubgroupOp};

/// The first broken rule of the kernel form, in words. Emitters may rely on there being none.
pub fn verify(kernel: &Kernel) -> Result<(), String> {
    let mut verify = Verify { kernel, defined: vec![State::Unknown; kernel.values.len()], loops: Vec::new() };
    verify.block(&kernel.body, &mut Vec::new(), None)?;
    match kernel.body.end {
        End::Return | End::Unreachable => Ok(()),
        _ => Err("the kernel's own block ends in neither return nor unreachable".into()),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Unknown,
    Visible,
    Gone,
}

struct Verify<'a> {
    kernel: &'a Kernel,
    defined: Vec<State>,
    loops: Vec<&'a Loop>,
}

type Checked = Result<(), String>;

fn check(holds: bool, message: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(message()) }
}

impl<'a> Verify<'a> {
    fn ty(&self, value: Value) -> Type {
        self.kernel.values[value.index()].ty
    }

    fn define(&mut self, value: Value, names: &mut Vec<Value>) -> Checked {
        check(value.index() < self.defined.len(), || format!("{value} is not in the table of values"))?;
        check(self.defined[value.index()] == State::Unknown, || format!("{value} is defined twice"))?;
        self.defined[value.index()] = State::Visible;
        names.push(value);
        Ok(())
    }

    fn used(&self, value: Value) -> Checked {
        match self.defined.get(value.index()) {
            Some(State::Visible) => Ok(()),
            Some(State::Gone) => Err(format!("{value} is used outside the block that defines it")),
            Some(State::Unknown) => Err(format!("{value} is used before it is defined")),
            None => Err(format!("{value} is not in the table of values")),
        }
    }

    fn same_types(&self, what: &str, values: &[Value], targets: &[Value]) -> Checked {
        check(values.len() == targets.len(), || {
            format!("{what} gives {} values where {} are expected", values.len(), targets.len())
        })?;
        for (value, target) in values.iter().zip(targets) {
            self.used(*value)?;
            check(self.ty(*value) == self.ty(*target), || {
                format!("{what} gives {value} for {target} of another type")
            })?;
        }
        Ok(())
    }

    /// `names` collects what the caller's scope defines; `results` are those of the enclosing `If`.
    fn block(&mut self, block: &'a Block, names: &mut Vec<Value>, results: Option<&'a [Value]>) -> Checked {
        for (i, inst) in block.insts.iter().enumerate() {
            let mut problem = Ok(());
            each_use(inst, &mut |value| {
                if problem.is_ok() {
                    problem = self.used(value);
                }
            });
            problem?;
            self.inst(inst, names)?;
            if leaves(inst) {
                check(i + 1 == block.insts.len() && block.end == End::Unreachable, || {
                    "a step that never goes on is not the last before unreachable".into()
                })?;
            }
        }
        for value in end_values(&block.end) {
            self.used(*value)?;
        }
        match &block.end {
            End::Yield(values) => match results {
                // The results are defined by the `If` afterwards, so only types and counts are compared here.
                Some(results) => self.same_types("a yield", values, results),
                None => Err("a yield outside of an if".into()),
            },
            End::Continue(values) => match self.loops.last() {
                Some(inner) => self.same_types("a continue", values, &inner.params),
                None => Err("a continue outside of a loop".into()),
            },
            End::Break(values) => match self.loops.last() {
                Some(inner) => self.same_types("a break", values, &inner.results),
                None => Err("a break outside of a loop".into()),
            },
            End::Unreachable => {
                check(block.insts.last().is_some_and(leaves), || "an end that is called unreachable is not".into())
            }
            End::Return => Ok(()),
        }
    }

    fn inner(&mut self, block: &'a Block, mut names: Vec<Value>, results: Option<&'a [Value]>) -> Checked {
        self.block(block, &mut names, results)?;
        for value in names {
            self.defined[value.index()] = State::Gone;
        }
        Ok(())
    }

    fn inst(&mut self, inst: &'a Inst, names: &mut Vec<Value>) -> Checked {
        match inst {
            Inst::Let(value, op) => {
                check(value.index() < self.defined.len(), || format!("{value} is not in the table of values"))?;
                self.op(*value, op).map_err(|problem| format!("{value}: {problem}"))?;
                self.define(*value, names)
            }
            Inst::Store { address, element, value, guard } => {
                self.address(address, *element)?;
                self.guard(*guard)?;
                check(self.ty(*value).scalar == element.scalar(), || format!("{value} is stored as {element:?}"))
            }
            Inst::Atomic { op, address, element, value, compare, result, guard } => {
                self.address(address, *element)?;
                self.guard(*guard)?;
                let ty = Type::from(element.scalar());
                for operand in [value, compare].into_iter().flatten() {
                    check(self.ty(*operand) == ty, || format!("{operand} has not the type of its atomic"))?;
                }
                check(value.is_some() != (*op == AtomicOp::Load), || "an atomic with a wrong operand".into())?;
                check(compare.is_some() == (*op == AtomicOp::CompareExchange), || {
                    "an atomic with a wrong comparand".into()
                })?;
                if let Some(result) = result {
                    check(self.ty(*result) == ty, || format!("{result} has not the type of its atomic"))?;
                    self.define(*result, names)?;
                }
                Ok(())
            }
            Inst::Barrier(_) => Ok(()),
            Inst::If { cond, then, otherwise, results } => {
                check(self.ty(*cond) == Scalar::Bool.into(), || format!("the condition {cond} is not bool"))?;
                self.inner(then, Vec::new(), Some(results))?;
                self.inner(otherwise, Vec::new(), Some(results))?;
                results.iter().try_for_each(|result| self.define(*result, names))
            }
            Inst::Loop(inner) => {
                self.same_types("a loop's start", &inner.init, &inner.params)?;
                check(inner.params.len() == inner.results.len(), || "a loop's results are not its params".into())?;
                for (param, result) in inner.params.iter().zip(&inner.results) {
                    check(self.ty(*param) == self.ty(*result), || format!("{result} has not the type of {param}"))?;
                }
                let mut own = Vec::new();
                if let Some(counter) = &inner.counter {
                    let ty = self.ty(counter.value);
                    let counts = matches!(ty.scalar, Scalar::U32 | Scalar::I32) && ty.width == 1;
                    check(counts && ty == self.ty(counter.from) && ty == self.ty(counter.to), || {
                        format!("the counter {} has a wrong type", counter.value)
                    })?;
                    check(counter.step > 0 && inner.finite, || "a counted loop does not count".into())?;
                    self.define(counter.value, &mut own)?;
                }
                inner.params.iter().try_for_each(|param| self.define(*param, &mut own))?;
                self.loops.push(inner);
                self.inner(&inner.body, own, None)?;
                self.loops.pop();
                inner.results.iter().try_for_each(|result| self.define(*result, names))
            }
        }
    }

    fn guard(&self, guard: Option<Value>) -> Checked {
        match guard {
            Some(guard) => check(self.ty(guard) == Scalar::Bool.into(), || format!("the guard {guard} is not bool")),
            None => Ok(()),
        }
    }

    fn address(&self, address: &Address, element: Element) -> Checked {
        let (count, index, declared) = match address.memory {
            Memory::Buffer(i) => (self.kernel.buffers.len(), i, None),
            Memory::Shared(i) => {
                (self.kernel.shared.len(), i, self.kernel.shared.get(i as usize).and_then(|memory| memory.element))
            }
            Memory::Local(i) => {
                (self.kernel.locals.len(), i, self.kernel.locals.get(i as usize).and_then(|memory| memory.element))
            }
        };
        check((index as usize) < count, || format!("there is no {:?}", address.memory))?;
        check(declared.is_none_or(|(declared, _)| declared == element), || {
            format!("{:?} is accessed as {element:?}", address.memory)
        })?;
        for (value, _) in &address.terms {
            let ty = self.ty(*value);
            check(ty.width == 1 && matches!(ty.scalar, Scalar::U32 | Scalar::U64), || {
                format!("the index {value} is neither u32 nor u64")
            })?;
        }
        Ok(())
    }

    fn op(&self, value: Value, op: &Op) -> Checked {
        let ty = self.ty(value);
        let expect = |wanted: Type| check(ty == wanted, || format!("is {ty:?}, not {wanted:?}"));
        let scalar = |value: Value| check(self.ty(value).width == 1, || format!("takes the wide value {value}"));
        match op {
            Op::Const(literal) => expect(super::fold::scalar_of(literal).into()),
            Op::Builtin(_) => expect(Scalar::U32.into()),
            Op::Length(buffer) => {
                check((*buffer as usize) < self.kernel.buffers.len(), || "length of no buffer".into())?;
                check(matches!(ty.scalar, Scalar::U32 | Scalar::U64) && ty.width == 1, || {
                    "a length is u32 or u64".into()
                })
            }
            Op::Unary(op, a) => {
                scalar(*a)?;
                check(unary_takes(*op, self.ty(*a).scalar), || format!("{op:?} of {:?}", self.ty(*a).scalar))?;
                expect(self.ty(*a))
            }
            Op::Binary(op, a, b) => {
                scalar(*a)?;
                let right = if matches!(op, Binary::Shl | Binary::Shr) { Scalar::U32.into() } else { self.ty(*a) };
                check(self.ty(*b) == right, || format!("{op:?} of {a} and {b}, which have different types"))?;
                check(binary_takes(*op, self.ty(*a).scalar), || format!("{op:?} of {:?}", self.ty(*a).scalar))?;
                expect(if is_comparison(*op) { Scalar::Bool.into() } else { self.ty(*a) })
            }
            Op::Fma(a, b, c) => {
                check(self.ty(*a) == self.ty(*b) && self.ty(*a) == self.ty(*c), || "fma of different types".into())?;
                check(ty.scalar.is_float(), || "fma of integers".into())?;
                scalar(*a)?;
                expect(self.ty(*a))
            }
            Op::Select(cond, yes, no) => {
                check(self.ty(*cond) == Scalar::Bool.into(), || "selects by something not bool".into())?;
                check(self.ty(*yes) == self.ty(*no), || "selects between different types".into())?;
                scalar(*yes)?;
                expect(self.ty(*yes))
            }
            Op::Cast(a) => scalar(*a).and_then(|()| check(ty.width == 1, || "casts to a wide value".into())),
            Op::BitCast(a) => {
                scalar(*a)?;
                let (from, to) = (self.ty(*a).scalar, ty.scalar);
                let half = matches!((from, to), (Scalar::F16, Scalar::U32) | (Scalar::U32, Scalar::F16));
                check(half || (from.bits() == to.bits() && from.bits() > 1), || format!("keeps the bits of {from:?}"))
            }
            Op::Load { address, element, guard } => {
                self.address(address, *element)?;
                self.guard(*guard)?;
                check(ty.scalar == element.scalar() && (1..=4).contains(&ty.width), || "a load of a wrong type".into())
            }
            Op::Extract(a, lane) => {
                check(*lane < self.ty(*a).width && self.ty(*a).width > 1, || format!("there is no lane {lane}"))?;
                expect(self.ty(*a).scalar.into())
            }
            Op::Construct(parts) => {
                check(parts.len() == usize::from(ty.width) && parts.len() > 1, || "constructs a wrong width".into())?;
                check(parts.iter().all(|part| self.ty(*part) == ty.scalar.into()), || "constructs a wrong type".into())
            }
            Op::Subgroup(op, a, argument) => {
                scalar(*a)?;
                check(argument.is_some() == op.has_argument(), || "a subgroup operation with a wrong argument".into())?;
                if let Some(argument) = argument {
                    check(self.ty(*argument) == Scalar::U32.into(), || "a lane that is not u32".into())?;
                }
                match op {
                    SubgroupOp::Ballot => expect(Type { scalar: Scalar::U32, width: 4 }),
                    _ => expect(self.ty(*a)),
                }
            }
            Op::Matrix(matrix) => {
                let (bits, sums) = (Type::from(Scalar::U32), Type::from(Scalar::F32));
                let fits = matrix.a.iter().chain(&matrix.b).all(|value| self.ty(*value) == bits)
                    && matrix.c.iter().all(|value| self.ty(*value) == sums);
                check(fits, || "a matrix operation with a wrong operand".into())?;
                let invocations: u32 = self.kernel.workgroup_size.iter().product();
                check(invocations.is_multiple_of(MATRIX_LANES), || "a matrix operation in half a subgroup".into())?;
                expect(Type { scalar: Scalar::F32, width: 4 })
            }
        }
    }
}

/// Control never goes on after the step.
fn leaves(inst: &Inst) -> bool {
    match inst {
        Inst::If { then, otherwise, .. } => {
            !matches!(then.end, End::Yield(_)) && !matches!(otherwise.end, End::Yield(_))
        }
        Inst::Loop(inner) => inner.counter.is_none() && !breaks(&inner.body),
        _ => false,
    }
}

fn unary_takes(op: Unary, ty: Scalar) -> bool {
    match op {
        Unary::Neg => ty.is_float() || ty.is_signed(),
        Unary::Not => !ty.is_float(),
        Unary::Abs | Unary::Sign => ty != Scalar::Bool,
        Unary::CountOneBits
        | Unary::CountLeadingZeros
        | Unary::CountTrailingZeros
        | Unary::ReverseBits
        | Unary::FirstLeadingBit
        | Unary::FirstTrailingBit => !ty.is_float() && ty != Scalar::Bool,
        _ => ty.is_float(),
    }
}

fn binary_takes(op: Binary, ty: Scalar) -> bool {
    match op {
        Binary::Eq | Binary::Ne => true,
        Binary::And | Binary::Or | Binary::Xor => !ty.is_float(),
        Binary::Rem | Binary::Shl | Binary::Shr => !ty.is_float() && ty != Scalar::Bool,
        Binary::MulHigh => matches!(ty, Scalar::U32 | Scalar::I32),
        Binary::Pow | Binary::Atan2 => ty.is_float(),
        _ => ty != Scalar::Bool,
    }
}
