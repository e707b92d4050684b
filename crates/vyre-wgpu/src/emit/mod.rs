//! Kernel form to naga IR, and naga IR to SPIR-V and WGSL.
//!
//! Every value of the kernel is one naga expression. What leaves an `If` or a loop goes through a local variable. Accesses that
//! the optimiser could not prove carry their own guard here, as an `if` around the access, so the module is given to the device
//! without naga's bounds checks and pays for exactly the checks that are needed.
//!
//! Bindings, all in group 0: the kernel's buffers in binding order, then, in a kernel that may end early, the stop words.
//! What a launch tells the kernel comes as immediate data ([`Facts`]).

mod float;
mod memory;
mod ops;
mod spirv;
mod subgroup;

use std::collections::HashMap;

pub use naga::Module;
use naga::{
    AddressSpace, ArraySize, BinaryOperator, Block as NagaBlock, BuiltIn, EntryPoint, Expression, Function,
    FunctionArgument, GlobalVariable, Handle, LocalVariable, ResourceBinding, ShaderStage, Span, Statement,
    StorageAccess, StructMember, Type as NagaType, TypeInner, VectorSize,
};
use vyre_foundation::ir::{BarrierScope, Builtin, Literal};
use vyre_foundation::kernel::{Block, Counter, End, Features, Inst, Kernel, Loop, Op, Scalar, Type, Value};
use vyre_spec::{Diagnostic, codes};

pub use float::Arithmetic;
use memory::Places;
pub use spirv::{FloatControls, Spirv, spirv, wgsl};

/// Name of the entry point of every module.
pub const ENTRY: &str = "vyre_kernel";

/// How many rounds of loops an invocation makes between two looks at the stop word.
const ROUNDS_PER_LOOK: u32 = 1024;

/// What the module is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Loops look now and then whether the host wants the launch to end.
    pub interruptible: bool,
    /// Rounds of all its loops together that an invocation may make; then it reports [`Report::ROUNDS`] and ends.
    pub rounds: Option<u32>,
    /// What the device rounds correctly; the rest is computed from what it does.
    pub arithmetic: Arithmetic,
}

impl Default for Target {
    /// A device that does all arithmetic as IEEE 754 says.
    fn default() -> Self {
        Target { interruptible: false, rounds: None, arithmetic: Arithmetic::exact() }
    }
}

impl Target {
    /// The kernel may end before it has done its work, so it has stop words.
    pub fn may_end_early(&self) -> bool {
        self.interruptible || self.rounds.is_some()
    }
}

/// Why a launch ended before it had done its work; what the second of its stop words holds.
#[derive(Clone, Copy, Debug)]
pub struct Report;

impl Report {
    /// The first stop word told it to.
    pub const STOPPED: u32 = 1;
    /// An invocation made all the rounds that it may.
    pub const ROUNDS: u32 = 2;
}

/// What a launch tells the kernel: words of immediate data.
#[derive(Clone, Copy, Debug)]
pub struct Facts;

impl Facts {
    /// Whole grid, x y z.
    pub const GRID: u32 = 0;
    /// First workgroup of this part of the launch, x y z.
    pub const BASE: u32 = 3;
    /// Where the launch's two stop words are.
    pub const STOP: u32 = 6;
    /// Always zero.
    pub const ZERO: u32 = 7;
    /// Number of elements of each buffer.
    pub const LENGTHS: u32 = 8;

    /// Number of words for a kernel with so many buffers.
    pub fn words(buffers: usize) -> usize {
        Self::LENGTHS as usize + buffers
    }
}

