//! Random programs that are valid by construction: loops are bounded, nothing races, and barriers stand in uniform flow.
//!
//! What keeps a program free of races: every invocation has a number `id`, and writes only the elements that belong to it;
//! atomics on shared elements are of one commutative kind per buffer and their old values are not used; workgroup memory
//! alternates between a phase in which invocations touch their own elements and one in which all only read, with a barrier in
//! between.

mod arrays;
mod buffers;
mod components;
mod expr;
mod handed;
mod statement;
mod value;
mod walks;

use smallvec::SmallVec;
use vyre_foundation::ir::{
    AtomicOp, BarrierScope, BinaryOp, BufferDecl, Builtin, DataType, Expr, Function, Literal, Math, Name, Node, Param,
    Program, SpecConstant, Specialization, TypeDef,
};
use vyre_foundation::kernel::{Scalar, Type};
use vyre_foundation::text;

use crate::rng::Rng;

/// How floats take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floats {
    /// Not at all.
    None,
    /// Only small whole numbers, so that contraction, division errors and flushed subnormals can't be seen.
    Whole,
    /// All values, and the operations that are correctly rounded.
    Exact,
}

/// How subgroup operations take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subgroups {
    /// Not at all.
    None,
    /// In ways whose result is the same for every subgroup size.
    AnySize,
    /// In all ways: results can only be compared at one subgroup size.
    FixedSize,
}

/// What programs may contain.
#[derive(Clone, Debug)]
pub struct GenOptions {
    /// Least and most statements to aim for.
    pub statements: (u32, u32),
    /// Floats.
    pub floats: Floats,
    /// f16, where there are floats.
    pub f16: bool,
    /// f64, where there are floats.
    pub f64: bool,
    /// u64 and i64.
    pub int64: bool,
    /// Buffers of u8, i8, u16, i16, bf16 and the 8- and 4-bit floats and integers.
    pub stored_types: bool,
    /// Functions such as `sin`, whose results go straight to an output of their own.
    pub math: bool,
    /// The program is in fast arithmetic. Half of them have only floats of small whole numbers, where rounding once or twice is the same.
    pub fast: bool,
    /// Vectors.
    pub vectors: bool,
    /// Structs in buffers and variables.
    pub structs: bool,
    /// User functions.
    pub functions: bool,
    /// Functions change variables of their callers.
    pub handed: bool,
    /// Short loops that are left where something is found take the place of most other walks over buffers.
    pub searches: bool,
    /// Every program works on vectors of four component by component, or nearly so; otherwise one of 32 does.
    pub components: bool,
    /// Arrays as variables.
    pub local_arrays: bool,
    /// `switch`.
    pub switch: bool,
    /// Loops with break and continue.
    pub general_loops: bool,
    /// Specialization constants.
    pub spec_constants: bool,
    /// Workgroup memory and barriers.
    pub workgroup_memory: bool,
    /// Atomic operations.
    pub atomics: bool,
    /// Atomic operations on u64 and i64, where there are 64-bit integers.
    pub atomics64: bool,
    /// Subgroup operations.
    pub subgroups: Subgroups,
    /// Each program leaves out some of what is allowed, so that the rest meets more often.
    pub focus: bool,
}

impl Default for GenOptions {
    /// Everything that has one exact answer on every exact device.
    fn default() -> Self {
        GenOptions {
            statements: (10, 60),
            floats: Floats::Exact,
            f16: true,
            f64: true,
            int64: true,
            stored_types: true,
            math: false,
            fast: false,
            vectors: true,
            structs: true,
            functions: true,
            handed: false,
            searches: false,
            components: false,
            local_arrays: true,
            switch: true,
            general_loops: true,
            spec_constants: true,
            workgroup_memory: true,
            atomics: true,
            atomics64: true,
            subgroups: Subgroups::None,
            focus: true,
        }
    }
}

impl GenOptions {
    /// What every device with WGSL runs and gives the same answer for: u32, i32, bool and f32 of small whole numbers.
    pub fn portable() -> Self {
        GenOptions {
            floats: Floats::Whole,
            f16: false,
            f64: false,
            int64: false,
            stored_types: false,
            atomics64: false,
            ..GenOptions::default()
        }
    }

    /// Programs in fast arithmetic.
    pub fn fast() -> Self {
        GenOptions { fast: true, math: true, stored_types: false, ..GenOptions::default() }
    }

