//! Kernels as text, for people.

use std::fmt::{self, Display, Formatter, Write};

use super::{Address, Block, Element, End, Inst, Kernel, KernelMemory, Loop, Memory, Op, Scalar, Type, Value};
use crate::ir::{BarrierScope, Literal};

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Scalar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.data_type(), f)
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scalar)?;
        if self.width > 1 { write!(f, "x{}", self.width) } else { Ok(()) }
    }
}

/// The kernel as text: one step a line, blocks indented. Values that are the same in a whole workgroup carry `uniform`.
impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.workgroup_size;
        write!(f, "kernel {} workgroup({x}, {y}, {z})", self.name)?;
        if self.resizable {
            write!(f, " resizable")?;
        }
        writeln!(f, " {{")?;
        for (i, buffer) in self.buffers.iter().enumerate() {
            write!(f, "  buffer {i} {}: group {} binding {}, ", buffer.name, buffer.group, buffer.binding)?;
            write!(f, "{}", format!("{:?}", buffer.kind).to_lowercase())?;
            element(f, buffer.element)?;
            write!(f, ", stride {}", buffer.stride)?;
            if buffer.header > 0 {
                write!(f, ", header {}", buffer.header)?;
            }
            if let Some(count) = buffer.count {
                write!(f, ", count {count}")?;
            }
            for (is, word) in [(buffer.read, "read"), (buffer.written, "written"), (buffer.atomic, "atomic")] {
                if is {
                    write!(f, ", {word}")?;
                }
            }
            writeln!(f)?;
        }
        for (what, memories) in [("shared", &self.shared), ("local", &self.locals)] {
            for (i, memory) in memories.iter().enumerate() {
                memory_line(f, what, i, memory)?;
            }
        }
        let printer = Printer { kernel: self };
        printer.block(f, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

fn element(f: &mut Formatter<'_>, element: Option<(Element, u8)>) -> fmt::Result {
    match element {
        Some((element, 1)) => write!(f, " of {}", name(element)),
        Some((element, width)) => write!(f, " of {}x{width}", name(element)),
        None => Ok(()),
    }
}

fn memory_line(f: &mut Formatter<'_>, what: &str, i: usize, memory: &KernelMemory) -> fmt::Result {
    write!(f, "  {what} {i} {}: {} bytes", memory.name, memory.size)?;
    element(f, memory.element)?;
    writeln!(f, "{}", if memory.atomic { ", atomic" } else { "" })
}

fn name(element: Element) -> String {
    format!("{element:?}").to_lowercase()
}

fn lower(value: impl fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

struct Printer<'a> {
    kernel: &'a Kernel,
}

impl Printer<'_> {
    fn pad(f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        (0..depth).try_for_each(|_| f.write_str("  "))
    }

    fn block(&self, f: &mut Formatter<'_>, block: &Block, depth: usize) -> fmt::Result {
        for inst in &block.insts {
            Self::pad(f, depth)?;
            self.inst(f, inst, depth)?;
        }
        let (word, values) = match &block.end {
            End::Yield(values) if values.is_empty() => return Ok(()),
            End::Yield(values) => ("yield", values.as_slice()),
            End::Continue(values) => ("continue", values.as_slice()),
            End::Break(values) => ("break", values.as_slice()),
            End::Return => ("return", &[][..]),
            End::Unreachable => ("unreachable", &[][..]),
        };
        Self::pad(f, depth)?;
        f.write_str(word)?;
        list(f, " ", values)?;
        f.write_char('\n')
    }

    fn typed(&self, f: &mut Formatter<'_>, value: Value) -> fmt::Result {
        let info = self.kernel.values[value.index()];
        write!(f, "{value}: {}{}", if info.uniform { "uniform " } else { "" }, info.ty)
    }

    fn inst(&self, f: &mut Formatter<'_>, inst: &Inst, depth: usize) -> fmt::Result {
        match inst {
            Inst::Let(value, op) => {
                self.typed(f, *value)?;
                f.write_str(" = ")?;
                self.op(f, op)?;
                f.write_char('\n')
            }
            Inst::Store { address, element, value, guard } => {
                write!(f, "store {} ", name(*element))?;
                self.address(f, address)?;
                write!(f, ", {value}")?;
                self.guard(f, *guard)
            }
            Inst::Atomic { op, address, element, value, compare, result, guard } => {
                if let Some(result) = result {
                    self.typed(f, *result)?;
                    f.write_str(" = ")?;
                }
                write!(f, "atomic {} {} ", lower(op), name(*element))?;
                self.address(f, address)?;
                for operand in [value, compare].into_iter().flatten() {
                    write!(f, ", {operand}")?;
                }
                self.guard(f, *guard)
            }
            Inst::Barrier(scope) => {
                writeln!(f, "barrier {}", if *scope == BarrierScope::Storage { "storage" } else { "workgroup" })
            }
            Inst::If { cond, then, otherwise, results } => {
                self.results(f, results)?;
                writeln!(f, "if {cond} {{")?;
                self.block(f, then, depth + 1)?;
                Self::pad(f, depth)?;
                let plain = otherwise.insts.is_empty() && matches!(&otherwise.end, End::Yield(v) if v.is_empty());
                if !plain {
                    writeln!(f, "}} else {{")?;
                    self.block(f, otherwise, depth + 1)?;
                    Self::pad(f, depth)?;
                }
                writeln!(f, "}}")
            }
            Inst::Loop(inner) => self.repeat(f, inner, depth),
        }
    }

    fn repeat(&self, f: &mut Formatter<'_>, inner: &Loop, depth: usize) -> fmt::Result {
        self.results(f, &inner.results)?;
        match &inner.counter {
            Some(counter) => {
                f.write_str("for ")?;
                self.typed(f, counter.value)?;
                write!(f, " = {} to {} step {}", counter.from, counter.to, counter.step)?;
            }
            None => f.write_str(if inner.finite { "loop finite" } else { "loop" })?,
        }
        for (i, (param, init)) in inner.params.iter().zip(&inner.init).enumerate() {
            f.write_str(if i == 0 { " with " } else { ", " })?;
            self.typed(f, *param)?;
            write!(f, " = {init}")?;
        }
        f.write_str(" {\n")?;
        self.block(f, &inner.body, depth + 1)?;
        Self::pad(f, depth)?;
        f.write_str("}\n")
    }

    fn results(&self, f: &mut Formatter<'_>, results: &[Value]) -> fmt::Result {
        for (i, result) in results.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            self.typed(f, *result)?;
        }
        if results.is_empty() { Ok(()) } else { f.write_str(" = ") }
    }

    fn guard(&self, f: &mut Formatter<'_>, guard: Option<Value>) -> fmt::Result {
        match guard {
            Some(guard) => writeln!(f, " if {guard}"),
            None => f.write_char('\n'),
        }
    }

    fn address(&self, f: &mut Formatter<'_>, address: &Address) -> fmt::Result {
        match address.memory {
            Memory::Buffer(i) => write!(f, "{}[", self.kernel.buffers[i as usize].name)?,
            Memory::Shared(i) => write!(f, "shared {i}[")?,
            Memory::Local(i) => write!(f, "local {i}[")?,
        }
        let mut first = true;
        for (value, stride) in &address.terms {
            write!(f, "{}{value}*{stride}", if first { "" } else { " + " })?;
            first = false;
        }
        if first {
            write!(f, "{}", address.offset)?;
        } else if address.offset > 0 {
            write!(f, " + {}", address.offset)?;
        }
        f.write_char(']')
    }

    fn op(&self, f: &mut Formatter<'_>, op: &Op) -> fmt::Result {
        match op {
            Op::Const(literal) => literal_text(f, literal),
            Op::Builtin(builtin) => f.write_str(&lower(builtin)),
            Op::Length(buffer) => write!(f, "length {}", self.kernel.buffers[*buffer as usize].name),
            Op::Unary(op, a) => write!(f, "{} {a}", lower(op)),
            Op::Binary(op, a, b) => write!(f, "{} {a}, {b}", lower(op)),
            Op::Fma(a, b, c) => write!(f, "fma {a}, {b}, {c}"),
            Op::Select(cond, yes, no) => write!(f, "select {cond}, {yes}, {no}"),
            Op::Cast(a) => write!(f, "cast {a}"),
            Op::BitCast(a) => write!(f, "bits {a}"),
            Op::Load { address, element, guard } => {
                write!(f, "load {} ", name(*element))?;
                self.address(f, address)?;
                match guard {
                    Some(guard) => write!(f, " if {guard}"),
                    None => Ok(()),
                }
            }
            Op::Extract(a, lane) => write!(f, "extract {a}, {lane}"),
            Op::Construct(parts) => {
                f.write_str("construct")?;
                list(f, " ", parts)
            }
            Op::Subgroup(op, a, argument) => {
                write!(f, "subgroup {} {a}", lower(op))?;
                match argument {
                    Some(argument) => write!(f, ", {argument}"),
                    None => Ok(()),
                }
            }
            Op::Matrix(matrix) => {
                let operands: Vec<Value> = matrix.operands().collect();
                write!(f, "{}", matrix.kind.name())?;
                list(f, " ", &operands)
            }
        }
    }
}

fn list(f: &mut Formatter<'_>, lead: &str, values: &[Value]) -> fmt::Result {
    for (i, value) in values.iter().enumerate() {
        write!(f, "{}{value}", if i == 0 { lead } else { ", " })?;
    }
    Ok(())
}

fn literal_text(f: &mut Formatter<'_>, literal: &Literal) -> fmt::Result {
    match literal {
        Literal::Bool(v) => write!(f, "{v}"),
        Literal::U32(v) => write!(f, "{v}"),
        Literal::I32(v) => write!(f, "{v}"),
        Literal::U64(v) => write!(f, "{v}"),
        Literal::I64(v) => write!(f, "{v}"),
        Literal::F16(v) => write!(f, "{:?}", v.to_f32()),
        Literal::F32(v) => write!(f, "{v:?}"),
        Literal::F64(v) => write!(f, "{v:?}"),
    }
}
