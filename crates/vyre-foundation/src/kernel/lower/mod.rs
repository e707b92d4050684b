//! From a validated program to the kernel form: inlines functions, takes structs and vectors apart, turns variables into
//! values, and writes every memory access as an address with a guard.
//!
//! Early returns of inlined functions, `break` in a switch and `continue` before a `continuing` list leave a *region* whose
//! end is not the end of a loop. Such an exit sets the region's flag; what follows it is put into the other way of the `if`,
//! or under a test of the flag.

mod expr;
mod flow;
mod in_place;
mod memory;
mod scan;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;
use vyre_spec::{Diagnostic, codes};

use self::flow::{Flow, LoopFrame, Region};
use self::in_place::{Facts, Reads};
use super::build::Builder;
use super::shape::{Shape, ShapeId, Shapes};
use super::{
    Element, End, Features, Kernel, KernelBuffer, KernelMemory, Narrow, Options, Passes, Scalar, Value, clears, facts,
    fold, looks, math, passes,
};
use crate::ValidProgram;
use crate::ir::{BinaryOp, BufferKind, Builtin, Count, Expr, Function, Literal, Name, Node, Program, UnaryOp};
use crate::launch::{self, Constants};

/// How deep blocks may nest in a kernel.
const MAX_DEPTH: u32 = 400;
/// How many values a kernel may have.
const MAX_VALUES: usize = 1 << 20;
/// Local arrays up to this many scalars become values when all their indices are constant.
const MAX_ARRAY_VALUES: u32 = 64;

/// Problems are rare and large.
type Result<T> = std::result::Result<T, Box<Diagnostic>>;

/// The scalars of a value.
type Leaves = SmallVec<[Value; 4]>;

/// A computed value of any type.
struct Aggregate {
    shape: ShapeId,
    leaves: Leaves,
}

/// Where the parts of a named value live.
#[derive(Clone, Debug, PartialEq)]
enum Storage {
    /// Consecutive slots, one per scalar.
    Slots(u32),
    /// Consecutive memories, one per scalar or vector of the array's element.
    Memory(u32),
    /// Parts of a struct.
    Struct(Vec<Storage>),
}

#[derive(Clone, Debug)]
struct Binding {
    shape: ShapeId,
    storage: Storage,
}

/// How a buffer of the program appears in the kernel.
#[derive(Clone, Copy)]
enum BufferPlace {
    /// Position in [`Kernel::buffers`].
    Bound(u32),
    /// First position in [`Kernel::shared`], and the number of elements.
    Shared(u32, u32),
}

struct Scope {
    undo: usize,
    slots: usize,
    bindings: usize,
}

struct Lower<'a> {
    program: &'a Program,
    constants: &'a Constants<'a>,
    shapes: Shapes,
    builder: Builder,
    buffers: Vec<KernelBuffer>,
    /// Shape of each bound buffer's element; `None` for descriptors.
    buffer_shapes: Vec<Option<ShapeId>>,
    shared: Vec<KernelMemory>,
    locals: Vec<KernelMemory>,
    /// Memories of variables by the statement that declares them: inlined twice, a function reuses them.
    local_of: HashMap<usize, u32>,
    buffer_of: HashMap<&'a str, BufferPlace>,
    function_of: HashMap<&'a str, &'a Function>,
    workgroup_size: [u32; 3],
    /// What each name stands for here.
    names: HashMap<&'a str, u32>,
    undo: Vec<(&'a str, Option<u32>)>,
    bindings: Vec<Binding>,
    /// Present value of each slot; nothing before its first assignment.
    env: Vec<Option<Value>>,
    slot_types: Vec<Scalar>,
    /// Changes of slots, so that a branch can be undone.
    log: Vec<(u32, Option<Value>)>,
    /// Names that are indexed by something not constant in the function being lowered.
    indexed: Rc<HashSet<&'a str>>,
    /// Calls work on the caller's variables where nobody sees it.
    in_place: bool,
    facts: HashMap<&'a str, Rc<Facts<'a>>>,
    /// How names are read, for each body in which that was asked.
    reads: HashMap<usize, HashMap<&'a str, Reads>>,
    /// The body being lowered.
    body: &'a [Node],
    regions: Vec<Region>,
    loops: Vec<LoopFrame>,
    /// Region of the function being inlined; nothing in the entry point.
    function: Option<u32>,
    /// First loop of the function being lowered.
    first_loop: usize,
    depth: u32,
    /// Something asked for is not the same under another workgroup size, even if it is folded away here.
    sized: bool,
}