    /// Leaves features out, differently for each seed.
    fn focused(&self, rng: &mut Rng) -> GenOptions {
        let mut options = self.clone();
        if !self.focus {
            return options;
        }
        if rng.chance(1, 4) {
            options.floats = Floats::None;
        } else if options.fast && rng.chance(1, 2) {
            options.floats = Floats::Whole;
        }
        for (switch, out_of_eight) in [
            (&mut options.f16, 4),
            (&mut options.f64, 4),
            (&mut options.int64, 4),
            (&mut options.stored_types, 4),
            (&mut options.vectors, 2),
            (&mut options.structs, 4),
            (&mut options.functions, 4),
            (&mut options.local_arrays, 4),
            (&mut options.switch, 3),
            (&mut options.general_loops, 3),
            (&mut options.spec_constants, 4),
            (&mut options.workgroup_memory, 4),
            (&mut options.atomics, 4),
        ] {
            *switch &= !rng.chance(out_of_eight, 8);
        }
        if rng.chance(1, 2) {
            options.subgroups = Subgroups::None;
        }
        options
    }
}

/// A program with everything that a dispatch needs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Seed it came from; 0 for a case made otherwise.
    pub seed: u64,
    /// Program.
    pub program: Program,
    /// Bytes of every input, in binding order.
    pub inputs: Vec<Vec<u8>>,
    /// Values of specialization constants.
    pub specialization: Specialization,
    /// Workgroups, where the launch is not the program's own.
    pub grid: Option<[u32; 3]>,
}

impl Case {
    /// A case with the program's own launch and no specialization.
    pub fn new(program: Program, inputs: Vec<Vec<u8>>) -> Case {
        Case { seed: 0, program, inputs, specialization: Specialization::new(), grid: None }
    }

    /// The case in the form of a file test: the program's text, and everything that is passed to it.
    pub fn describe(&self) -> String {
        let mut out = format!("//! reference\n// seed {}\n", self.seed);
        let order = self.program.binding_order();
        let inputs = order.iter().map(|&i| &self.program.buffers()[i]).filter(|buffer| buffer.kind.is_input());
        for (buffer, bytes) in inputs.zip(&self.inputs) {
            let bytes: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            out += &format!("//! in {} = hex: {bytes}\n", buffer.name);
        }
        for (name, value) in &self.specialization {
            let value = match value {
                Literal::Bool(value) => value.to_string(),
                other => format!("0x{:x}", other.bits()),
            };
            out += &format!("//! spec {name} = {value}\n");
        }
        if let Some([x, y, z]) = self.grid {
            out += &format!("//! grid {x} {y} {z}\n");
        }
        out + &text::print(&self.program)
    }

    /// The inputs as slices.
    pub fn input_slices(&self) -> Vec<&[u8]> {
        self.inputs.iter().map(Vec::as_slice).collect()
    }
}

/// The program of a seed: the same on every platform.
pub fn generate(seed: u64, options: &GenOptions) -> Case {
    let mut rng = Rng::new(seed);
    // Drawn apart, so that the other programs are the same with and without.
    let is_plain = options.vectors && !options.searches && !options.handed;
    let components = options.components || is_plain && Rng::new(!seed).chance(1, 32);
    let options = options.focused(&mut rng);
    let mut generator = Generator::new(rng, options);
    let mut case = if components { generator.components_case() } else { generator.case() };
    case.seed = seed;
    case
}

/// What an element of a generated buffer is.
#[derive(Clone, Debug)]
enum Element {
    Value(Type),
    /// Converted on load and store.
    Stored(DataType, Type),
    /// Position in `structs`.
    Struct(usize),
}

/// What programs do with a buffer, so that nothing races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Read at any index.
    Input,
    /// Read at any index, and uniform at uniform ones.
    Uniform,
    /// Each invocation reads and writes its own `per` elements.
    Own,
    /// Each invocation writes its own `per` elements.
    Output,
    /// Results of inexact functions: each invocation writes its own element, once.
    MathOutput,
    /// Atomic operations of one kind anywhere; never read.
    Atomic(AtomicOp),
    /// Atomic operations of all kinds on own elements; old values are used.
    OwnAtomic,
    /// Workgroup memory, written at own elements, read anywhere after a barrier.
    Shared,
    /// Workgroup memory with atomics of one kind, read anywhere after a barrier.
    SharedAtomic(AtomicOp),
}

