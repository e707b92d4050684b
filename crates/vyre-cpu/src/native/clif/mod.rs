//! The second emitter: machine instructions as Cranelift's form, for processors without an emitter of our own.
//!
//! Lowering is the same as for x86-64, with vectors of 128 bits. Here each machine instruction becomes the operations that mean
//! the same; Cranelift allocates registers again. Code is position-independent and needs no relocations: constants lie behind it,
//! and the only function it calls is the helper that the context names.

mod half;
mod memory;
mod rare;
mod scalar;
mod target;
mod vector;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    self, AbiParam, Endianness, Function, InstBuilder, MemFlagsData, SigRef, Signature, StackSlot, StackSlotData,
    StackSlotKind, Type, UserFuncName, Value, types,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

pub(super) use target::Target;

use super::asm::{Cond, Label};
use super::context;
use super::emit::MAX_FRAME;
use super::lower::Lowered;
use super::mir::{Class, M, R};

/// Instructions beyond which compiling would take too long.
const MAX_INSTRUCTIONS: usize = 60_000;

/// Compiles a lowering; `None` when it uses an instruction that has no form here, is too long, or needs too much stack.
pub(super) fn compile(lowered: &Lowered, target: &Target) -> Option<Vec<u8>> {
    if lowered.code.len() > MAX_INSTRUCTIONS {
        return None;
    }
    let mut context = Context::new();
    context.func = Function::with_name_signature(UserFuncName::user(0, 0), entry(target));
    let mut scratch = FunctionBuilderContext::new();
    let mut emitter = Emitter::new(&mut context.func, &mut scratch, lowered, target);
    for (at, m) in lowered.code.iter().enumerate() {
        emitter.instruction(m, at)?;
    }
    emitter.finish();
    let compiled = context.compile(target.isa(), &mut ControlPlane::default()).ok()?;
    if compiled.buffer.frame_layout().is_none_or(|frame| frame.frame_to_fp_offset > MAX_FRAME) {
        return None;
    }
    if target.is_riscv() && !returns_its_stack(compiled.code_buffer()) {
        return None;
    }
    // Bytes that have to be changed to where they lie would not survive in a cache.
    compiled.buffer.relocs().is_empty().then(|| compiled.code_buffer().to_vec())
}

/// Code for riscv64 gives the stack back that it took. To add more than an immediate holds, Cranelift puts the size into `t6` with
/// two instructions before the one that adds it; where jumps of a long function are too far for their reach it may place longer
/// ones right between these, whose way around goes through `t6` as well (cranelift-codegen 0.135). Such code is found here.
fn returns_its_stack(code: &[u8]) -> bool {
    let half = |at: usize| code.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
    let loads = |end: usize| end >= 4 && word(end - 4) & 0xfff == 0xfb7 || end >= 2 && half(end - 2) & 0xef83 == 0x6f81;
    (0..code.len()).step_by(2).all(|at| {
        // add sp, sp, t6
        if half(at) != 0x917e && word(at) != 0x01f1_0133 {
            return true;
        }
        // lui t6, or lui t6 and addi t6, t6
        loads(at) || at >= 4 && word(at - 4) & 0xf_ffff == 0xf_8f93 && loads(at - 4)
    })
}

fn entry(target: &Target) -> Signature {
    let mut signature = Signature::new(call_conv(target));
    signature.params.push(AbiParam::new(types::I64));
    for _ in 0..4 {
        signature.params.push(AbiParam::new(types::I32));
    }
    signature
}

/// As `code::Entry` and the helper are declared.
fn call_conv(target: &Target) -> CallConv {
    if target.is_x86() { CallConv::SystemV } else { target.isa().default_call_conv() }
}

/// What the last instruction that sets flags compared.
#[derive(Clone, Copy)]
enum Flags {
    None,
    /// Two integers of the same width.
    Compared(Value, Value),
    /// Whether a mask has lanes.
    Any(Value),
}

struct Emitter<'a> {
    builder: FunctionBuilder<'a>,
    target: &'a Target,
    pool: &'a [u8],
    general: Vec<Variable>,
    vector: Vec<Variable>,
    labels: Vec<ir::Block>,
    /// The last jump to each label, and whether it is bound already.
    last_jump: Vec<Option<usize>>,
    bound: Vec<bool>,
    helper: SigRef,
    context: Value,
    /// First and end workgroup along x, y and z.
    args: [Value; 4],
    zeros: Value,
    /// The columns through which the helper is given operands.
    scratch: Value,
    /// Where lanes that are not active write.
    dump: StackSlot,
    flags: Flags,
    /// Registers that hold the signs of a mask, in this block.
    signs: Vec<(R, Value)>,
    /// The register with the address of the word that stops loops.
    stop: Option<R>,
    /// Nothing comes here.
    dead: bool,
}