/// Lowers a program under the options, then optimises it.
pub fn lower(valid: &ValidProgram, options: &Options) -> std::result::Result<Kernel, Diagnostic> {
    let program = valid.program();
    let constants = Constants::new(program, Some(&options.specialization))?;
    let workgroup_size = match options.workgroup_size {
        Some(size) => size,
        None => launch::workgroup_size(program, Some(&options.specialization))?,
    };
    let workgroup_size = unmerged(valid, options, workgroup_size)?;
    let shapes = Shapes::new(program, &constants)?;
    let lower = Lower {
        program,
        constants: &constants,
        shapes,
        builder: Builder::new(options.passes.contains(Passes::FOLD)),
        buffers: Vec::new(),
        buffer_shapes: Vec::new(),
        shared: Vec::new(),
        locals: Vec::new(),
        local_of: HashMap::new(),
        buffer_of: HashMap::new(),
        function_of: program.functions().iter().map(|f| (f.name.as_str(), f)).collect(),
        workgroup_size,
        names: HashMap::with_capacity(48),
        undo: Vec::with_capacity(32),
        bindings: Vec::with_capacity(32),
        env: Vec::with_capacity(64),
        slot_types: Vec::with_capacity(64),
        log: Vec::with_capacity(64),
        indexed: Rc::default(),
        in_place: options.passes.contains(Passes::IN_PLACE),
        facts: HashMap::new(),
        reads: HashMap::new(),
        body: program.body(),
        regions: Vec::new(),
        loops: Vec::new(),
        function: None,
        first_loop: 0,
        depth: 0,
        sized: false,
    };
    let mut kernel = lower.run().map_err(|problem| *problem)?;
    if options.shared_exponentials {
        math::share_exponentials(&mut kernel);
    }
    if options.expand_math || options.narrow != Narrow::Native {
        math::expand(&mut kernel, options);
    }
    passes::optimise(&mut kernel, options).map_err(|why| not_merged(program, why))?;
    looks::place(&mut kernel, options.interruptible);
    if options.passes.contains(Passes::CLEARS) {
        clears::run(&mut kernel);
    }
    facts::fill(&mut kernel);
    debug_assert_eq!(super::verify(&kernel), Ok(()), "\n{kernel}");
    Ok(kernel)
}

/// The workgroup of threads of which each does several invocations: results must not depend on that, and nothing may be left over.
fn unmerged(
    program: &ValidProgram,
    options: &Options,
    workgroup_size: [u32; 3],
) -> std::result::Result<[u32; 3], Diagnostic> {
    let merged = options.merged;
    if merged == [1; 3] {
        return Ok(workgroup_size);
    }
    if (0..3).any(|axis| merged[axis] == 0 || !workgroup_size[axis].is_multiple_of(merged[axis])) {
        return Err(not_merged(program, "its workgroups are no multiples of that"));
    }
    let freedom = launch::freedom(program, Some(&options.specialization))?;
    if !freedom.is_proven() {
        return Err(not_merged(program, &freedom.why));
    }
    Ok(std::array::from_fn(|axis| workgroup_size[axis] / merged[axis]))
}

fn not_merged(program: &Program, why: &str) -> Diagnostic {
    let message = format!("invocations of `{}` can't be merged: {why}", program.name());
    Diagnostic::new(&codes::ir::NOT_MERGED, message)
}