#[derive(Clone, Debug)]
struct Buffer {
    name: Name,
    role: Role,
    element: Element,
    /// Elements bound.
    length: u32,
    /// Elements that each invocation owns.
    per: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum LocalType {
    Value(Type),
    /// Element, count.
    Array(Type, u32),
    /// Element, rows, columns of an array of arrays.
    Grid(Type, u32, u32),
    /// Position in `structs`.
    Struct(usize),
}

#[derive(Clone, Debug)]
struct Local {
    name: Name,
    ty: LocalType,
    mutable: bool,
}

#[derive(Clone, Debug)]
struct StructInfo {
    id: u32,
    members: Vec<Type>,
    /// The last member may be an array: its type, element and count.
    array: Option<(u32, Type, u32)>,
}

impl StructInfo {
    /// Some part of it has this type.
    fn holds(&self, ty: Type) -> bool {
        self.members.contains(&ty) || self.array.is_some_and(|(_, element, _)| element == ty)
    }
}

/// What workgroup memory is good for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Own,
    Read,
}

struct Generator {
    rng: Rng,
    options: GenOptions,
    types: Vec<TypeDef>,
    structs: Vec<StructInfo>,
    constants: Vec<SpecConstant>,
    buffers: Vec<Buffer>,
    functions: Vec<Function>,
    handed: Vec<handed::Handed>,
    locals: Vec<Local>,
    names: u32,
    /// Statements that may still be made.
    budget: u32,
    phase: Phase,
    workgroup: [u32; 3],
    grid: [u32; 3],
    /// Loops around the current place.
    loops: u32,
    /// `break` and `continue` are allowed here.
    may_leave: bool,
    /// `return` is allowed here: nothing later needs the whole workgroup.
    may_return: bool,
    /// The current place is in a function: no barriers, no workgroup memory.
    in_function: bool,
    /// All invocations of the workgroup come here together.
    uniform: bool,
    /// All invocations of a subgroup do.
    together: bool,
}

impl Generator {
    fn new(rng: Rng, options: GenOptions) -> Generator {
        Generator {
            rng,
            options,
            types: Vec::new(),
            structs: Vec::new(),
            constants: Vec::new(),
            buffers: Vec::new(),
            functions: Vec::new(),
            handed: Vec::new(),
            locals: Vec::new(),
            names: 0,
            budget: 0,
            phase: Phase::Own,
            workgroup: [1; 3],
            grid: [1; 3],
            loops: 0,
            may_leave: false,
            may_return: false,
            in_function: false,
            uniform: true,
            together: true,
        }
    }

    fn fresh(&mut self, prefix: &str) -> Name {
        self.names += 1;
        format!("{prefix}{}", self.names).into()
    }

    fn invocations(&self) -> u32 {
        (0..3).map(|axis| self.workgroup[axis] * self.grid[axis]).product()
    }

    fn case(&mut self) -> Case {
        const SIZES: [[u32; 3]; 14] = [
            [1, 1, 1],
            [2, 1, 1],
            [7, 1, 1],
            [8, 1, 1],
            [16, 1, 1],
            [32, 1, 1],
            [33, 1, 1],
            [64, 1, 1],
            [4, 4, 1],
            [3, 5, 1],
            [1, 8, 1],
            [2, 2, 2],
            [3, 2, 4],
            [1, 1, 5],
        ];
        // How subgroups lie in a workgroup of several dimensions is not specified everywhere.
        let line = self.options.subgroups != Subgroups::None;
        self.workgroup = self.rng.pick(if line { &SIZES[..8] } else { &SIZES });
        for axis in 0..3 {
            let flat = self.workgroup[axis] == 1 && axis > 0;
            self.grid[axis] = if flat && self.rng.chance(3, 4) { 1 } else { self.rng.range(1, 3) };
        }
        while self.invocations() > 256 {
            let axis = (0..3).max_by_key(|&axis| self.grid[axis]).unwrap_or(0);
            if self.grid[axis] == 1 {
                break;
            }
            self.grid[axis] -= 1;
        }
        let (specialization, workgroup_exprs) = self.spec_constants();
        self.type_table();
        let decls = self.make_buffers();
        if self.options.functions {
            for _ in 0..self.rng.range(1, 3) {
                if self.options.handed {
                    self.handed_function();
                } else {
                    self.function();
                }
            }
        }
        let body = self.body();
        let inputs = self.inputs(&decls);
        let mut program = Program::wrapped(decls, self.workgroup, body)
            .with_types(std::mem::take(&mut self.types))
            .with_constants(std::mem::take(&mut self.constants))
            .with_functions(std::mem::take(&mut self.functions))
            .with_workgroup_exprs(workgroup_exprs);
        if self.options.fast {
            program = program.with_math(Math::Fast);
        }
        let mut grid = Some(self.grid);
        if self.rng.chance(1, 4) {
            // Launch by the declared domain instead; up to a workgroup less one invocation smaller, rounded up again.
            let domain = [0, 1, 2].map(|axis| {
                let whole = self.workgroup[axis] * self.grid[axis];
                Expr::u32(whole - self.rng.below(self.workgroup[axis]))
            });
            program = program.with_domain(domain);
            grid = None;
        }
        Case { seed: 0, program, inputs, specialization, grid }
    }

