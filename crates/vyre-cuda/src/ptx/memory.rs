//! Addresses, loads, stores and atomics.

use std::fmt::Write;

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value};
use vyre_spec::Diagnostic;

use super::early::is_constant;
use super::{Emitter, class, line, malformed, space};

/// How an element moves between memory and a register: the type of the access and its bytes. 4-bit elements move otherwise.
pub(super) fn access(element: Element) -> (&'static str, u32) {
    match element {
        Element::Bool | Element::U32 => ("u32", 4),
        Element::I32 => ("s32", 4),
        Element::U64 => ("u64", 8),
        Element::I64 => ("s64", 8),
        Element::F16 => ("b16", 2),
        Element::F32 => ("f32", 4),
        Element::F64 => ("f64", 8),
        Element::U8 => ("u8", 1),
        Element::I8 => ("s8", 1),
        Element::U16 => ("u16", 2),
        Element::I16 => ("s16", 2),
        Element::BF16 => ("u16", 2),
        Element::F8E4M3 | Element::F8E5M2 | Element::I4 | Element::FP4 | Element::NF4 => ("u8", 1),
    }
}

/// As many zero bytes as one load takes at most.
pub(super) const ZEROS: &str = "vyre_zeros";

pub(super) fn zeros() -> String {
    format!(".global .align 32 .b8 {ZEROS}[32];\n")
}

/// Loaded and stored as bits that are converted.
fn is_converted(element: Element) -> bool {
    matches!(element, Element::BF16 | Element::F8E4M3 | Element::F8E5M2)
}