/// Writes a kernel that was lowered with `Narrow::Words`.
pub fn emit(kernel: &Kernel, target: Target) -> Result<Module, Diagnostic> {
    let mut module = Module::default();
    let places = Places::declare(kernel, &mut module)?;
    let uint = type_of(&mut module, Scalar::U32.into());
    let triple = type_of(&mut module, Type { scalar: Scalar::U32, width: 3 });
    // Lanes follow the local index, which naga knows only of workgroups with one dimension.
    let [x, y, z] = kernel.workgroup_size;
    let flat = kernel.features.contains(Features::SUBGROUP) && y * z > 1;
    let mut emitter = Emitter {
        kernel,
        target,
        shape: if flat { [x * y * z, 1, 1] } else { [x, y, z] },
        uint,
        triple,
        function: Function::default(),
        values: vec![None; kernel.values.len()],
        wide: HashMap::new(),
        constants: HashMap::new(),
        places,
        arguments: Vec::new(),
        loops: Vec::new(),
        facts: None,
        stop: None,
        rounds: None,
        allowed: None,
        long_fma: None,
        module,
    };
    let mut body = NagaBlock::new();
    emitter.declare(&mut body)?;
    emitter.block(&kernel.body, &mut body, &[])?;
    emitter.function.body = body;
    emitter.function.name = Some(ENTRY.to_owned());
    let mut module = emitter.module;
    module.entry_points.push(EntryPoint {
        name: ENTRY.to_owned(),
        stage: ShaderStage::Compute,
        early_depth_test: None,
        workgroup_size: emitter.shape,
        workgroup_size_overrides: None,
        function: emitter.function,
        mesh_info: None,
        task_payload: None,
        incoming_ray_payload: None,
    });
    Ok(module)
}

/// naga's scalar.
fn scalar_of(scalar: Scalar) -> naga::Scalar {
    match scalar {
        Scalar::Bool => naga::Scalar::BOOL,
        Scalar::U32 => naga::Scalar::U32,
        Scalar::I32 => naga::Scalar::I32,
        Scalar::U64 => naga::Scalar::U64,
        Scalar::I64 => naga::Scalar::I64,
        Scalar::F16 => naga::Scalar::F16,
        Scalar::F32 => naga::Scalar::F32,
        Scalar::F64 => naga::Scalar::F64,
    }
}

fn vector_size(width: u8) -> VectorSize {
    match width {
        2 => VectorSize::Bi,
        3 => VectorSize::Tri,
        _ => VectorSize::Quad,
    }
}

fn insert_type(module: &mut Module, inner: TypeInner) -> Handle<NagaType> {
    module.types.insert(NagaType { name: None, inner }, Span::UNDEFINED)
}

fn type_of(module: &mut Module, ty: Type) -> Handle<NagaType> {
    let scalar = scalar_of(ty.scalar);
    let inner = match ty.width {
        1 => TypeInner::Scalar(scalar),
        width => TypeInner::Vector { size: vector_size(width), scalar },
    };
    insert_type(module, inner)
}

/// The variables of a loop around the current block.
struct LoopVariables {
    params: Vec<Handle<LocalVariable>>,
    results: Vec<Handle<LocalVariable>>,
}

/// How a loop is counted.
struct Counting {
    variable: Handle<LocalVariable>,
    one: naga::Literal,
    /// What the variable stays below.
    end: Handle<Expression>,
    /// The counter's first value as a u32, where the variable counts rounds.
    first: Option<Handle<Expression>>,
    signed: bool,
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    target: Target,
    /// The workgroup size that the device is told.
    shape: [u32; 3],
    module: Module,
    uint: Handle<NagaType>,
    triple: Handle<NagaType>,
    function: Function,
    values: Vec<Option<Handle<Expression>>>,
    /// Components of values wider than one, where they were loaded or built one by one.
    wide: HashMap<Value, Vec<Handle<Expression>>>,
    /// 32-bit integer constants by value.
    constants: HashMap<Value, i64>,
    places: Places,
    /// Built-ins that are arguments of the entry point.
    arguments: Vec<(BuiltIn, Handle<Expression>)>,
    loops: Vec<LoopVariables>,
    facts: Option<Handle<Expression>>,
    stop: Option<Handle<Expression>>,
    /// Rounds until the next look at the stop word.
    rounds: Option<Handle<LocalVariable>>,
    /// Rounds that the invocation may still make.
    allowed: Option<Handle<LocalVariable>>,
    /// The function that computes `fma` of f64 where the device rounds it twice.
    long_fma: Option<Handle<Function>>,
}

impl<'k> Emitter<'k> {
    fn global(&mut self, variable: GlobalVariable) -> Handle<Expression> {
        let global = self.module.global_variables.append(variable, Span::UNDEFINED);
        self.function.expressions.append(Expression::GlobalVariable(global), Span::UNDEFINED)
    }

