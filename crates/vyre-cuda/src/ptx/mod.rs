//! Kernel form to PTX text.
//!
//! Every value of the kernel is one virtual register; ptxas assigns the real ones. Values that leave a block are moved into the
//! registers of the results. Out-of-bounds accesses are predicated, never branched around.

mod bytes;
mod early;
mod fields;
mod flatten;
mod floats;
mod forms;
mod indices;
mod latency;
mod meetings;
mod memory;
mod minima;
mod narrow;
mod neighbours;
mod ops;
mod optional;
pub(crate) mod parameters;
mod pitfalls;
mod places;
mod quads;
mod subgroup;

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt::Write;

use vyre_foundation::ir::{Builtin, Literal};
use vyre_foundation::kernel::{
    Approximations, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Options, Scalar, Unrolling, Value,
    each_inst,
};
use vyre_spec::{Diagnostic, codes};

use self::neighbours::Step;
use self::optional::PutOff;
pub use self::parameters::Parameters;

/// The oldest compute capability with every matrix operation.
pub const TENSOR_CORES: u32 = 80;

/// Rounds of a loop over memory whose loads should be under way together.
const ROUNDS_TOGETHER: u32 = 4;

/// What a kernel is lowered with before [`emit`].
pub fn lowering(options: Options) -> Options {
    Options {
        expand_math: true,
        approximations: Approximations::Instructions,
        one_test: true,
        unrolling: Unrolling::FAR,
        rounds_together: ROUNDS_TOGETHER,
        round_ahead: true,
        own_words: true,
        parts_of_words: true,
        long_roots: true,
        fused: true,
        ..options
    }
}

/// What the text is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Compute capability, ten times the major version plus the minor: 90.
    pub sm: u32,
    /// Loops look now and then whether the host wants the launch to end.
    pub interruptible: bool,
}

/// PTX text and what a launch has to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptx {
    /// The module's text.
    pub text: String,
    /// Bytes of shared memory that the launch must ask for; 0 while it fits in the static limit.
    pub dynamic_shared: u32,
    /// There is a second entry, `vyre_kernel_together`, whose blocks run [`TOGETHER`] workgroups each, neighbours along x.
    pub together: bool,
    /// What all entries take.
    pub parameters: Parameters,
}

impl Ptx {
    /// Gives threads no more than so many registers, so that more of them run at once.
    pub fn limit_registers(&mut self, registers: u32) {
        let limited = |line: &str| match line.starts_with(".reqntid ") {
            true => format!("{line}\n.maxnreg {registers}\n"),
            false => format!("{line}\n"),
        };
        self.text = self.text.lines().map(limited).collect();
    }
}

/// Workgroups that a block of the second entry runs.
pub const TOGETHER: u32 = 4;

/// Kernels with more steps gain nothing from running several workgroups side by side, unless they load much.
const MOST_STEPS_TOGETHER: usize = 32;
const MOST_STEPS_TOGETHER_LOADING: usize = 64;
/// Steps for each load of one that loads much.
const STEPS_FOR_A_LOAD: usize = 8;

/// Loads of a workgroup of which several are under way together. More have enough under way by themselves, and what they load for several takes
/// registers from other workgroups.
const MOST_LOADS_TOGETHER: usize = 8;

/// Bytes between the stores of neighbours that are rows of their own.
const FAR_APART: u32 = 1024;

/// Steps of branches that may become predicates.
const MOST_STEPS_PREDICATED: usize = 32;

/// Longer kernels have one way only.
const MOST_VALUES_TWICE: usize = 1 << 13;

/// Shared memory that needs no opt-in.
const STATIC_SHARED: u32 = 48 * 1024;

/// Writes a kernel that was lowered with [`lowering`].
///
/// Parameters of the entry, in order, of which those that it never loads are left out: for each buffer its address and its number of elements (`u64` each), and that number again
/// as a `u32` that saturates; then the whole grid and the first workgroup of this launch (`u32` each, x y z); then an address, or zero,
/// and a number that the kernel writes there when it begins (`u64` each); then, where it is interruptible, the address of two words of
/// 32 bits: when the first is not zero the launch ends early, and says so in the second.
pub fn emit(kernel: &Kernel, target: Target) -> Result<Ptx, Diagnostic> {
    let readied = readied(kernel);
    let kernel = readied.as_ref().map_or(kernel, |(kernel, _)| kernel);
    let mut emitter = Emitter::new(kernel, target, 1);
    emitter.early = readied.as_ref().map(|(_, early)| early);
    emitter.prologue();
    emitter.body()?;
    let single = std::mem::take(&mut emitter.out);
    let mut text = emitter.header();
    let together = gains_together(kernel) && !stores_far_apart(kernel, &emitter.forms);
    // What asks whether it has to end would ask before it loads.
    let quads = if together && !target.interruptible { quads::quads(kernel) } else { None };
    let together = together && (quads.is_some() || loads(kernel) <= MOST_LOADS_TOGETHER);
    let mut several = None;
    if let Some(quads) = &quads {
        let mut emitter = Emitter::new(quads, target, 1);
        emitter.is_merged = true;
        // What moves at once was found; the way for borders is left as it is.
        emitter.indices = None;
        emitter.prologue();
        emitter.block(&quads.body, &Exit::Entry)?;
        several = Some(emitter);
    } else if together {
        let mut emitter = Emitter::new(kernel, target, TOGETHER);
        emitter.prologue();
        // Step by step, so that the loads of all workgroups are under way before the first is needed.
        let mut fields = HashMap::new();
        emitter.fields(&kernel.body, &mut fields);
        for (i, inst) in kernel.body.insts.iter().enumerate() {
            emitter.heed_before(inst);
            let step = fields.remove(&i);
            for copy in 0..TOGETHER {
                emitter.copy = copy;
                match &step {
                    Some(step) => emitter.step(step),
                    None => emitter.inst(inst)?,
                }
            }
        }
        line!(emitter, "ret");
        several = Some(emitter);
    }
    let several_body = several.as_ref().map_or("", |several| &several.out);
    if [single.as_str(), several_body].iter().any(|body| body.contains(memory::ZEROS)) {
        text.push_str(&memory::zeros());
    }
    let parameters = Parameters::loaded(&[&single, several_body], kernel.buffers.len());
    text.push_str(&emitter.entry(ENTRY, &single, &parameters));
    if let Some(several) = &several {
        text.push_str(&several.entry(ENTRY_TOGETHER, &several.out, &parameters));
    }
    Ok(Ptx { text, dynamic_shared: emitter.dynamic_shared, together, parameters })
}