impl<'a> Lower<'a> {
    fn run(mut self) -> Result<Kernel> {
        self.declare_buffers()?;
        let body = self.program.body();
        self.indexed = self.indexed_in(body, 0);
        let state = self.scoped(body)?;
        let end = match state.flow {
            Flow::Left(end) => end,
            _ => End::Return,
        };
        let (body, values) = self.builder.finish(end);
        Ok(Kernel {
            name: Name::from(self.program.name()),
            workgroup_size: self.workgroup_size,
            parts: 1,
            buffers: self.buffers,
            shared: self.shared,
            locals: self.locals,
            values,
            body,
            features: Features::default(),
            has_barrier: false,
            resizable: !self.sized,
            math: self.program.math(),
        })
    }

    fn declare_buffers(&mut self) -> Result<()> {
        for index in self.program.binding_order() {
            let decl = &self.program.buffers()[index];
            let shape = self.shapes.of(&decl.ty).ok();
            let layout = launch::shape_of(self.program, index).map_err(Box::new)?;
            let count = match &decl.count {
                _ if layout.header > 0 => None,
                Count::Runtime => None,
                Count::Fixed(count) => Some(*count),
                Count::Constant(expr) => Some(self.constants.eval(expr, &[]).map_err(Box::new)?),
            };
            let element = shape.and_then(|shape| match self.shapes.get(shape) {
                Shape::Vector(element, width) => Some((*element, *width)),
                _ => None,
            });
            self.buffer_of.insert(decl.name.as_str(), BufferPlace::Bound(self.buffers.len() as u32));
            self.buffer_shapes.push(shape);
            self.buffers.push(KernelBuffer {
                index: index as u32,
                name: decl.name.clone(),
                group: decl.group,
                binding: decl.binding,
                kind: decl.kind,
                element,
                stride: layout.stride,
                header: layout.header,
                count,
                read: false,
                written: false,
                atomic: false,
            });
        }
        for decl in self.program.buffers().iter().filter(|decl| decl.kind == BufferKind::Workgroup) {
            let shape = self.shapes.of(&decl.ty)?;
            let count = match &decl.count {
                Count::Runtime => 0,
                Count::Fixed(count) => *count,
                Count::Constant(expr) => self.constants.eval(expr, &[]).map_err(Box::new)?,
            };
            let first = self.shared.len() as u32;
            let mut memories = Vec::new();
            self.unit_memories(shape, u64::from(count), &decl.name, &mut memories)?;
            self.shared.append(&mut memories);
            self.buffer_of.insert(decl.name.as_str(), BufferPlace::Shared(first, count));
        }
        Ok(())
    }

    /// One memory per scalar or vector of a type, each for `count` elements.
    fn unit_memories(&self, shape: ShapeId, count: u64, name: &Name, out: &mut Vec<KernelMemory>) -> Result<()> {
        match self.shapes.get(shape) {
            Shape::Vector(element, width) => {
                let bits = u64::from(element.bits()) * u64::from(memory::spaced(*width));
                let bytes = u32::try_from((count * bits).div_ceil(8)).map_err(|_| too_large())?;
                let align = (bits as u32).div_ceil(8);
                out.push(KernelMemory {
                    name: name.clone(),
                    element: Some((*element, *width)),
                    size: bytes,
                    align,
                    atomic: false,
                    cleared: true,
                    words: None,
                });
            }
            Shape::Struct(members) => {
                for (member, _) in members {
                    self.unit_memories(*member, count, name, out)?;
                }
            }
            Shape::Array { element, count: inner, .. } => {
                let count = count.checked_mul(u64::from(inner.unwrap_or(0))).filter(|n| *n <= u64::from(u32::MAX));
                self.unit_memories(*element, count.ok_or_else(too_large)?, name, out)?;
            }
        }
        Ok(())
    }