    fn declare(&mut self, body: &mut NagaBlock) -> Result<(), Diagnostic> {
        self.declare_places();
        let words = Facts::words(self.kernel.buffers.len()) as u32;
        let name = |word: u32| match word {
            0..3 => format!("grid_{word}"),
            3..6 => format!("base_{}", word - 3),
            6 => "stop".to_owned(),
            7 => "zero".to_owned(),
            _ => format!("length_{}", word - Facts::LENGTHS),
        };
        let member =
            |word: u32| StructMember { name: Some(name(word)), ty: self.uint, binding: None, offset: word * 4 };
        let inner = TypeInner::Struct { members: (0..words).map(member).collect(), span: words * 4 };
        let ty = self.module.types.insert(NagaType { name: Some("Facts".to_owned()), inner }, Span::UNDEFINED);
        let facts = self.global(GlobalVariable {
            name: Some("facts".to_owned()),
            space: AddressSpace::Immediate,
            binding: None,
            ty,
            init: None,
            memory_decorations: naga::MemoryDecorations::empty(),
        });
        self.facts = Some(facts);
        if self.target.may_end_early() {
            let base = insert_type(&mut self.module, TypeInner::Atomic(naga::Scalar::U32));
            let ty = insert_type(&mut self.module, TypeInner::Array { base, size: ArraySize::Dynamic, stride: 4 });
            let stop = self.global(GlobalVariable {
                name: Some("stop_words".to_owned()),
                space: AddressSpace::Storage { access: StorageAccess::LOAD | StorageAccess::STORE },
                binding: Some(ResourceBinding { group: 0, binding: self.kernel.buffers.len() as u32 }),
                ty,
                init: None,
                memory_decorations: naga::MemoryDecorations::empty(),
            });
            self.stop = Some(stop);
        }
        if let Some(limit) = self.target.rounds {
            let allowed = self.variable(Scalar::U32.into());
            let all = self.literal(body, limit.max(1));
            self.set(body, allowed, all);
            self.allowed = Some(allowed);
        }
        if self.target.interruptible {
            // Workgroups that start after the host gave up don't start to work.
            self.look_at_stop_word(body)?;
            let rounds = self.variable(Scalar::U32.into());
            let all = self.literal(body, ROUNDS_PER_LOOK);
            self.set(body, rounds, all);
            self.rounds = Some(rounds);
        }
        self.clear_shared(body)
    }

    /// Appends an expression and emits it.
    fn add(&mut self, block: &mut NagaBlock, expression: Expression) -> Handle<Expression> {
        let needs_emit = !expression.needs_pre_emit()
            && !matches!(
                expression,
                Expression::AtomicResult { .. }
                    | Expression::SubgroupBallotResult
                    | Expression::SubgroupOperationResult { .. }
                    | Expression::CallResult(_)
            );
        let before = self.function.expressions.len();
        let handle = self.function.expressions.append(expression, Span::UNDEFINED);
        if needs_emit {
            block.push(Statement::Emit(self.function.expressions.range_from(before)), Span::UNDEFINED);
        }
        handle
    }

    fn literal(&mut self, block: &mut NagaBlock, value: u32) -> Handle<Expression> {
        self.add(block, Expression::Literal(naga::Literal::U32(value)))
    }