/// Branches of so few steps that the assembler can take them under predicates, if none of them has a predicate already.
fn is_short(then: &Block, otherwise: &Block) -> bool {
    let computes = |inst: &Inst| matches!(inst, Inst::Let(_, op) if !op.is_across_subgroup());
    let steps = || then.insts.iter().chain(&otherwise.insts);
    steps().count() <= MOST_STEPS_PREDICATED && steps().all(computes)
}

/// The kernel with as many loads under way at once as can be seen, and those that stand before barriers; `None` where it stays as it is.
fn readied(kernel: &Kernel) -> Option<(Kernel, HashSet<Value>)> {
    let alone = |kernel: Kernel| (kernel, HashSet::new());
    if let Some(flat) = flatten::flatten(kernel).filter(gains_together) {
        return Some(alone(flat));
    }
    let softened = flatten::soften(kernel);
    early::early(softened.as_ref().unwrap_or(kernel)).or(softened.map(alone))
}

/// Loads outside of branches.
fn loads(kernel: &Kernel) -> usize {
    kernel.body.insts.iter().filter(|inst| matches!(inst, Inst::Let(_, Op::Load { .. }))).count()
}

/// A short kernel without branches that moves data between buffers: one workgroup at a time keeps too little of it under way.
fn gains_together(kernel: &Kernel) -> bool {
    let plain = |inst: &Inst| match inst {
        Inst::Let(_, op) if op.is_across_subgroup() => false,
        Inst::Let(_, Op::Load { address, element, .. }) => {
            matches!(address.memory, Memory::Buffer(_)) && element.bits() != 4
        }
        Inst::Store { element, .. } => element.bits() != 4,
        Inst::Let(..) => true,
        _ => false,
    };
    // Constants are operands, conditions have registers of their own, and what an invocation or a launch is given is at hand.
    let is_step = |inst: &&Inst| match inst {
        Inst::Let(_, Op::Const(_) | Op::Builtin(_) | Op::Length(_) | Op::BitCast(_)) => false,
        Inst::Let(value, _) => kernel.values[value.index()].ty.scalar != Scalar::Bool,
        _ => true,
    };
    let steps = kernel.body.insts.iter().filter(is_step).count();
    let loads = loads(kernel);
    let most = (STEPS_FOR_A_LOAD * loads).clamp(MOST_STEPS_TOGETHER, MOST_STEPS_TOGETHER_LOADING);
    kernel.shared.is_empty()
        && kernel.locals.is_empty()
        && kernel.body.end == End::Return
        && steps <= most
        && kernel.body.insts.iter().all(plain)
        && loads > 0
}

/// What neighbours along x store is rows apart, as in a transposition. Each store is a transaction of its own for every lane then, and more of
/// them at once only wait for each other: on an H200 four workgroups together took 1.3 times as long.
fn stores_far_apart(kernel: &Kernel, forms: &[forms::Form]) -> bool {
    let definitions: HashMap<Value, &Op> = kernel
        .body
        .insts
        .iter()
        .filter_map(|inst| if let Inst::Let(value, op) = inst { Some((*value, op)) } else { None })
        .collect();
    let is_x =
        |value: &Value| matches!(definitions.get(value), Some(Op::Builtin(Builtin::GlobalId(0) | Builtin::LocalId(0))));
    let has_x = |value: &Value| forms[value.index()].terms.iter().any(|(term, _)| is_x(term));
    let is_far = |value: &Value, by: u32| match definitions.get(value) {
        // By a constant it would be part of the form.
        Some(Op::Binary(Binary::Mul, a, b)) => has_x(a) || has_x(b),
        _ => is_x(value) && (FAR_APART..1 << 31).contains(&by),
    };
    kernel.body.insts.iter().any(|inst| match inst {
        Inst::Store { address, .. } => address.terms.iter().any(|(index, stride)| {
            forms[index.index()].terms.iter().any(|(term, by)| is_far(term, by.saturating_mul(*stride)))
        }),
        _ => false,
    })
}

/// Registers with the address of the stop word and what was there.
#[derive(Clone)]
struct StopWord {
    place: String,
    word: String,
}

impl<'k> Emitter<'k> {
    fn new(kernel: &'k Kernel, target: Target, copies: u32) -> Self {
        Emitter {
            kernel,
            target,
            copies,
            copy: 0,
            is_merged: false,
            out: String::with_capacity(4096),
            next_register: kernel.values.len() as u32 * copies,
            next_label: 0,
            wide: vec![[0; 4]; kernel.values.len() * copies as usize],
            loops: Vec::new(),
            constants: HashMap::new(),
            shifted: HashMap::new(),
            powers: neighbours::powers(kernel),
            shared_indices: indices::shared(kernel),
            loaded: indices::loaded(kernel),
            indices: neighbours::Indices::of(kernel),
            hope: None,
            forms: forms::forms(kernel),
            dots: bytes::dots(kernel),
            never_small: floats::never_small(kernel),
            minima: minima::minima(kernel),
            pitfalls: pitfalls::Pitfalls::of(kernel),
            shared_base: Vec::new(),
            places: places::Places::default(),
            dynamic_shared: 0,
            uses_nf4: false,
            loads_zeros: false,
            early: None,
            // Where invocations may leave before others, a warp is not whole.
            of_a_warp: if target.interruptible { HashSet::new() } else { meetings::of_a_warp(kernel) },
            barriers: 0,
            stop: None,
        }
    }
}