    /// Constants with some values set, and at times a workgroup size that is one of them.
    fn spec_constants(&mut self) -> (Specialization, [Option<Expr>; 3]) {
        let mut specialization = Specialization::new();
        let mut exprs = [None, None, None];
        if !self.options.spec_constants {
            return (specialization, exprs);
        }
        for _ in 0..self.rng.range(1, 4) {
            let mut scalars = vec![Scalar::Bool, Scalar::U32, Scalar::I32];
            if self.options.floats != Floats::None {
                scalars.push(Scalar::F32);
                if self.options.f16 {
                    scalars.push(Scalar::F16);
                }
            }
            let scalar = self.rng.pick(&scalars);
            let name = self.fresh("k");
            let default = self.literal(scalar);
            if self.rng.chance(1, 2) {
                specialization.insert(name.clone(), self.literal(scalar));
            }
            self.constants.push(SpecConstant { name, default });
        }
        if self.rng.chance(1, 3) {
            let axis = self.rng.below(3) as usize;
            let name: Name = "size".into();
            let size = self.workgroup[axis];
            let given = self.rng.chance(1, 2);
            let default = if given { size + 1 } else { size };
            if given {
                specialization.insert(name.clone(), Literal::U32(size));
            }
            self.constants.push(SpecConstant { name: name.clone(), default: Literal::U32(default) });
            exprs[axis] = Some(Expr::constant(name));
        }
        (specialization, exprs)
    }

    /// The number of the invocation in the whole grid.
    fn id_expr(&mut self) -> Expr {
        let width =
            |axis: u8| Expr::Builtin(Builtin::NumWorkgroups(axis)) * Expr::Builtin(Builtin::WorkgroupSize(axis));
        let flat = |axis: usize| self.workgroup[axis] * self.grid[axis] == 1;
        match (flat(1), flat(2)) {
            (true, true) => Expr::global_id(0),
            (_, true) => Expr::global_id(0) + width(0) * Expr::global_id(1),
            _ => Expr::global_id(0) + width(0) * (Expr::global_id(1) + width(1) * Expr::global_id(2)),
        }
    }