impl Emitter<'_> {
    /// The address as an operand without brackets: a register, perhaps with an offset.
    pub(super) fn address(&mut self, address: &Address) -> String {
        let wide = matches!(address.memory, Memory::Buffer(_));
        let mut at = match address.memory {
            Memory::Buffer(index) => format!("%buffer{index}"),
            Memory::Shared(index) => self.shared_base[index as usize].clone(),
            Memory::Local(index) => format!("local{index}"),
        };
        let shared = if let Memory::Shared(index) = address.memory { Some(index) } else { None };
        let mut in_register = wide || shared.is_some();
        let mut sum = Vec::new();
        for &(term, stride) in &address.terms {
            let long = self.scalar(term) == Scalar::U64;
            let index = self.reg(term);
            if wide {
                let sum = self.temp("%d");
                if long {
                    line!(self, "mad.lo.u64 {sum}, {index}, {stride}, {at}");
                } else if self.shared_indices.contains(&(term, stride)) {
                    line!(self, "mul.wide.u32 {sum}, {index}, {stride}");
                    line!(self, "add.u64 {sum}, {at}, {sum}");
                } else {
                    line!(self, "mad.wide.u32 {sum}, {index}, {stride}, {at}");
                }
                at = sum;
            } else {
                sum.push((term, stride));
                if let Some(known) = shared.and_then(|shared| self.places.register(&(shared, sum.clone()))) {
                    at = known;
                    continue;
                }
                // Shared and local addresses have 32 bits.
                if !in_register {
                    let base = self.temp("%r");
                    line!(self, "mov.u32 {base}, {at}");
                    at = base;
                    in_register = true;
                }
                let short = if long {
                    let short = self.temp("%r");
                    line!(self, "cvt.u32.u64 {short}, {index}");
                    short
                } else {
                    index
                };
                let place = self.temp("%r");
                line!(self, "mad.lo.u32 {place}, {short}, {stride}, {at}");
                if let Some(shared) = shared {
                    self.places.keep((shared, sum.clone()), &place);
                }
                at = place;
            }
        }
        if address.offset == 0 {
            return at;
        }
        if address.offset <= i32::MAX as u32 {
            return format!("{at}+{}", address.offset);
        }
        let sum = self.temp(if wide { "%d" } else { "%r" });
        line!(self, "add.{} {sum}, {at}, {}", if wide { "u64" } else { "u32" }, address.offset);
        sum
    }

    /// Each lane's place in a buffer is one that it has loaded.
    fn is_all_over(&self, address: &Address) -> bool {
        let is_loaded = |(index, _): &(Value, u32)| {
            self.forms[index.index()].terms.iter().any(|(term, _)| self.loaded.contains(term))
        };
        matches!(address.memory, Memory::Buffer(_)) && address.terms.iter().any(is_loaded)
    }

    pub(super) fn guard(&self, guard: Option<Value>) -> String {
        guard.map_or(String::new(), |guard| format!("@{} ", self.reg(guard)))
    }

    /// How many neighbours one instruction may move: at most 16 bytes, and never three.
    fn lanes_at_once(width: u8, bytes: u32) -> u8 {
        match width {
            2 | 4 if u32::from(width) * bytes <= 16 => width,
            4 if bytes == 8 => 2,
            _ => 1,
        }
    }

    /// The way of loads: what nobody writes may come through the cache for constants.
    pub(super) fn path(&self, memory: Memory) -> &'static str {
        match memory {
            Memory::Buffer(_) if is_constant(self.kernel, memory) => "global.nc",
            other => space(other),
        }
    }

    /// The instruction that loads a word.
    pub(super) fn word_load(&self, memory: Memory, element: Element) -> String {
        format!("ld.{}.{}", self.path(memory), access(element).0)
    }

    pub(super) fn load(&mut self, value: Value, address: &Address, element: Element, guard: Option<Value>) {
        let (ty, bytes) = access(element);
        let scalar = element.scalar();
        let mut width = self.width(value);
        // Bools are read as words and tested, small floats as bits and converted.
        let raw = scalar == Scalar::Bool || is_converted(element);
        let moved = if raw { Scalar::U32 } else { scalar };
        let targets: Vec<String> =
            (0..width).map(|lane| if raw { self.temp("%r") } else { self.component(value, lane) }).collect();
        let stays = self.early.is_some_and(|early| early.contains(&value));
        let path = if stays { space(address.memory) } else { self.path(address.memory) };
        if element.bits() == 4 {
            self.load_nibbles(value, address, element, path, guard);
            return;
        }
        let zero = match moved {
            Scalar::F32 => "0f00000000",
            Scalar::F64 => "0d0000000000000000",
            _ => "0",
        };
        // Steps with predicates stay in a branch of their own: a place to load from does not.
        let elsewhere = guard.filter(|_| self.loads_zeros && matches!(address.memory, Memory::Buffer(_)) && !stays);
        let guard = guard.filter(|_| elsewhere.is_none());
        if guard.is_some() {
            for target in &targets {
                line!(self, "mov.{} {target}, {zero}", super::bits_suffix(moved));
            }
        }
        let mut at = self.address(address);
        if let Some(inside) = elsewhere {
            at = self.or_zeros(&at, inside);
        }
        let guard = self.guard(guard);
        let step = Self::lanes_at_once(width, bytes);
        // Three words of workgroup memory that begin at a multiple of 16 bytes, where a fourth one is.
        if let Memory::Shared(shared) = address.memory
            && width == 3
            && bytes == 4
            && address.terms.iter().map(|(_, stride)| *stride).chain([address.offset]).all(|by| by.is_multiple_of(16))
            && self.kernel.shared[shared as usize].size.is_multiple_of(16)
        {
            let fourth = self.temp(if moved == Scalar::F32 { "%f" } else { "%r" });
            line!(self, "{guard}ld.{path}.v4.{ty} {{{}, {fourth}}}, [{at}]", targets.join(", "));
            width = 0;
        }
        for first in (0..width).step_by(usize::from(step)) {
            let at = plus(&at, u32::from(first) * bytes);
            let group = &targets[usize::from(first)..usize::from(first + step)];
            if step == 1 {
                line!(self, "{guard}ld.{path}.{ty} {}, [{at}]", group[0]);
            } else {
                line!(self, "{guard}ld.{path}.v{step}.{ty} {{{}}}, [{at}]", group.join(", "));
            }
        }
        if raw {
            for (lane, target) in targets.iter().enumerate() {
                let into = self.component(value, lane as u8);
                if scalar == Scalar::Bool {
                    line!(self, "setp.ne.u32 {into}, {target}, 0");
                } else {
                    self.decode(element, &into, target);
                }
            }
        }
    }

    /// The place, or one among zeros where it is not inside.
    fn or_zeros(&mut self, at: &str, inside: Value) -> String {
        let (place, zeros) = (self.temp("%d"), self.temp("%d"));
        match at.split_once('+') {
            Some((base, offset)) => line!(self, "add.u64 {place}, {base}, {offset}"),
            None => line!(self, "mov.u64 {place}, {at}"),
        }
        line!(self, "mov.u64 {zeros}, {ZEROS}");
        line!(self, "selp.b64 {place}, {place}, {zeros}, {}", self.reg(inside));
        place
    }

    pub(super) fn store(&mut self, address: &Address, element: Element, value: Value, guard: Option<Value>) {
        let (ty, bytes) = access(element);
        if element.bits() == 4 {
            self.store_nibbles(address, element, value, guard);
            return;
        }
        let width = self.width(value);
        let mut sources = Vec::with_capacity(usize::from(width));
        for lane in 0..width {
            let source = self.component(value, lane);
            sources.push(if element == Element::Bool {
                let word = self.temp("%r");
                line!(self, "selp.u32 {word}, 1, 0, {source}");
                word
            } else {
                self.encode(element, &source)
            });
        }
        let at = self.address(address);
        let guard = self.guard(guard);
        let path = space(address.memory);
        let step = Self::lanes_at_once(width, bytes);
        for first in (0..width).step_by(usize::from(step)) {
            let at = plus(&at, u32::from(first) * bytes);
            let group = &sources[usize::from(first)..usize::from(first + step)];
            if step == 1 {
                line!(self, "{guard}st.{path}.{ty} [{at}], {}", group[0]);
            } else {
                line!(self, "{guard}st.{path}.v{step}.{ty} [{at}], {{{}}}", group.join(", "));
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one instruction
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        address: &Address,
        element: Element,
        value: Option<Value>,
        compare: Option<Value>,
        result: Option<Value>,
        guard: Option<Value>,
    ) -> Result<(), Diagnostic> {
        let (signed, bits) = match element {
            Element::U32 => ("u32", "b32"),
            Element::I32 => ("s32", "b32"),
            Element::U64 => ("u64", "b64"),
            Element::I64 => ("s64", "b64"),
            _ => return Err(malformed("an atomic operation on an element that has none")),
        };
        let operand = |emitter: &Self, value: Option<Value>| {
            value.map(|value| emitter.reg(value)).ok_or_else(|| malformed("an atomic operation lacks an operand"))
        };
        let path = space(address.memory);
        let scope = if path == "shared" { "cta" } else { "gpu" };
        if let (Some(result), true) = (result, guard.is_some()) {
            let result = self.reg(result);
            line!(self, "mov.{bits} {result}, 0");
        }
        let at = self.address(address);
        let predicate = self.guard(guard);
        let into = match result {
            Some(result) => self.reg(result),
            None => self.temp(class(element.scalar())),
        };
        match op {
            AtomicOp::Load => line!(self, "{predicate}ld.relaxed.{scope}.{path}.{signed} {into}, [{at}]"),
            // Where lanes write to places all over a buffer, the cache does that in less time than it takes stores of single words.
            AtomicOp::Store if self.is_all_over(address) => {
                let value = operand(self, value)?;
                line!(self, "{predicate}atom.relaxed.{scope}.{path}.exch.{bits} {into}, [{at}], {value}");
            }
            AtomicOp::Store => {
                let value = operand(self, value)?;
                line!(self, "{predicate}st.relaxed.{scope}.{path}.{signed} [{at}], {value}");
            }
            AtomicOp::CompareExchange => {
                let (compare, value) = (operand(self, compare)?, operand(self, value)?);
                line!(self, "{predicate}atom.relaxed.{scope}.{path}.cas.{bits} {into}, [{at}], {compare}, {value}");
            }
            AtomicOp::Exchange => {
                let value = operand(self, value)?;
                line!(self, "{predicate}atom.relaxed.{scope}.{path}.exch.{bits} {into}, [{at}], {value}");
            }
            AtomicOp::Add
            | AtomicOp::Sub
            | AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::And
            | AtomicOp::Or
            | AtomicOp::Xor => {
                let mut value = operand(self, value)?;
                let unsigned = if bits == "b64" { "u64" } else { "u32" };
                let (name, ty) = match op {
                    AtomicOp::Add => ("add", unsigned),
                    AtomicOp::Sub => {
                        let negated = self.temp(class(element.scalar()));
                        line!(self, "neg.{} {negated}, {value}", if bits == "b64" { "s64" } else { "s32" });
                        value = negated;
                        ("add", unsigned)
                    }
                    AtomicOp::Min => ("min", signed),
                    AtomicOp::Max => ("max", signed),
                    AtomicOp::And => ("and", bits),
                    AtomicOp::Or => ("or", bits),
                    _ => ("xor", bits),
                };
                if result.is_some() {
                    line!(self, "{predicate}atom.relaxed.{scope}.{path}.{name}.{ty} {into}, [{at}], {value}");
                } else {
                    line!(self, "{predicate}red.relaxed.{scope}.{path}.{name}.{ty} [{at}], {value}");
                }
            }
        }
        Ok(())
    }

    /// Arrays of an invocation start as zero.
    pub(super) fn clear_locals(&mut self) {
        for (index, memory) in self.kernel.locals.iter().enumerate() {
            let chunks = memory.size.max(1).div_ceil(16);
            let zero = self.temp("%r");
            line!(self, "mov.u32 {zero}, 0");
            if chunks <= 16 {
                for chunk in 0..chunks {
                    line!(self, "st.local.v4.u32 [local{index}+{}], {{{zero}, {zero}, {zero}, {zero}}}", chunk * 16);
                }
                continue;
            }
            let (at, end, more, head) = (self.temp("%r"), self.temp("%r"), self.temp("%p"), self.label());
            line!(self, "mov.u32 {at}, local{index}");
            line!(self, "add.u32 {end}, {at}, {}", chunks * 16);
            self.place(head);
            line!(self, "st.local.v4.u32 [{at}], {{{zero}, {zero}, {zero}, {zero}}}");
            line!(self, "add.u32 {at}, {at}, 16");
            line!(self, "setp.lt.u32 {more}, {at}, {end}");
            line!(self, "@{more} bra L{head}");
        }
    }

    /// Workgroup memory starts as zero: the invocations clear it together, then meet.
    pub(super) fn clear_shared(&mut self) {
        if !self.kernel.shared.iter().any(|memory| memory.cleared) {
            return;
        }
        let step = self.invocations() * 4;
        let (first, zero) = (self.temp("%r"), self.temp("%r"));
        self.local_index(&first);
        line!(self, "shl.b32 {first}, {first}, 2");
        line!(self, "mov.u32 {zero}, 0");
        for (index, memory) in self.kernel.shared.iter().enumerate().filter(|(_, memory)| memory.cleared) {
            let size = memory.size.next_multiple_of(4); // the memory itself is padded to 16
            let (at, base, more) = (self.temp("%r"), self.temp("%r"), self.temp("%p"));
            let (head, end) = (self.label(), self.label());
            let name = self.shared_base[index].clone();
            line!(self, "mov.u32 {base}, {name}");
            line!(self, "mov.u32 {at}, {first}");
            line!(self, "setp.ge.u32 {more}, {at}, {size}");
            line!(self, "@{more} bra L{end}");
            self.place(head);
            let word = self.temp("%r");
            line!(self, "add.u32 {word}, {base}, {at}");
            line!(self, "st.shared.u32 [{word}], {zero}");
            line!(self, "add.u32 {at}, {at}, {step}");
            line!(self, "setp.lt.u32 {more}, {at}, {size}");
            line!(self, "@{more} bra L{head}");
            self.place(end);
        }
        line!(self, "bar.sync 0");
    }
}

/// Adds to an operand that may already have an offset.
pub(super) fn plus(at: &str, bytes: u32) -> String {
    if bytes == 0 {
        return at.to_owned();
    }
    match at.rsplit_once('+') {
        Some((base, offset)) => match offset.parse::<u32>() {
            Ok(offset) => format!("{base}+{}", offset + bytes),
            Err(_) => format!("{at}+{bytes}"),
        },
        None => format!("{at}+{bytes}"),
    }
}
