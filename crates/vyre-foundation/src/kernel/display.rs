//! Kernels as text, for people.

use std::fmt::{self, Display, Formatter, Write};

use super::{
    Address, Block, Element, End, Inst, Kernel, KernelMemory, Loop, Memory, Op, Scalar, Type, Value, ValueInfo,
};
use crate::ir::{BarrierScope, Literal};

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Scalar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(scalar_name(*self))
    }
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::U32 => "u32",
        Scalar::I32 => "i32",
        Scalar::U64 => "u64",
        Scalar::I64 => "i64",
        Scalar::F16 => "f16",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
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
        // Steps are many and made of short pieces, which a string takes sooner than a formatter.
        let mut text = String::with_capacity(32 * self.values.len());
        Printer { kernel: self }.block(&mut text, &self.body, 1)?;
        f.write_str(&text)?;
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
    writeln!(
        f,
        "{}{}",
        if memory.atomic { ", atomic" } else { "" },
        if memory.words.is_some() { ", known" } else { "" }
    )
}

fn name(element: Element) -> String {
    format!("{element:?}").to_lowercase()
}

/// What `Debug` says, in lower case.
fn lower(f: &mut String, value: impl fmt::Debug) -> fmt::Result {
    let start = f.len();
    write!(f, "{value:?}")?;
    f[start..].make_ascii_lowercase();
    Ok(())
}

fn number(f: &mut String, number: u32) {
    if number >= 10 {
        self::number(f, number / 10);
    }
    f.push(char::from(b'0' + (number % 10) as u8));
}

/// Values with words before each.
fn values<const N: usize>(f: &mut String, parts: [(&str, Value); N]) -> fmt::Result {
    for (word, value) in parts {
        f.push_str(word);
        f.push('%');
        number(f, value.0);
    }
    Ok(())
}

struct Printer<'a> {
    kernel: &'a Kernel,
}

impl Printer<'_> {
    fn pad(f: &mut String, depth: usize) -> fmt::Result {
        (0..depth).try_for_each(|_| f.write_str("  "))
    }

    fn block(&self, f: &mut String, block: &Block, depth: usize) -> fmt::Result {
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

    fn typed(&self, f: &mut String, value: Value) -> fmt::Result {
        let ValueInfo { ty, uniform } = self.kernel.values[value.index()];
        values(f, [("", value)])?;
        f.push_str(if uniform { ": uniform " } else { ": " });
        f.push_str(scalar_name(ty.scalar));
        if ty.width > 1 { write!(f, "x{}", ty.width) } else { Ok(()) }
    }

    fn inst(&self, f: &mut String, inst: &Inst, depth: usize) -> fmt::Result {
        match inst {
            Inst::Let(value, op) => {
                self.typed(f, *value)?;
                f.write_str(" = ")?;
                self.op(f, op)?;
                f.write_char('\n')
            }
            Inst::Store { address, element, value, guard } => {
                f.push_str("store ");
                lower(f, element)?;
                f.push(' ');
                self.address(f, address)?;
                values(f, [(", ", *value)])?;
                self.guard(f, *guard)
            }
            Inst::Atomic { op, address, element, value, compare, result, guard } => {
                if let Some(result) = result {
                    self.typed(f, *result)?;
                    f.write_str(" = ")?;
                }
                f.push_str("atomic ");
                lower(f, op)?;
                f.push(' ');
                lower(f, element)?;
                f.push(' ');
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

    fn repeat(&self, f: &mut String, inner: &Loop, depth: usize) -> fmt::Result {
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

    fn results(&self, f: &mut String, results: &[Value]) -> fmt::Result {
        for (i, result) in results.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            self.typed(f, *result)?;
        }
        if results.is_empty() { Ok(()) } else { f.write_str(" = ") }
    }

    fn guard(&self, f: &mut String, guard: Option<Value>) -> fmt::Result {
        match guard {
            Some(guard) => {
                values(f, [(" if ", guard)])?;
                f.write_char('\n')
            }
            None => f.write_char('\n'),
        }
    }

    fn address(&self, f: &mut String, address: &Address) -> fmt::Result {
        match address.memory {
            Memory::Buffer(i) => {
                f.push_str(self.kernel.buffers[i as usize].name.as_str());
                f.push('[');
            }
            Memory::Shared(i) => write!(f, "shared {i}[")?,
            Memory::Local(i) => write!(f, "local {i}[")?,
        }
        let mut first = true;
        for (value, stride) in &address.terms {
            values(f, [(if first { "" } else { " + " }, *value)])?;
            f.push('*');
            number(f, *stride);
            first = false;
        }
        if first || address.offset > 0 {
            f.push_str(if first { "" } else { " + " });
            number(f, address.offset);
        }
        f.write_char(']')
    }

    fn op(&self, f: &mut String, op: &Op) -> fmt::Result {
        match op {
            Op::Const(literal) => literal_text(f, literal),
            Op::Builtin(builtin) => lower(f, builtin),
            Op::Length(buffer) => write!(f, "length {}", self.kernel.buffers[*buffer as usize].name),
            Op::Unary(op, a) => {
                lower(f, op)?;
                values(f, [(" ", *a)])
            }
            Op::Binary(op, a, b) => {
                lower(f, op)?;
                values(f, [(" ", *a), (", ", *b)])
            }
            Op::Fma(a, b, c) => values(f, [("fma ", *a), (", ", *b), (", ", *c)]),
            Op::Select(cond, yes, no) => values(f, [("select ", *cond), (", ", *yes), (", ", *no)]),
            Op::Cast(a) => values(f, [("cast ", *a)]),
            Op::BitCast(a) => values(f, [("bits ", *a)]),
            Op::Load { address, element, guard } => {
                f.push_str("load ");
                lower(f, element)?;
                f.push(' ');
                self.address(f, address)?;
                match guard {
                    Some(guard) => values(f, [(" if ", *guard)]),
                    None => Ok(()),
                }
            }
            Op::Extract(a, lane) => write!(f, "extract {a}, {lane}"),
            Op::Construct(parts) => {
                f.write_str("construct")?;
                list(f, " ", parts)
            }
            Op::Subgroup(op, a, argument) => {
                f.push_str("subgroup ");
                lower(f, op)?;
                values(f, [(" ", *a)])?;
                match argument {
                    Some(argument) => values(f, [(", ", *argument)]),
                    None => Ok(()),
                }
            }
            Op::Matrix(matrix) => {
                let operands: Vec<Value> = matrix.operands().collect();
                f.push_str(matrix.kind.name());
                list(f, " ", &operands)
            }
        }
    }
}

fn list(f: &mut String, lead: &str, list: &[Value]) -> fmt::Result {
    list.iter().enumerate().try_for_each(|(i, value)| values(f, [(if i == 0 { lead } else { ", " }, *value)]))
}

fn literal_text(f: &mut String, literal: &Literal) -> fmt::Result {
    match literal {
        Literal::Bool(v) => write!(f, "{v}"),
        Literal::U32(v) => {
            number(f, *v);
            Ok(())
        }
        Literal::I32(v) => write!(f, "{v}"),
        Literal::U64(v) => write!(f, "{v}"),
        Literal::I64(v) => write!(f, "{v}"),
        Literal::F16(v) => write!(f, "{:?}", v.to_f32()),
        Literal::F32(v) => write!(f, "{v:?}"),
        Literal::F64(v) => write!(f, "{v:?}"),
    }
}