/// One name for all, so that it is always a valid identifier and equal kernels have equal text.
const ENTRY: &str = "vyre_kernel";

/// The same as the driver wants it.
pub(crate) const ENTRY_C: &CStr = c"vyre_kernel";

const ENTRY_TOGETHER: &str = "vyre_kernel_together";

/// The same as the driver wants it.
pub(crate) const ENTRY_TOGETHER_C: &CStr = c"vyre_kernel_together";

/// The register class of a type.
fn class(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "%p",
        Scalar::U32 | Scalar::I32 => "%r",
        Scalar::U64 | Scalar::I64 => "%d",
        Scalar::F16 => "%h",
        Scalar::F32 => "%f",
        Scalar::F64 => "%g",
    }
}

/// The type suffix of a move or select.
fn bits_suffix(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "pred",
        Scalar::U32 | Scalar::I32 => "b32",
        Scalar::U64 | Scalar::I64 => "b64",
        Scalar::F16 => "b16",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
    }
}

/// The type suffix of arithmetic.
fn suffix(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "pred",
        Scalar::U32 => "u32",
        Scalar::I32 => "s32",
        Scalar::U64 => "u64",
        Scalar::I64 => "s64",
        Scalar::F16 => "f16",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
    }
}

/// Where a block's `Yield` goes.
enum Exit<'a> {
    /// The kernel's own block has none.
    Entry,
    /// Results of the `If`, then on to the label unless the text falls through to it.
    If { results: &'a [Value], label: Option<u32> },
    /// A loop's body never yields.
    Loop,
}

/// Exits of a loop that are compared with each other.
const MOST_EXITS: usize = 64;

/// What several exits of a loop give, where that is known before the loop.
fn common_exit(body: &Loop) -> Option<&[Value]> {
    fn collect<'a>(block: &'a Block, breaks: &mut Vec<&'a [Value]>) {
        for inst in &block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                collect(then, breaks);
                collect(otherwise, breaks);
            }
        }
        if let End::Break(values) = &block.end {
            breaks.push(values);
        }
    }
    let mut breaks = Vec::new();
    collect(&body.body, &mut breaks);
    if !(2..=MOST_EXITS).contains(&breaks.len()) {
        return None;
    }
    let count = |values: &[Value]| breaks.iter().filter(|other| **other == values).count();
    let common = breaks.iter().copied().filter(|values| !values.is_empty()).max_by_key(|values| count(values))?;
    let mut inside: Vec<Value> =
        body.params.iter().chain(body.counter.iter().map(|counter| &counter.value)).copied().collect();
    each_inst(&body.body, &mut |inst| match inst {
        Inst::Let(value, _) | Inst::Atomic { result: Some(value), .. } => inside.push(*value),
        Inst::If { results, .. } => inside.extend(results),
        Inst::Loop(inner) => inside.extend(&inner.results),
        _ => {}
    });
    (count(common) > 1 && !common.iter().any(|value| inside.contains(value))).then_some(common)
}

/// The labels and registers of a loop around the current block.
struct LoopLabels<'k> {
    params: &'k [Value],
    results: &'k [Value],
    next: u32,
    exit: u32,
    /// What the results already are, since several exits give just that.
    given: Option<&'k [Value]>,
}

struct Emitter<'k> {
    kernel: &'k Kernel,
    target: Target,
    /// Workgroups that a block runs, and which of them the text is being written for.
    copies: u32,
    copy: u32,
    /// The kernel itself does the work of [`TOGETHER`] workgroups along x.
    is_merged: bool,
    out: String,
    next_register: u32,
    next_label: u32,
    /// Registers of the components of values wider than one.
    wide: Vec<[u32; 4]>,
    loops: Vec<LoopLabels<'k>>,
    /// 32-bit integer constants by value.
    constants: HashMap<Value, i64>,
    /// Words that are others, shifted to the left by so many bits.
    shifted: HashMap<Value, (Value, u32)>,
    /// Powers of two that divide the values.
    powers: Vec<u8>,
    /// Terms of addresses that several buffers have.
    shared_indices: HashSet<(Value, u32)>,
    /// What each invocation loads for itself.
    loaded: HashSet<Value>,
    indices: Option<neighbours::Indices>,
    /// What the way that is being written takes for granted.
    hope: Option<neighbours::Hope>,
    forms: Vec<forms::Form>,
    /// Sums of products of bytes.
    dots: HashMap<Value, bytes::Dot>,
    /// Floats that are never subnormal.
    never_small: Vec<bool>,
    minima: HashMap<Value, minima::Minimum>,
    pitfalls: pitfalls::Pitfalls,
    /// The registers with the addresses of each shared memory, and of places in them.
    shared_base: Vec<String>,
    places: places::Places,
    dynamic_shared: u32,
    uses_nf4: bool,
    /// What is out of bounds is loaded from among zeros, so that the branch which is being written can become predicates.
    loads_zeros: bool,
    /// Loads that stand before a barrier and stay there.
    early: Option<&'k HashSet<Value>>,
    /// Barriers that are only for the first warp, and how many of all are written.
    of_a_warp: HashSet<usize>,
    barriers: usize,
    /// What was asked when the kernel began, until it is heeded.
    stop: Option<StopWord>,
}