    fn binary(
        &mut self,
        block: &mut NagaBlock,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Handle<Expression> {
        self.add(block, Expression::Binary { op, left, right })
    }

    fn variable(&mut self, ty: Type) -> Handle<LocalVariable> {
        let ty = type_of(&mut self.module, ty);
        self.function.local_variables.append(LocalVariable { name: None, ty, init: None }, Span::UNDEFINED)
    }

    fn set(&mut self, block: &mut NagaBlock, variable: Handle<LocalVariable>, value: Handle<Expression>) {
        let pointer = self.add(block, Expression::LocalVariable(variable));
        block.push(Statement::Store { pointer, value }, Span::UNDEFINED);
    }

    fn get(&mut self, block: &mut NagaBlock, variable: Handle<LocalVariable>) -> Handle<Expression> {
        let pointer = self.add(block, Expression::LocalVariable(variable));
        self.add(block, Expression::Load { pointer })
    }

    fn value(&self, value: Value) -> Result<Handle<Expression>, Diagnostic> {
        self.values[value.index()].ok_or_else(|| malformed("a value is used before it is defined"))
    }

    fn ty(&self, value: Value) -> Type {
        self.kernel.values[value.index()].ty
    }

    fn set_all(
        &mut self,
        block: &mut NagaBlock,
        variables: &[Handle<LocalVariable>],
        values: &[Value],
    ) -> Result<(), Diagnostic> {
        for (&variable, &value) in variables.iter().zip(values) {
            let value = self.value(value)?;
            self.set(block, variable, value);
        }
        Ok(())
    }

    /// Writes a block; `Yield` stores into `results`.
    fn block(
        &mut self,
        block: &'k Block,
        out: &mut NagaBlock,
        results: &[Handle<LocalVariable>],
    ) -> Result<(), Diagnostic> {
        for inst in &block.insts {
            self.inst(inst, out)?;
        }
        match &block.end {
            End::Yield(values) => self.set_all(out, results, values)?,
            End::Continue(values) => {
                let params = self.innermost()?.params.clone();
                self.set_all(out, &params, values)?;
                out.push(Statement::Continue, Span::UNDEFINED);
            }
            End::Break(values) => {
                let results = self.innermost()?.results.clone();
                self.set_all(out, &results, values)?;
                out.push(Statement::Break, Span::UNDEFINED);
            }
            End::Return => out.push(Statement::Return { value: None }, Span::UNDEFINED),
            End::Unreachable => {}
        }
        Ok(())
    }

    fn innermost(&self) -> Result<&LoopVariables, Diagnostic> {
        self.loops.last().ok_or_else(|| malformed("a block continues or breaks outside a loop"))
    }

    fn inst(&mut self, inst: &'k Inst, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        match inst {
            Inst::Let(value, op) => self.op(*value, op, out),
            Inst::Store { address, element, value, guard } => self.store(out, address, *element, *value, *guard),
            Inst::Atomic { .. } => self.atomic(inst, out),
            Inst::Barrier(scope) => {
                let flags = match scope {
                    BarrierScope::Workgroup => naga::Barrier::WORK_GROUP,
                    BarrierScope::Storage => naga::Barrier::STORAGE,
                };
                out.push(Statement::ControlBarrier(flags), Span::UNDEFINED);
                Ok(())
            }
            Inst::If { cond, then, otherwise, results } => {
                let variables: Vec<_> = results.iter().map(|&result| self.variable(self.ty(result))).collect();
                let condition = self.value(*cond)?;
                let (mut accept, mut reject) = (NagaBlock::new(), NagaBlock::new());
                self.block(then, &mut accept, &variables)?;
                self.block(otherwise, &mut reject, &variables)?;
                out.push(Statement::If { condition, accept, reject }, Span::UNDEFINED);
                self.define_all(out, results, &variables);
                Ok(())
            }
            Inst::Loop(repeat) => self.repeat(repeat, out),
        }
    }

    fn define_all(&mut self, out: &mut NagaBlock, values: &[Value], variables: &[Handle<LocalVariable>]) {
        for (&value, &variable) in values.iter().zip(variables) {
            let loaded = self.get(out, variable);
            self.values[value.index()] = Some(loaded);
        }
    }