    fn builtin(&mut self, builtin: Builtin) -> Value {
        let size = self.workgroup_size;
        self.sized |= !matches!(builtin, Builtin::GlobalId(_));
        match builtin {
            Builtin::WorkgroupSize(axis) => self.builder.u32(size[usize::from(axis.min(2))]),
            Builtin::LocalId(axis) if size[usize::from(axis.min(2))] == 1 => self.builder.u32(0),
            Builtin::LocalIndex if size == [1, 1, 1] => self.builder.u32(0),
            Builtin::LocalIndex if size[1] == 1 && size[2] == 1 => self.builder.builtin(Builtin::LocalId(0)),
            Builtin::LocalIndex if size[0] == 1 && size[2] == 1 => self.builder.builtin(Builtin::LocalId(1)),
            Builtin::LocalIndex if size[0] == 1 && size[1] == 1 => self.builder.builtin(Builtin::LocalId(2)),
            other => self.builder.builtin(other),
        }
    }

    // Names and slots.

    fn open_scope(&self) -> Scope {
        Scope { undo: self.undo.len(), slots: self.env.len(), bindings: self.bindings.len() }
    }

    fn close_scope(&mut self, scope: &Scope) {
        for (name, old) in self.undo.drain(scope.undo..).rev() {
            match old {
                Some(binding) => self.names.insert(name, binding),
                None => self.names.remove(name),
            };
        }
        self.env.truncate(scope.slots);
        self.slot_types.truncate(scope.slots);
        self.bindings.truncate(scope.bindings);
    }

    fn bind(&mut self, name: &'a str, shape: ShapeId, storage: Storage) {
        let id = self.bindings.len() as u32;
        self.bindings.push(Binding { shape, storage });
        let old = self.names.insert(name, id);
        self.undo.push((name, old));
    }

    fn new_slots(&mut self, shape: ShapeId) -> Result<u32> {
        let first = self.env.len();
        if first + self.shapes.leaves(shape) as usize > MAX_VALUES {
            return Err(too_large());
        }
        self.shapes.push_leaf_types(shape, &mut self.slot_types);
        self.env.resize(self.slot_types.len(), None);
        Ok(first as u32)
    }

    fn set(&mut self, slot: u32, value: Value) {
        let old = self.env[slot as usize].replace(value);
        self.log.push((slot, old));
    }

    /// Value of a slot; zero before its first assignment.
    fn slot(&mut self, slot: u32) -> Value {
        match self.env[slot as usize] {
            Some(value) => value,
            None => self.builder.zero(self.slot_types[slot as usize]),
        }
    }

    fn check_size(&self) -> Result<()> {
        if self.builder.values.len() > MAX_VALUES { Err(too_large()) } else { Ok(()) }
    }

    /// Value of an expression of literals and specialization constants.
    fn literal(&self, expr: &Expr) -> Option<Literal> {
        literal(expr, self.constants)
    }

    /// Declares a name with a first value. `at` identifies the declaration.
    fn declare(&mut self, name: &'a str, shape: ShapeId, init: Option<Leaves>, at: usize) -> Result<()> {
        let in_memory = self.shapes.has_array(shape)
            && (self.indexed.contains(name) || self.shapes.leaves(shape) > MAX_ARRAY_VALUES);
        if !in_memory {
            let first = self.new_slots(shape)?;
            for i in 0..self.shapes.leaves(shape) {
                let slot = first + i;
                let value = match &init {
                    Some(leaves) => leaves[i as usize],
                    None => self.builder.zero(self.slot_types[slot as usize]),
                };
                self.set(slot, value);
            }
            self.bind(name, shape, Storage::Slots(first));
            return Ok(());
        }
        let known = self.local_of.get(&at).copied();
        let first = match known {
            Some(first) => first,
            None => {
                let first = self.locals.len() as u32;
                self.locals_for(shape, &Name::from(name))?;
                self.local_of.insert(at, first);
                first
            }
        };
        let mut next = first;
        let storage = self.array_storage(shape, &mut next)?;
        // Fresh memory is zero, but only the first time.
        let fresh = known.is_none() && self.loops.is_empty();
        match init {
            Some(leaves) => self.store_all(shape, &storage, &leaves)?,
            None => self.zero_all(shape, &storage, fresh)?,
        }
        self.bind(name, shape, storage);
        Ok(())
    }