    fn function(&mut self) {
        let outer = std::mem::take(&mut self.locals);
        self.in_function = true;
        let name = self.fresh("f");
        let mut params = vec![Param { name: "id".into(), ty: DataType::U32 }];
        for _ in 0..self.rng.range(1, 3) {
            let ty = self.any_type();
            params.push(Param { name: self.fresh("p"), ty: value::data_type(ty) });
            self.locals.push(Local {
                name: params[params.len() - 1].name.clone(),
                ty: LocalType::Value(ty),
                mutable: false,
            });
        }
        self.locals.push(Local { name: "id".into(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
        let result = self.any_type();
        self.budget = self.rng.range(1, 6);
        (self.uniform, self.together) = (false, false);
        let mut body = self.open_statements();
        if self.rng.chance(1, 3) {
            let cond = self.expr(Scalar::Bool.into(), 2);
            let early = self.expr(result, 2);
            body.push(Node::if_then(cond, vec![Node::Return(Some(early))]));
        }
        let value = self.expr(result, 3);
        body.push(Node::Return(Some(value)));
        self.functions.push(Function { name, params, result: Some(value::data_type(result)), body });
        self.in_function = false;
        self.locals = outer;
    }

    fn body(&mut self) -> Vec<Node> {
        (self.uniform, self.together) = (true, true);
        let (low, high) = self.options.statements;
        let total = self.rng.range(low, high.max(low));
        let mut body = vec![Node::let_bind("id", self.id_expr())];
        self.locals.push(Local { name: "id".into(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
        for _ in 0..self.rng.range(2, 4) {
            let node = self.variable();
            body.push(node);
        }
        self.budget = total * 3 / 4;
        body.extend(self.open_statements());
        if self.phase == Phase::Own
            && self.buffers.iter().any(|b| matches!(b.role, Role::Shared | Role::SharedAtomic(_)))
        {
            body.push(Node::Barrier(BarrierScope::Workgroup));
            self.phase = Phase::Read;
        }
        // Nothing from here on needs the whole workgroup.
        (self.uniform, self.together) = (false, false);
        self.may_return = true;
        self.budget = total / 4;
        body.extend(self.open_statements());
        let outputs: Vec<usize> = (0..self.buffers.len())
            .filter(|&i| matches!(self.buffers[i].role, Role::Output | Role::MathOutput | Role::Own))
            .collect();
        for i in outputs {
            for k in 0..self.buffers[i].per {
                let nodes = self.final_store(i, k);
                body.extend(nodes);
            }
        }
        body
    }

    fn any_scalar(&mut self) -> Scalar {
        let mut weights = [2, 6, 6, 0, 0, 0, 0, 0];
        if self.options.int64 {
            weights[3] = 2;
            weights[4] = 2;
        }
        if self.options.floats != Floats::None {
            weights[5] = if self.options.f16 { 2 } else { 0 };
            weights[6] = 6;
            weights[7] = if self.options.f64 { 2 } else { 0 };
        }
        const SCALARS: [Scalar; 8] =
            [Scalar::Bool, Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64, Scalar::F16, Scalar::F32, Scalar::F64];
        SCALARS[self.rng.weighted(&weights)]
    }

    fn numeric_scalar(&mut self) -> Scalar {
        loop {
            let scalar = self.any_scalar();
            if scalar != Scalar::Bool {
                return scalar;
            }
        }
    }

    fn any_type(&mut self) -> Type {
        let scalar = self.any_scalar();
        self.widened(scalar)
    }

    fn widened(&mut self, scalar: Scalar) -> Type {
        let width = if self.options.vectors && self.rng.chance(1, 4) { self.rng.range(2, 4) as u8 } else { 1 };
        Type { scalar, width }
    }

    fn numeric_type(&mut self) -> Type {
        let scalar = self.numeric_scalar();
        self.widened(scalar)
    }

    /// An index that belongs to the invocation, or at times one that is far outside for all.
    fn own_index(&mut self, base: Expr, per: u32) -> Expr {
        if self.rng.chance(1, 16) {
            return match self.rng.below(if self.options.int64 { 5 } else { 3 }) {
                0 => base + Expr::u32(0x8000_0000),
                1 => Expr::i32(-1) - base.cast(DataType::I32),
                2 => Expr::u32(u32::MAX) - base,
                // Wraps to an inner element where a backend looks at the low half only.
                3 => base.cast(DataType::U64) + Expr::u64(1 << 32),
                _ => base.cast(DataType::I64) - Expr::i64(1 << 32),
            };
        }
        let index = if per == 1 {
            base
        } else {
            let which = if self.rng.chance(1, 3) {
                Expr::binary(BinaryOp::Rem, self.leaf(Scalar::U32.into()), Expr::u32(per))
            } else {
                Expr::u32(self.rng.below(per))
            };
            base * Expr::u32(per) + which
        };
        match self.rng.below(if self.options.int64 { 12 } else { 10 }) {
            0 => index.cast(DataType::I32),
            10 => index.cast(DataType::U64),
            11 => index.cast(DataType::I64),
            _ => index,
        }
    }

    fn lanes(&mut self, from: u8, count: u8) -> SmallVec<[u8; 4]> {
        (0..count).map(|_| self.rng.below(u32::from(from)) as u8).collect()
    }
}

/// Declares buffers for [`Buffer`]s.
fn decl(buffer: &Buffer, binding: u32, ty: DataType) -> BufferDecl {
    match buffer.role {
        Role::Input => BufferDecl::read(&buffer.name, binding, ty),
        Role::Uniform => BufferDecl::uniform(&buffer.name, binding, ty),
        Role::Own | Role::Atomic(_) | Role::OwnAtomic => BufferDecl::read_write(&buffer.name, binding, ty),
        Role::Output | Role::MathOutput => BufferDecl::output(&buffer.name, binding, ty),
        Role::Shared | Role::SharedAtomic(_) => BufferDecl::workgroup(&buffer.name, binding, ty),
    }
}