macro_rules! line {
    ($emitter:expr, $($arg:tt)*) => {{
        $emitter.out.push('\t');
        // Writing to a String can't fail.
        _ = write!($emitter.out, $($arg)*);
        $emitter.out.push_str(";\n");
    }};
}
use line;

impl<'k> Emitter<'k> {
    /// Writes the kernel: where it accesses four neighbours at once if some sizes are multiples of four, one way for such sizes and one for others.
    fn body(&mut self) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        if self.indices.is_none() || kernel.values.len() > MOST_VALUES_TWICE {
            return self.block(&kernel.body, &Exit::Entry);
        }
        let (before, stop) = (std::mem::take(&mut self.out), self.stop.clone());
        self.hope = Some(neighbours::Hope::default());
        self.block(&kernel.body, &Exit::Entry)?;
        let hoping = std::mem::replace(&mut self.out, before);
        let hope = self.hope.take().filter(|hope| hope.any);
        if hope.as_ref().is_some_and(neighbours::Hope::is_sure) {
            self.out.push_str(&hoping);
            return Ok(());
        }
        (self.barriers, self.stop) = (0, stop);
        if let Some(hope) = hope {
            let elsewhere = self.label();
            self.test_hope(&hope, elsewhere);
            self.out.push_str(&hoping);
            self.place(elsewhere);
        }
        self.block(&kernel.body, &Exit::Entry)
    }

    fn header(&self) -> String {
        let mut text = String::with_capacity(4096);
        // The oldest version that knows the device, so that drivers as old as the device take the text.
        let version = match self.target.sm {
            ..=79 => "7.0",
            80..=88 => "7.4",
            89..=99 => "7.8",
            100..=102 | 120 => "8.7",
            _ => "8.8",
        };
        _ = write!(text, ".version {version}\n.target sm_{}\n.address_size 64\n\n", self.target.sm);
        if self.dynamic_shared > 0 {
            text.push_str(".extern .shared .align 16 .b8 vyre_shared[];\n");
        }
        if self.uses_nf4 {
            text.push_str(&narrow::levels());
        }
        text
    }

    fn entry(&self, name: &str, body: &str, parameters: &Parameters) -> String {
        let kernel = self.kernel;
        let mut text = String::with_capacity(body.len() + 2048);
        _ = writeln!(text, ".visible .entry {name}(");
        text.push_str(&parameters.declared());
        let [x, y, z] = kernel.workgroup_size;
        _ = write!(text, "\n)\n.reqntid {x}, {y}, {z}\n");
        if let Some(enough) = latency::enough_workgroups(kernel) {
            _ = writeln!(text, ".minnctapersm {enough}");
        }
        text.push_str("{\n");
        for (class, ty) in [("p", "pred"), ("r", "b32"), ("d", "b64"), ("h", "b16"), ("f", "f32"), ("g", "f64")] {
            _ = writeln!(text, "\t.reg .{ty} %{class}<{}>;", self.next_register.max(1));
        }
        for index in 0..kernel.buffers.len() {
            _ = writeln!(text, "\t.reg .b64 %buffer{index};");
        }
        for index in 0..kernel.shared.len() {
            _ = writeln!(text, "\t.reg .b32 %shared{index};");
        }
        if self.dynamic_shared == 0 {
            for (index, memory) in kernel.shared.iter().enumerate() {
                let size = memory.size.max(1).next_multiple_of(16);
                _ = writeln!(text, "\t.shared .align 16 .b8 shared{index}[{size}];");
            }
        }
        for (index, memory) in kernel.locals.iter().enumerate() {
            // Of a smaller array the assembler makes registers, and of each access as many tests and selections as it has words.
            let bytes = memory.size.max(64).next_multiple_of(16);
            _ = writeln!(text, "\t.local .align 16 .b8 local{index}[{bytes}];");
        }
        text.push_str(body);
        text.push_str("}\n");
        text
    }

    fn prologue(&mut self) {
        self.begin();
        if self.target.interruptible {
            self.stop = Some(self.load_stop_word());
        }
        self.clear_locals();
        self.clear_shared();
    }

    /// Marks the start, and readies the addresses of all memory.
    fn begin(&mut self) {
        let kernel = self.kernel;
        let shared: u32 = kernel.shared.iter().map(|memory| memory.size.next_multiple_of(16)).sum();
        if shared > STATIC_SHARED {
            self.dynamic_shared = shared;
        }
        let mut offset = 0;
        for (index, memory) in kernel.shared.iter().enumerate() {
            if self.dynamic_shared > 0 {
                line!(self, "mov.u32 %shared{index}, vyre_shared+{offset}");
            } else {
                line!(self, "mov.u32 %shared{index}, shared{index}");
            }
            self.shared_base.push(format!("%shared{index}"));
            offset += memory.size.next_multiple_of(16);
        }
        self.mark_start();
        for (index, buffer) in kernel.buffers.iter().enumerate() {
            if buffer.read || buffer.written || buffer.atomic {
                line!(self, "ld.param.u64 %buffer{index}, [buffer{index}]");
                line!(self, "cvta.to.global.u64 %buffer{index}, %buffer{index}");
            }
        }
    }

    /// A fresh register of a class.
    fn temp(&mut self, class: &str) -> String {
        let number = self.next_register;
        self.next_register += 1;
        format!("{class}{number}")
    }

    fn temp_of(&mut self, scalar: Scalar) -> String {
        self.temp(class(scalar))
    }

    fn label(&mut self) -> u32 {
        self.next_label += 1;
        self.next_label
    }

    fn place(&mut self, label: u32) {
        _ = writeln!(self.out, "L{label}:");
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn width(&self, value: Value) -> u8 {
        self.kernel.values[value.index()].ty.width
    }

    /// The number of a value among those of all copies.
    fn slot(&self, value: Value) -> usize {
        value.index() + self.copy as usize * self.kernel.values.len()
    }

    /// The register of a value of width 1.
    fn reg(&self, value: Value) -> String {
        format!("{}{}", class(self.scalar(value)), self.slot(value))
    }

    /// The register of a component.
    fn component(&self, value: Value, lane: u8) -> String {
        if self.width(value) == 1 {
            return self.reg(value);
        }
        format!("{}{}", class(self.scalar(value)), self.wide[self.slot(value)][usize::from(lane)])
    }

    /// Makes the registers of a value wider than one.
    fn define_wide(&mut self, value: Value) {
        let width = self.width(value);
        if width > 1 {
            for lane in 0..usize::from(width) {
                let slot = self.slot(value);
                self.wide[slot][lane] = self.next_register;
                self.next_register += 1;
            }
        }
    }

    fn block(&mut self, block: &'k Block, exit: &Exit<'_>) -> Result<(), Diagnostic> {
        let places = self.places.count();
        let mut neighbours = self.neighbours(block);
        let mut put_off = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            self.heed_before(inst);
            if self.can_be_put_off(block, i) {
                put_off.extend(self.put_off(inst)?);
                continue;
            }
            match neighbours.remove(&i) {
                Some(step) => self.step(&step),
                None => self.inst(inst)?,
            }
        }
        match &block.end {
            End::Yield(values) => match exit {
                Exit::If { results, label } => {
                    self.copy(values, results);
                    if let Some(label) = label {
                        line!(self, "bra L{label}");
                    }
                }
                Exit::Entry | Exit::Loop => return Err(malformed("a block yields where nothing takes its values")),
            },
            End::Continue(values) => {
                let (params, next) = self.innermost().map(|labels| (labels.params, labels.next))?;
                let is_moved = |param: &Value| !put_off.iter().any(|load: &PutOff| load.target == *param);
                let moved = values.iter().zip(params).filter(|(_, param)| is_moved(param));
                let (values, params): (Vec<Value>, Vec<Value>) = moved.unzip();
                self.copy(&values, &params);
                self.load_put_off(&put_off);
                line!(self, "bra L{next}");
            }
            End::Break(values) => {
                let (results, exit, given) =
                    self.innermost().map(|labels| (labels.results, labels.exit, labels.given))?;
                if given != Some(values) {
                    self.copy(values, results);
                }
                line!(self, "bra L{exit}");
            }
            End::Return => line!(self, "ret"),
            End::Unreachable => {}
        }
        self.places.forget_from(places);
        Ok(())
    }

    /// Loads or stores what lies side by side.
    fn step(&mut self, step: &Step) {
        match step {
            Step::First(values, address, ty) => self.load_neighbours(values, address, ty),
            Step::Last(values, address, ty) => self.store_neighbours(values, address, ty),
            Step::Four(four) => self.load_four(four),
            Step::StoreFour(four) => self.store_four(four),
            Step::LoadFields(fields) => self.load_fields(fields),
            Step::StoreFields(fields) => self.store_fields(fields),
            Step::Done => {}
        }
    }

    fn innermost(&self) -> Result<&LoopLabels<'k>, Diagnostic> {
        self.loops.last().ok_or_else(|| malformed("a block continues or breaks outside a loop"))
    }

    /// Moves values into registers as if all at once.
    fn copy(&mut self, from: &[Value], to: &[Value]) {
        let mut pending: Vec<(String, String, Scalar)> = Vec::new();
        for (&from, &to) in from.iter().zip(to) {
            if from == to {
                continue;
            }
            let scalar = self.scalar(to);
            // A source that an earlier move overwrites is saved first.
            let source = if to_contains(to_registers(&pending), &self.reg(from)) {
                let saved = self.temp_of(scalar);
                let line = format!("\tmov.{} {saved}, {};\n", bits_suffix(scalar), self.reg(from));
                self.out.push_str(&line);
                saved
            } else {
                self.reg(from)
            };
            pending.push((self.reg(to), source, scalar));
        }
        for (to, from, scalar) in pending {
            line!(self, "mov.{} {to}, {from}", bits_suffix(scalar));
        }
    }

    fn inst(&mut self, inst: &'k Inst) -> Result<(), Diagnostic> {
        match inst {
            Inst::Let(value, op) => self.op(*value, op),
            Inst::Store { address, element, value, guard } => {
                self.store(address, *element, *value, *guard);
                Ok(())
            }
            Inst::Atomic { op, address, element, value, compare, result, guard } => {
                self.atomic(*op, address, *element, *value, *compare, *result, *guard)
            }
            Inst::Barrier(_) => {
                if self.of_a_warp.contains(&self.barriers) {
                    line!(self, "bar.warp.sync 0xffffffff");
                } else {
                    line!(self, "bar.sync 0");
                }
                self.barriers += 1;
                Ok(())
            }
            Inst::If { cond, then, otherwise, results } => {
                if self.optional_loads(*cond, then, otherwise, results)? {
                    return Ok(());
                }
                let is_uniform = self.kernel.values[cond.index()].uniform;
                let uniform = if is_uniform { ".uni" } else { "" };
                if let Some((exit, leaves)) = self.plain_exit(then, otherwise) {
                    let cond = self.reg(*cond);
                    line!(self, "@{}{cond} bra{uniform} L{exit}", if leaves { "" } else { "!" });
                    return Ok(());
                }
                let outer = std::mem::replace(&mut self.loads_zeros, !is_uniform && is_short(then, otherwise));
                let end = self.label();
                let cond = self.reg(*cond);
                if let (true, End::Yield(values)) = (otherwise.insts.is_empty(), &otherwise.end) {
                    // What stays as it is, is there before the branch: so the assembler keeps it in one register.
                    self.copy(values, results);
                    line!(self, "@!{cond} bra{uniform} L{end}");
                    self.block(then, &Exit::If { results, label: None })?;
                } else {
                    let other = self.label();
                    line!(self, "@!{cond} bra{uniform} L{other}");
                    self.block(then, &Exit::If { results, label: Some(end) })?;
                    self.place(other);
                    self.block(otherwise, &Exit::If { results, label: None })?;
                }
                self.place(end);
                self.loads_zeros = outer;
                Ok(())
            }
            Inst::Loop(body) => self.repeat(body),
        }
    }

    /// One way does nothing but leave the loop, with the results as they are: where to, and whether it is the first way.
    fn plain_exit(&self, then: &Block, otherwise: &Block) -> Option<(u32, bool)> {
        let labels = self.loops.last()?;
        let given = labels.given?;
        let leaves =
            |block: &Block| block.insts.is_empty() && matches!(&block.end, End::Break(values) if values == given);
        let stays = |block: &Block| block.insts.is_empty() && matches!(block.end, End::Yield(_));
        match (leaves(then) && stays(otherwise), stays(then) && leaves(otherwise)) {
            (true, _) => Some((labels.exit, true)),
            (_, true) => Some((labels.exit, false)),
            _ => None,
        }
    }

    fn repeat(&mut self, body: &'k Loop) -> Result<(), Diagnostic> {
        let (head, next, exit) = (self.label(), self.label(), self.label());
        self.copy(&body.init, &body.params);
        let given = common_exit(body);
        if let Some(values) = given {
            self.copy(values, &body.results);
        }
        let mut done = exit;
        let look = body.look.filter(|_| self.target.interruptible);
        // Where a counted loop looks next; of another loop, the rounds until it looks.
        let left = self.temp("%r");
        if let Some(Counter { value, from, to, step }) = body.counter {
            let (counter, from, to) = (self.reg(value), self.reg(from), self.reg(to));
            let ty = suffix(self.scalar(value));
            line!(self, "mov.b32 {counter}, {from}");
            if !body.results.is_empty() {
                done = self.label();
            }
            let over = self.temp("%p");
            line!(self, "setp.ge.{ty} {over}, {counter}, {to}");
            line!(self, "@{over} bra L{done}");
            if let Some(rounds) = look {
                self.stretch(&left, &counter, &to, rounds, step);
            }
        } else if let Some(rounds) = look {
            line!(self, "mov.u32 {left}, {rounds}");
        }
        let places = self.places.count();
        self.places_before(body);
        self.place(head);
        if body.rare {
            self.out.push_str("\t.pragma \"nounroll\";\n");
        }
        self.loops.push(LoopLabels { params: &body.params, results: &body.results, next, exit, given });
        self.block(&body.body, &Exit::Loop)?;
        self.loops.pop();
        self.place(next);
        if let (Some(rounds), None) = (look, body.counter) {
            let (skip, more) = (self.label(), self.temp("%p"));
            line!(self, "sub.u32 {left}, {left}, 1");
            line!(self, "setp.ne.u32 {more}, {left}, 0");
            line!(self, "@{more} bra L{skip}");
            line!(self, "mov.u32 {left}, {rounds}");
            self.look_at_stop_word();
            self.place(skip);
        }
        if let Some(Counter { value, to, step, .. }) = body.counter {
            let (counter, limit) = (self.reg(value), self.reg(to));
            let to = if look.is_some() { left.clone() } else { limit.clone() };
            let ty = suffix(self.scalar(value));
            let more = self.temp("%p");
            if step == 1 {
                // The counter is below the limit, so this can't wrap.
                line!(self, "add.{ty} {counter}, {counter}, 1");
                line!(self, "setp.lt.{ty} {more}, {counter}, {to}");
            } else {
                let left = self.temp("%r");
                line!(self, "sub.u32 {left}, {to}, {counter}");
                line!(self, "setp.gt.u32 {more}, {left}, {step}");
                line!(self, "add.{ty} {counter}, {counter}, {}", step as i32);
            }
            line!(self, "@{more} bra L{head}");
            if let Some(rounds) = look {
                let over = self.temp("%p");
                line!(self, "setp.eq.u32 {over}, {left}, {limit}");
                line!(self, "@{over} bra L{done}");
                self.look_at_stop_word();
                self.stretch(&left, &counter, &limit, rounds, step);
                line!(self, "bra L{head}");
            }
            if done != exit {
                self.place(done);
                self.copy(&body.params, &body.results);
            }
        } else {
            line!(self, "bra L{head}");
        }
        self.place(exit);
        self.places.forget_from(places);
        Ok(())
    }

    /// Sets `end` to where a counter is after so many rounds, or to the limit when that is not beyond it.
    fn stretch(&mut self, end: &str, counter: &str, limit: &str, rounds: u32, step: u32) {
        let (far, distance) = (self.temp("%p"), self.temp("%r"));
        let stretch = rounds.saturating_mul(step).min(i32::MAX as u32) / step * step;
        line!(self, "sub.u32 {distance}, {limit}, {counter}");
        line!(self, "setp.gt.u32 {far}, {distance}, {stretch}");
        line!(self, "add.u32 {end}, {counter}, {stretch}");
        line!(self, "selp.b32 {end}, {end}, {limit}, {far}");
    }

    /// One invocation of the launch says that it has begun, and so that what was before it is over.
    fn mark_start(&mut self) {
        let (sum, part) = (self.temp("%r"), self.temp("%r"));
        line!(self, "mov.u32 {sum}, %ctaid.x");
        let axes = ["x", "y", "z"].into_iter().zip(self.kernel.workgroup_size);
        let threads = axes.filter(|(_, size)| *size > 1).map(|(axis, _)| format!("%tid.{axis}"));
        for place in ["%ctaid.y".to_owned(), "%ctaid.z".to_owned()].into_iter().chain(threads) {
            line!(self, "mov.u32 {part}, {place}");
            line!(self, "or.b32 {sum}, {sum}, {part}");
        }
        let (mark, number) = (self.temp("%d"), self.temp("%d"));
        let (is_first, is_wanted) = (self.temp("%p"), self.temp("%p"));
        line!(self, "ld.param.u64 {mark}, [mark]");
        line!(self, "ld.param.u64 {number}, [number]");
        line!(self, "setp.eq.u32 {is_first}, {sum}, 0");
        line!(self, "setp.ne.and.u64 {is_wanted}, {mark}, 0, {is_first}");
        line!(self, "@{is_wanted} st.relaxed.sys.global.u64 [{mark}], {number}");
    }

    /// Ends the invocation when the host wants the launch to end.
    fn look_at_stop_word(&mut self) {
        let stop = self.load_stop_word();
        self.heed(&stop);
    }

    /// Asks whether the host wants the launch to end.
    fn load_stop_word(&mut self) -> StopWord {
        let (place, word) = (self.temp("%d"), self.temp("%r"));
        line!(self, "ld.param.u64 {place}, [stop]");
        line!(self, "cvta.to.global.u64 {place}, {place}");
        line!(self, "ld.relaxed.gpu.global.u32 {word}, [{place}]");
        StopWord { place, word }
    }

    /// Workgroups that start after the host gave up don't start to work. Nothing that others see is done before the first step that is more
    /// than arithmetic and loads, so that the stop word is waited for only there.
    fn heed_before(&mut self, inst: &Inst) {
        if !matches!(inst, Inst::Let(..))
            && let Some(stop) = self.stop.take()
        {
            self.heed(&stop);
        }
    }

    /// Ends the invocation when the answer is yes.
    fn heed(&mut self, stop: &StopWord) {
        let (StopWord { place, word }, go_on) = (stop, self.temp("%p"));
        line!(self, "setp.eq.u32 {go_on}, {word}, 0");
        line!(self, "@!{go_on} st.relaxed.gpu.global.u32 [{place}+4], 1");
        line!(self, "@!{go_on} exit");
    }

    /// Reads what an invocation is given into a register.
    fn builtin(&mut self, into: &str, builtin: Builtin) -> Result<(), Diagnostic> {
        const AXES: [&str; 3] = ["x", "y", "z"];
        let axis = |axis: u8| AXES.get(usize::from(axis)).copied().ok_or_else(|| malformed("an axis is over 2"));
        let size = self.kernel.workgroup_size;
        match builtin {
            Builtin::LocalId(n) => line!(self, "mov.u32 {into}, %tid.{}", axis(n)?),
            Builtin::NumWorkgroups(n) => line!(self, "ld.param.u32 {into}, [grid_{}]", axis(n)?),
            Builtin::WorkgroupSize(n) => line!(self, "mov.u32 {into}, {}", size[usize::from(n.min(2))]),
            Builtin::WorkgroupId(n) => self.workgroup_id(into, axis(n)?),
            Builtin::GlobalId(n) => {
                let (group, local) = (self.temp("%r"), self.temp("%r"));
                self.workgroup_id(&group, axis(n)?);
                line!(self, "mov.u32 {local}, %tid.{}", axis(n)?);
                line!(self, "mad.lo.u32 {into}, {group}, {}, {local}", size[usize::from(n)]);
            }
            Builtin::LocalIndex => self.local_index(into),
            Builtin::SubgroupSize => line!(self, "mov.u32 {into}, 32"),
            Builtin::SubgroupLane => {
                self.local_index(into);
                line!(self, "and.b32 {into}, {into}, 31");
            }
            Builtin::SubgroupId => {
                self.local_index(into);
                line!(self, "shr.u32 {into}, {into}, 5");
            }
            Builtin::NumSubgroups => line!(self, "mov.u32 {into}, {}", self.invocations().div_ceil(32)),
        }
        Ok(())
    }

    fn invocations(&self) -> u32 {
        self.kernel.workgroup_size.iter().product()
    }

    fn workgroup_id(&mut self, into: &str, axis: &str) {
        let base = self.temp("%r");
        line!(self, "ld.param.u32 {base}, [base_{axis}]");
        line!(self, "mov.u32 {into}, %ctaid.{axis}");
        if axis == "x" && self.is_merged {
            line!(self, "shr.u32 {base}, {base}, {}", TOGETHER.ilog2());
        }
        if axis == "x" && self.copies > 1 {
            line!(self, "mad.lo.u32 {into}, {into}, {}, {}", self.copies, self.copy);
        }
        line!(self, "add.u32 {into}, {into}, {base}");
    }

    fn local_index(&mut self, into: &str) {
        let [x, y, _] = self.kernel.workgroup_size;
        let (row, plane) = (self.temp("%r"), self.temp("%r"));
        line!(self, "mov.u32 {row}, %tid.y");
        line!(self, "mov.u32 {plane}, %tid.z");
        line!(self, "mad.lo.u32 {row}, {plane}, {y}, {row}");
        line!(self, "mov.u32 {plane}, %tid.x");
        line!(self, "mad.lo.u32 {into}, {row}, {x}, {plane}");
    }

    fn op(&mut self, value: Value, op: &Op) -> Result<(), Diagnostic> {
        self.define_wide(value);
        match op {
            Op::Const(Literal::U32(number)) => _ = self.constants.insert(value, i64::from(*number)),
            Op::Const(Literal::I32(number)) => _ = self.constants.insert(value, i64::from(*number)),
            Op::Binary(Binary::Shl, word, by) if self.scalar(value) == Scalar::U32 => {
                self.shifted.extend(self.shift_count(*by).map(|by| (value, (*word, by))));
            }
            Op::Binary(Binary::Shr, word, by) if self.field(value, *word, *by) => return Ok(()),
            _ => {}
        }
        match op {
            Op::Builtin(builtin) => {
                let into = self.reg(value);
                self.builtin(&into, *builtin)
            }
            Op::Length(buffer) => {
                let into = self.reg(value);
                match self.scalar(value) {
                    Scalar::U64 => line!(self, "ld.param.u64 {into}, [length{buffer}]"),
                    _ => line!(self, "ld.param.u32 {into}, [count{buffer}]"),
                }
                Ok(())
            }
            Op::Load { address, element, guard } => {
                self.load(value, address, *element, *guard);
                Ok(())
            }
            Op::Extract(whole, lane) => {
                let (into, from) = (self.reg(value), self.component(*whole, *lane));
                line!(self, "mov.{} {into}, {from}", bits_suffix(self.scalar(value)));
                Ok(())
            }
            Op::Construct(parts) => {
                for (lane, part) in parts.iter().enumerate() {
                    let (into, from) = (self.component(value, lane as u8), self.reg(*part));
                    line!(self, "mov.{} {into}, {from}", bits_suffix(self.scalar(*part)));
                }
                Ok(())
            }
            Op::Subgroup(op, operand, argument) => self.subgroup(value, *op, *operand, *argument),
            Op::Matrix(matrix) => self.matrix(value, matrix),
            _ => self.arithmetic(value, op),
        }
    }
}