    /// Makes memories for the arrays in a type.
    fn locals_for(&mut self, shape: ShapeId, name: &Name) -> Result<()> {
        match self.shapes.get(shape).clone() {
            Shape::Vector(..) => Ok(()),
            Shape::Struct(members) => members.iter().try_for_each(|(member, _)| self.locals_for(*member, name)),
            Shape::Array { .. } => {
                let mut memories = Vec::new();
                self.unit_memories(shape, 1, name, &mut memories)?;
                self.locals.append(&mut memories);
                Ok(())
            }
        }
    }

    /// Slots for what is outside arrays, the next memories for arrays.
    fn array_storage(&mut self, shape: ShapeId, next: &mut u32) -> Result<Storage> {
        Ok(match self.shapes.get(shape).clone() {
            Shape::Vector(..) => Storage::Slots(self.new_slots(shape)?),
            Shape::Struct(members) => Storage::Struct(
                members.iter().map(|(member, _)| self.array_storage(*member, next)).collect::<Result<_>>()?,
            ),
            Shape::Array { .. } => {
                let first = *next;
                *next += self.shapes.units(shape);
                Storage::Memory(first)
            }
        })
    }
}

fn too_large() -> Box<Diagnostic> {
    Box::new(Diagnostic::new(
        &codes::kernel::TOO_LARGE,
        format!("the kernel would have more than {MAX_VALUES} values, or an array of more than 4 GiB"),
    ))
}

fn too_deep() -> Box<Diagnostic> {
    Box::new(Diagnostic::new(
        &codes::kernel::TOO_DEEP,
        format!("blocks nest more than {MAX_DEPTH} deep once functions are inlined"),
    ))
}

/// The operation of the kernel form.
fn binary_op(op: BinaryOp) -> super::Binary {
    use super::Binary;
    match op {
        BinaryOp::Add => Binary::Add,
        BinaryOp::Sub => Binary::Sub,
        BinaryOp::Mul => Binary::Mul,
        BinaryOp::Div => Binary::Div,
        BinaryOp::Rem => Binary::Rem,
        BinaryOp::And => Binary::And,
        BinaryOp::Or => Binary::Or,
        BinaryOp::Xor => Binary::Xor,
        BinaryOp::Shl => Binary::Shl,
        BinaryOp::Shr => Binary::Shr,
        BinaryOp::Eq => Binary::Eq,
        BinaryOp::Ne => Binary::Ne,
        BinaryOp::Lt => Binary::Lt,
        BinaryOp::Le => Binary::Le,
        BinaryOp::Gt => Binary::Gt,
        BinaryOp::Ge => Binary::Ge,
    }
}

/// Value of an expression of literals and specialization constants.
fn literal(expr: &Expr, constants: &Constants<'_>) -> Option<Literal> {
    match expr {
        Expr::Literal(literal) => Some(*literal),
        Expr::Constant(name) => constants.get(name.as_str()),
        Expr::Unary { op, value } => {
            let op = match op {
                UnaryOp::Neg => super::Unary::Neg,
                UnaryOp::Not => super::Unary::Not,
            };
            fold::unary(op, literal(value, constants)?)
        }
        Expr::Binary { op, left, right } => {
            fold::binary(binary_op(*op), literal(left, constants)?, literal(right, constants)?)
        }
        Expr::Cast { to, value } => {
            let to = Element::of(to).filter(|e| e.scalar().data_type() == *to)?.scalar();
            Some(fold::cast(literal(value, constants)?, to))
        }
        _ => None,
    }
}