    fn repeat(&mut self, repeat: &'k Loop, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        let params: Vec<_> = repeat.params.iter().map(|&param| self.variable(self.ty(param))).collect();
        let results: Vec<_> = repeat.results.iter().map(|&result| self.variable(self.ty(result))).collect();
        self.set_all(out, &params, &repeat.init)?;
        let mut body = NagaBlock::new();
        self.spend_round(&mut body)?;
        let counting = match repeat.counter {
            Some(counter) => Some(self.count(&counter, out)?),
            None => None,
        };
        let guard = self.guard(repeat, out);
        self.loops.push(LoopVariables { params: params.clone(), results: results.clone() });
        // Where rounds are few, several are made in one.
        let copies = if self.allowed.is_some() { copies(&repeat.body) } else { 1 };
        for copy in 1..=copies {
            self.bound(repeat, guard, &mut body)?;
            let goes_on = match (&counting, repeat.counter) {
                (Some(counting), Some(counter)) => Some(self.counted(counting, &counter, &mut body)),
                _ => None,
            };
            for (&param, &variable) in repeat.params.iter().zip(&params) {
                let loaded = self.get(&mut body, variable);
                self.values[param.index()] = Some(loaded);
            }
            if let Some(condition) = goes_on {
                let mut reject = NagaBlock::new();
                self.set_all(&mut reject, &results, &repeat.params)?;
                reject.push(Statement::Break, Span::UNDEFINED);
                body.push(Statement::If { condition, accept: NagaBlock::new(), reject }, Span::UNDEFINED);
            }
            if copy == copies {
                self.block(&repeat.body, &mut body, &[])?;
            } else {
                repeat.body.insts.iter().try_for_each(|inst| self.inst(inst, &mut body))?;
                if let End::Continue(values) = &repeat.body.end {
                    self.set_all(&mut body, &params, values)?;
                }
                counting.iter().for_each(|counting| self.count_on(counting, &mut body));
            }
        }
        self.loops.pop();
        let mut continuing = NagaBlock::new();
        counting.iter().for_each(|counting| self.count_on(counting, &mut continuing));
        out.push(Statement::Loop { body, continuing, break_if: None }, Span::UNDEFINED);
        self.define_all(out, &repeat.results, &results);
        Ok(())
    }

    /// Counts the rounds of a loop one by one from below to a limit above, and makes the counter from that: NVIDIA's compiler for Vulkan
    /// takes it that a counter passes neither zero nor the largest number, and makes endless loops of those that do.
    fn count(&mut self, counter: &Counter, out: &mut NagaBlock) -> Result<Counting, Diagnostic> {
        let (from, to) = (self.value(counter.from)?, self.value(counter.to)?);
        let signed = self.ty(counter.value).scalar == Scalar::I32;
        let starts_above = !signed || self.constants.get(&counter.from).is_some_and(|&from| from >= 0);
        if counter.step == 1 && starts_above {
            let variable = self.variable(self.ty(counter.value));
            self.set(out, variable, from);
            let one = if signed { naga::Literal::I32(1) } else { naga::Literal::U32(1) };
            return Ok(Counting { variable, one, end: to, first: None, signed });
        }
        let none = self.literal(out, 0);
        let first = if signed { self.as_uint(out, from) } else { from };
        let last = if signed { self.as_uint(out, to) } else { to };
        let mut rounds = self.binary(out, BinaryOperator::Subtract, last, first);
        if counter.step > 1 {
            let (one, step) = (self.literal(out, 1), self.literal(out, counter.step));
            rounds = self.binary(out, BinaryOperator::Subtract, rounds, one);
            rounds = self.binary(out, BinaryOperator::Divide, rounds, step);
            rounds = self.binary(out, BinaryOperator::Add, rounds, one);
        }
        let any = self.binary(out, BinaryOperator::Less, from, to);
        let rounds = self.choose(out, any, rounds, none);
        let variable = self.variable(Scalar::U32.into());
        self.set(out, variable, none);
        Ok(Counting { variable, one: naga::Literal::U32(1), end: rounds, first: Some(first), signed })
    }

    /// Defines the counter for a round; whether there is one.
    fn counted(&mut self, counting: &Counting, counter: &Counter, body: &mut NagaBlock) -> Handle<Expression> {
        let round = self.get(body, counting.variable);
        let mut now = round;
        if let Some(first) = counting.first {
            let step = self.literal(body, counter.step);
            let way = self.binary(body, BinaryOperator::Multiply, round, step);
            now = self.binary(body, BinaryOperator::Add, first, way);
            if counting.signed {
                now = self.add(body, Expression::As { expr: now, kind: naga::ScalarKind::Sint, convert: None });
            }
        }
        self.values[counter.value.index()] = Some(now);
        self.binary(body, BinaryOperator::Less, round, counting.end)
    }

    fn count_on(&mut self, counting: &Counting, out: &mut NagaBlock) {
        let now = self.get(out, counting.variable);
        let one = self.add(out, Expression::Literal(counting.one));
        let next = self.binary(out, BinaryOperator::Add, now, one);
        self.set(out, counting.variable, next);
    }