fn to_registers(pending: &[(String, String, Scalar)]) -> impl Iterator<Item = &str> {
    pending.iter().map(|(to, _, _)| to.as_str())
}

fn to_contains<'a>(mut registers: impl Iterator<Item = &'a str>, register: &str) -> bool {
    registers.any(|to| to == register)
}

/// A kernel that breaks the rules of the kernel form; the optimiser never makes one.
fn malformed(what: &str) -> Diagnostic {
    Diagnostic::new(&codes::cuda::MALFORMED, format!("the kernel is malformed: {what}"))
}

/// What the optimiser expands into basic operations before it comes here.
fn not_expanded(what: &str) -> Diagnostic {
    Diagnostic::new(&codes::backend::UNSUPPORTED_FEATURE, format!("{what} reached the CUDA emitter unexpanded"))
}

/// The memory space as PTX writes it.
fn space(memory: Memory) -> &'static str {
    match memory {
        Memory::Buffer(_) => "global",
        Memory::Shared(_) => "shared",
        Memory::Local(_) => "local",
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use super::*;

    #[test]
    fn a_launch_that_can_be_ended_waits_for_the_stop_word_beside_its_data() {
        let body =
            vec![Node::store("out", Expr::global_id(0), Expr::load("data", Expr::global_id(0)) + Expr::f32(1.0))];
        let buffers = vec![BufferDecl::read("data", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)];
        let program = Program::wrapped(buffers, [64, 1, 1], body).validate().expect("valid");
        let kernel = lower(&program, &lowering(Options { interruptible: true, ..Options::default() })).expect("lowers");
        let text = emit(&kernel, Target { sm: 90, interruptible: true }).expect("text").text;
        let together = &text[text.find(ENTRY_TOGETHER).expect("several workgroups in one")..];
        let at = |part: &str| together.find(part).unwrap_or_else(|| panic!("no {part} in {together}"));
        assert!(at("ld.relaxed.gpu") < at("ld.global"), "{together}");
        assert!(
            together.rfind("ld.global.").expect("loads") < at("exit") && at("exit") < at("st.global"),
            "{together}"
        );
    }

    fn text_of(source: &str) -> String {
        let program = vyre_foundation::text::parse(source).unwrap_or_else(|problem| panic!("{problem:?}"));
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn workgroups_whose_stores_are_rows_apart_run_alone() {
        for (place, is_together) in [
            ("global_id.y * size[0] + global_id.x", true),
            ("global_id.x * 3 + global_id.y", true),
            ("global_id.x * size[0] + global_id.y", false),
            ("(global_id.x + 1) * size[0]", false),
            ("global_id.x * 1024 + global_id.y", false),
        ] {
            let text = text_of(&format!(
                "read data: u32 @0;
                read_write out: u32 @1;
                uniform size: u32[1] @2;
                workgroup_size [16, 16, 1];
                entry main {{ out[{place}] = data[global_id.y * size[0] + global_id.x]; }}"
            ));
            assert_eq!(text.contains(ENTRY_TOGETHER), is_together, "{place}\n{text}");
        }
    }

    #[test]
    fn three_words_of_workgroup_memory_are_loaded_at_once() {
        for (element, is_at_once) in [("vec<f32, 3>[32]", true), ("vec<u32, 3>[32]", true), ("f32[96]", false)] {
            let [zero, what] = match is_at_once {
                true => ["data[local_id.x]", "let p = points[k]; s = s + p.x * p.y + p.z;"],
                false => ["data[local_id.x].x", "s = s + points[k * 3] * points[k * 3 + 1] + points[k * 3 + 2];"],
            };
            let (scalar, none) = if element.contains("u32") { ("u32", "0") } else { ("f32", "0.0") };
            let text = text_of(&format!(
                "read data: vec<{scalar}, 3> @0;
                read_write out: {scalar} @1;
                workgroup points: {element} @2;
                workgroup_size [32, 1, 1];
                entry main {{
                    points[local_id.x] = {zero};
                    barrier;
                    var s: {scalar} = {none};
                    for k in 0..32 {{ {what} }}
                    out[global_id.x] = s;
                }}"
            ));
            let at_once = text.matches(&format!("ld.shared.v4.{scalar}")).count() == 32;
            assert_eq!(at_once, is_at_once, "{element}\n{text}");
        }
    }
}