/// How memory is accessed: inside its bounds, but at any alignment.
fn access() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// The context does not change while code runs.
fn constant() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

impl<'a> Emitter<'a> {
    fn new(
        func: &'a mut Function,
        scratch: &'a mut FunctionBuilderContext,
        lowered: &'a Lowered,
        target: &'a Target,
    ) -> Emitter<'a> {
        let dump = func.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 16, 4));
        let mut helper = Signature::new(call_conv(target));
        helper.params.extend([AbiParam::new(types::I64), AbiParam::new(types::I64)]);
        let helper = func.import_signature(helper);
        let mut builder = FunctionBuilder::new(func, scratch);
        let [general, vector, _] = lowered.counts;
        let general = (0..general).map(|_| builder.declare_var(types::I64)).collect();
        let vector = (0..vector).map(|_| builder.declare_var(types::I32X4)).collect();
        let labels: Vec<ir::Block> = (0..lowered.labels).map(|_| builder.create_block()).collect();
        let mut last_jump = vec![None; labels.len()];
        for (at, m) in lowered.code.iter().enumerate() {
            if let M::Jump(label) | M::JumpIf(_, label) = m {
                last_jump[label.0 as usize] = Some(at);
            }
        }
        let first = builder.create_block();
        builder.append_block_params_for_function_params(first);
        builder.switch_to_block(first);
        builder.seal_block(first);
        let params = builder.block_params(first).to_vec();
        let context = params[0];
        let args = [1, 2, 3, 4].map(|arg| builder.ins().uextend(types::I64, params[arg]));
        let zeros = builder.ins().load(types::I64, constant(), context, context::ZEROS);
        let scratch = builder.ins().load(types::I64, constant(), context, context::SCRATCH);
        Emitter {
            builder,
            target,
            pool: &lowered.asm.pool,
            general,
            vector,
            bound: vec![false; labels.len()],
            labels,
            last_jump,
            helper,
            context,
            args,
            zeros,
            scratch,
            dump,
            flags: Flags::None,
            signs: Vec::new(),
            stop: None,
            dead: false,
        }
    }

    fn finish(mut self) {
        if !self.dead {
            self.builder.ins().return_(&[]);
        }
        // Labels that nothing binds have no jumps either.
        for (label, bound) in self.bound.iter().enumerate() {
            if !bound {
                let block = self.labels[label];
                self.builder.switch_to_block(block);
                self.builder.ins().return_(&[]);
            }
        }
        self.builder.seal_all_blocks();
        self.builder.finalize(self.target.isa().frontend_config());
    }

    /// Closes the block of a label when no jump to it comes after the instruction at `at`.
    fn seal(&mut self, label: Label, at: usize) {
        let label = label.0 as usize;
        if self.bound[label] && self.last_jump[label].is_none_or(|last| last <= at) {
            self.builder.seal_block(self.labels[label]);
        }
    }

    fn block_of(&self, label: Label) -> ir::Block {
        self.labels[label.0 as usize]
    }

    /// Goes on in a block that has all its ways in.
    fn enter(&mut self, block: ir::Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    fn bind(&mut self, label: Label) {
        let block = self.block_of(label);
        if !self.dead {
            self.builder.ins().jump(block, &[]);
        }
        self.dead = false;
        self.builder.switch_to_block(block);
        self.bound[label.0 as usize] = true;
        self.flags = Flags::None;
        self.signs.clear();
    }

    fn instruction(&mut self, m: &M, at: usize) -> Option<()> {
        match *m {
            M::Label(label) => {
                self.bind(label);
                self.seal(label, at);
            }
            M::Jump(label) | M::JumpIf(_, label) => {
                if !self.dead {
                    self.jump(m)?;
                }
                self.seal(label, at);
            }
            _ if self.dead => {}
            M::Call { code } => {
                if !self.rare(code) {
                    self.call(code);
                }
            }
            _ => {
                if !self.scalar(m)? {
                    self.lanes(m)?;
                }
            }
        }
        Some(())
    }

    fn jump(&mut self, m: &M) -> Option<()> {
        match *m {
            M::Jump(label) => {
                let block = self.block_of(label);
                self.builder.ins().jump(block, &[]);
                self.dead = true;
            }
            M::JumpIf(cond, label) => {
                let test = self.condition(cond)?;
                let (yes, no) = (self.block_of(label), self.builder.create_block());
                self.builder.ins().brif(test, yes, &[], no, &[]);
                self.enter(no);
            }
            _ => return None,
        }
        Some(())
    }

    fn call(&mut self, code: u64) {
        let callee = self.builder.ins().load(types::I64, constant(), self.context, context::HELPER);
        let code = self.builder.ins().iconst(types::I64, code as i64);
        self.builder.ins().call_indirect(self.helper, callee, &[self.context, code]);
    }

    /// A condition of the flags, as a byte.
    fn condition(&mut self, cond: Cond) -> Option<Value> {
        let code = match cond {
            Cond::Below => IntCC::UnsignedLessThan,
            Cond::AboveEqual => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Equal => IntCC::Equal,
            Cond::NotEqual => IntCC::NotEqual,
            Cond::BelowEqual => IntCC::UnsignedLessThanOrEqual,
            Cond::Above => IntCC::UnsignedGreaterThan,
            Cond::Less => IntCC::SignedLessThan,
            Cond::GreaterEqual => IntCC::SignedGreaterThanOrEqual,
            Cond::LessEqual => IntCC::SignedLessThanOrEqual,
            Cond::Greater => IntCC::SignedGreaterThan,
        };
        match self.flags {
            Flags::None => None,
            Flags::Compared(a, b) => Some(self.builder.ins().icmp(code, a, b)),
            Flags::Any(mask) => {
                let any = self.builder.ins().vany_true(mask);
                match cond {
                    Cond::NotEqual => Some(any),
                    Cond::Equal => {
                        let zero = self.builder.ins().iconst(types::I8, 0);
                        Some(self.builder.ins().icmp(IntCC::Equal, any, zero))
                    }
                    _ => None,
                }
            }
        }
    }

    // Registers.

    fn get(&mut self, r: R) -> Option<Value> {
        match r {
            R::CONTEXT => Some(self.context),
            R::STACK | R::NONE => None,
            r if r.class() == Class::General => Some(self.builder.use_var(self.general[r.index()])),
            r if r.class() == Class::Vector => Some(self.builder.use_var(self.vector[r.index()])),
            _ => None,
        }
    }

    /// Sets a scalar register; a 32-bit value clears the upper half.
    fn set(&mut self, r: R, value: Value) -> Option<()> {
        if r.fixed().is_some() || r.class() != Class::General {
            return None;
        }
        let ty = self.builder.func.dfg.value_type(value);
        let wide = if ty == types::I64 { value } else { self.builder.ins().uextend(types::I64, value) };
        self.builder.def_var(self.general[r.index()], wide);
        self.signs.retain(|(sign, _)| *sign != r);
        Some(())
    }

    /// The lanes of a register as a type.
    fn get_as(&mut self, r: R, ty: Type) -> Option<Value> {
        if r.is_none() || r.class() != Class::Vector {
            return None;
        }
        let value = self.get(r)?;
        Some(self.cast(ty, value))
    }

    fn set_lanes(&mut self, r: R, value: Value) -> Option<()> {
        if r.fixed().is_some() || r.class() != Class::Vector {
            return None;
        }
        let value = self.cast(types::I32X4, value);
        self.builder.def_var(self.vector[r.index()], value);
        Some(())
    }

    /// The same bits as lanes of another type.
    fn cast(&mut self, ty: Type, value: Value) -> Value {
        if self.builder.func.dfg.value_type(value) == ty {
            return value;
        }
        self.builder.ins().bitcast(ty, little(), value)
    }
}

#[cfg(test)]
mod tests {
    use super::returns_its_stack;

    fn code(halves: &[u16]) -> Vec<u8> {
        halves.iter().flat_map(|half| half.to_le_bytes()).collect()
    }

    #[test]
    fn a_stack_pointer_that_goes_astray_is_seen() {
        // lui t6, 1; addi t6, t6, -1168; add sp, sp, t6; ret
        assert!(returns_its_stack(&code(&[0x6f85, 0x8f93, 0xb70f, 0x917e, 0x8082])));
        // The same with `auipc t6, 0; jalr zero, t6, 8` before the addition, as Cranelift made it.
        let astray = [0x6f85, 0x8f93, 0xb70f, 0x0f97, 0x0000, 0x8067, 0x008f, 0x917e, 0x8082];
        assert!(!returns_its_stack(&code(&astray)));
        let astray = [0x6f85, 0x0f97, 0x0000, 0x8067, 0x008f, 0x8f93, 0xb70f, 0x917e, 0x8082];
        assert!(!returns_its_stack(&code(&astray)));
        // Nothing but a whole number of pages: lui t6, 2; add sp, sp, t6
        assert!(returns_its_stack(&code(&[0x6f89, 0x917e, 0x8082])));
    }
}