    /// What keeps compilers from taking a loop that looks at no stop word for one that never ends.
    fn guard(&mut self, repeat: &Loop, out: &mut NagaBlock) -> Option<[Handle<LocalVariable>; 2]> {
        if self.rounds.is_some() || repeat.finite || repeat.counter.is_some() {
            return None;
        }
        let start = self.literal(out, 0);
        let counters = [self.variable(Scalar::U32.into()), self.variable(Scalar::U32.into())];
        counters.iter().for_each(|&counter| self.set(out, counter, start));
        Some(counters)
    }

    /// Makes a loop end when the host wants it to, or at least keeps compilers from taking it for one that never ends, from
    /// which they would conclude that the rest of the kernel is never reached.
    fn bound(
        &mut self,
        repeat: &Loop,
        guard: Option<[Handle<LocalVariable>; 2]>,
        body: &mut NagaBlock,
    ) -> Result<(), Diagnostic> {
        if let Some(rounds) = self.rounds
            && repeat.look.is_some()
        {
            let condition = self.count_down(body, rounds);
            let mut accept = NagaBlock::new();
            let all = self.literal(&mut accept, ROUNDS_PER_LOOK);
            self.set(&mut accept, rounds, all);
            self.look_at_stop_word(&mut accept)?;
            body.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
        }
        if let Some([low, high]) = guard {
            let (one, zero) = (self.literal(body, 1), self.literal(body, 0));
            let count = self.get(body, low);
            let count = self.binary(body, BinaryOperator::Add, count, one);
            self.set(body, low, count);
            let condition = self.binary(body, BinaryOperator::Equal, count, zero);
            let mut wrapped = NagaBlock::new();
            let count = self.get(&mut wrapped, high);
            let count = self.binary(&mut wrapped, BinaryOperator::Add, count, one);
            self.set(&mut wrapped, high, count);
            let over = self.binary(&mut wrapped, BinaryOperator::Equal, count, zero);
            let mut accept = NagaBlock::new();
            accept.push(Statement::Return { value: None }, Span::UNDEFINED);
            wrapped.push(Statement::If { condition: over, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
            body.push(Statement::If { condition, accept: wrapped, reject: NagaBlock::new() }, Span::UNDEFINED);
        }
        Ok(())
    }

    /// Takes one from a counter; whether nothing is left.
    fn count_down(&mut self, out: &mut NagaBlock, counter: Handle<LocalVariable>) -> Handle<Expression> {
        let (one, zero) = (self.literal(out, 1), self.literal(out, 0));
        let left = self.get(out, counter);
        let left = self.binary(out, BinaryOperator::Subtract, left, one);
        self.set(out, counter, left);
        self.binary(out, BinaryOperator::Equal, left, zero)
    }

    /// Counts a round of a loop where a device would end loops that make too many.
    fn spend_round(&mut self, body: &mut NagaBlock) -> Result<(), Diagnostic> {
        let Some(allowed) = self.allowed else { return Ok(()) };
        let condition = self.count_down(body, allowed);
        let mut accept = NagaBlock::new();
        self.end_early(&mut accept, Report::ROUNDS)?;
        body.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
        Ok(())
    }

    /// Ends the invocation when the host wants the launch to end.
    fn look_at_stop_word(&mut self, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        let pointer = self.stop_word(out, 0)?;
        let word = self.add(out, Expression::Load { pointer });
        let zero = self.literal(out, 0);
        let condition = self.binary(out, BinaryOperator::NotEqual, word, zero);
        let mut accept = NagaBlock::new();
        self.end_early(&mut accept, Report::STOPPED)?;
        out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
        Ok(())
    }

    /// Says why, and ends the invocation.
    fn end_early(&mut self, out: &mut NagaBlock, report: u32) -> Result<(), Diagnostic> {
        let pointer = self.stop_word(out, 1)?;
        let value = self.literal(out, report);
        out.push(Statement::Store { pointer, value }, Span::UNDEFINED);
        out.push(Statement::Return { value: None }, Span::UNDEFINED);
        Ok(())
    }

    /// One of the launch's own stop words.
    fn stop_word(&mut self, out: &mut NagaBlock, word: u32) -> Result<Handle<Expression>, Diagnostic> {
        let base = self.stop.ok_or_else(|| malformed("the stop words are not declared"))?;
        let mut index = self.fact(out, Facts::STOP)?;
        if word > 0 {
            let word = self.literal(out, word);
            index = self.binary(out, BinaryOperator::Add, index, word);
        }
        Ok(self.add(out, Expression::Access { base, index }))
    }

    fn as_uint(&mut self, block: &mut NagaBlock, expr: Handle<Expression>) -> Handle<Expression> {
        self.add(block, Expression::As { expr, kind: naga::ScalarKind::Uint, convert: None })
    }

    /// An argument of the entry point, declared when it is first used.
    fn argument(&mut self, builtin: BuiltIn, ty: Handle<NagaType>) -> Handle<Expression> {
        if let Some((_, handle)) = self.arguments.iter().find(|(known, _)| *known == builtin) {
            return *handle;
        }
        let index = self.function.arguments.len() as u32;
        self.function.arguments.push(FunctionArgument {
            name: None,
            ty,
            binding: Some(naga::Binding::BuiltIn(builtin)),
        });
        let handle = self.function.expressions.append(Expression::FunctionArgument(index), Span::UNDEFINED);
        self.arguments.push((builtin, handle));
        handle
    }

    /// A word of the launch facts.
    fn fact(&mut self, out: &mut NagaBlock, word: u32) -> Result<Handle<Expression>, Diagnostic> {
        let base = self.facts.ok_or_else(|| malformed("the launch facts are not declared"))?;
        let pointer = self.add(out, Expression::AccessIndex { base, index: word });
        Ok(self.add(out, Expression::Load { pointer }))
    }

    fn workgroup_id(&mut self, out: &mut NagaBlock, axis: u8) -> Result<Handle<Expression>, Diagnostic> {
        let id = self.argument(BuiltIn::WorkGroupId, self.triple);
        let id = self.add(out, Expression::AccessIndex { base: id, index: u32::from(axis) });
        let base = self.fact(out, Facts::BASE + u32::from(axis))?;
        Ok(self.binary(out, BinaryOperator::Add, id, base))
    }

    fn builtin(&mut self, builtin: Builtin, out: &mut NagaBlock) -> Result<Handle<Expression>, Diagnostic> {
        let size = self.kernel.workgroup_size;
        Ok(match builtin {
            Builtin::LocalId(axis) if self.shape != size => {
                let index = self.argument(BuiltIn::LocalInvocationIndex, self.uint);
                let below: u32 = size[..usize::from(axis.min(2))].iter().product();
                let below = self.literal(out, below);
                let rows = self.binary(out, BinaryOperator::Divide, index, below);
                let size = self.literal(out, size[usize::from(axis.min(2))]);
                self.binary(out, BinaryOperator::Modulo, rows, size)
            }
            Builtin::LocalId(axis) => {
                let id = self.argument(BuiltIn::LocalInvocationId, self.triple);
                self.add(out, Expression::AccessIndex { base: id, index: u32::from(axis) })
            }
            Builtin::WorkgroupId(axis) => self.workgroup_id(out, axis)?,
            Builtin::GlobalId(axis) => {
                let group = self.workgroup_id(out, axis)?;
                let size = self.literal(out, size[usize::from(axis.min(2))]);
                let first = self.binary(out, BinaryOperator::Multiply, group, size);
                let local = self.builtin(Builtin::LocalId(axis), out)?;
                self.binary(out, BinaryOperator::Add, first, local)
            }
            Builtin::NumWorkgroups(axis) => self.fact(out, Facts::GRID + u32::from(axis))?,
            Builtin::WorkgroupSize(axis) => self.literal(out, size[usize::from(axis.min(2))]),
            Builtin::LocalIndex => self.argument(BuiltIn::LocalInvocationIndex, self.uint),
            Builtin::SubgroupSize => self.argument(BuiltIn::SubgroupSize, self.uint),
            Builtin::SubgroupLane => self.argument(BuiltIn::SubgroupInvocationId, self.uint),
            Builtin::SubgroupId => self.argument(BuiltIn::SubgroupId, self.uint),
            Builtin::NumSubgroups => self.argument(BuiltIn::NumSubgroups, self.uint),
        })
    }

    fn op(&mut self, value: Value, op: &Op, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        match op {
            Op::Const(Literal::U32(number)) => _ = self.constants.insert(value, i64::from(*number)),
            Op::Const(Literal::I32(number)) => _ = self.constants.insert(value, i64::from(*number)),
            _ => {}
        }
        let made = match op {
            Op::Builtin(builtin) => self.builtin(*builtin, out)?,
            Op::Length(buffer) => {
                let length = self.fact(out, Facts::LENGTHS + buffer)?;
                if self.ty(value).scalar == Scalar::U64 {
                    self.add(out, Expression::As { expr: length, kind: naga::ScalarKind::Uint, convert: Some(8) })
                } else {
                    length
                }
            }
            Op::Load { address, element, guard } => return self.load(out, value, address, *element, *guard),
            Op::Extract(whole, lane) => self.component(out, *whole, *lane)?,
            Op::Construct(parts) => {
                let components: Vec<_> = parts.iter().map(|&part| self.value(part)).collect::<Result<_, _>>()?;
                self.wide.insert(value, components);
                return Ok(());
            }
            Op::Subgroup(op, operand, argument) => self.subgroup(out, value, *op, *operand, *argument)?,
            _ => self.arithmetic(value, op, out)?,
        };
        self.values[value.index()] = Some(made);
        Ok(())
    }

    /// One component of a value.
    fn component(&mut self, out: &mut NagaBlock, whole: Value, lane: u8) -> Result<Handle<Expression>, Diagnostic> {
        if self.ty(whole).width == 1 {
            return self.value(whole);
        }
        if let Some(part) = self.wide.get(&whole).and_then(|parts| parts.get(usize::from(lane))) {
            return Ok(*part);
        }
        let base = self.value(whole)?;
        Ok(self.add(out, Expression::AccessIndex { base, index: u32::from(lane) }))
    }

    /// Two words as a u64, the low one first.
    fn join(&mut self, out: &mut NagaBlock, low: Handle<Expression>, high: Handle<Expression>) -> Handle<Expression> {
        let wide = |expr| Expression::As { expr, kind: naga::ScalarKind::Uint, convert: Some(8) };
        let low = self.add(out, wide(low));
        let high = self.add(out, wide(high));
        let count = self.literal(out, 32);
        let high = self.binary(out, BinaryOperator::ShiftLeft, high, count);
        self.binary(out, BinaryOperator::InclusiveOr, high, low)
    }

    /// The low and the high word of a u64.
    fn split(&mut self, out: &mut NagaBlock, long: Handle<Expression>) -> (Handle<Expression>, Handle<Expression>) {
        let narrow = |expr| Expression::As { expr, kind: naga::ScalarKind::Uint, convert: Some(4) };
        let low = self.add(out, narrow(long));
        let count = self.literal(out, 32);
        let high = self.binary(out, BinaryOperator::ShiftRight, long, count);
        (low, self.add(out, narrow(high)))
    }
}

/// How often the body of a loop is written into one round where rounds are few: often if it is small, as the driver's compiler is slow, and
/// if nothing in it goes on to the next round but its end.
fn copies(body: &Block) -> usize {
    fn size(block: &Block) -> Option<usize> {
        block.insts.iter().try_fold(1, |total, inst| match inst {
            Inst::Loop(_) => None,
            Inst::If { then, otherwise, .. } => {
                let ends = |block: &Block| matches!(block.end, End::Continue(_));
                if ends(then) || ends(otherwise) {
                    return None;
                }
                Some(total + size(then)? + size(otherwise)?)
            }
            _ => Some(total + 1),
        })
    }
    match (size(body), &body.end) {
        (Some(..=5), End::Continue(_)) => 128,
        (Some(..=16), End::Continue(_)) => 8,
        _ => 1,
    }
}

/// A kernel that breaks the rules of the kernel form; the optimiser never makes one.
fn malformed(what: &str) -> Diagnostic {
    Diagnostic::new(&codes::wgpu::MALFORMED, format!("the kernel is malformed: {what}"))
}

/// Something that can't be said to any adapter.
fn unsupported(what: &str) -> Diagnostic {
    Diagnostic::new(&codes::backend::UNSUPPORTED_FEATURE, format!("wgpu has no {what}"))
}
