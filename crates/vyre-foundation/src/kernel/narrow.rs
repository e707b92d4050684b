//! Conversions of stored types as kernel operations, for devices that only move whole bytes or words.

use smallvec::SmallVec;

use super::eval::NF4;
use super::math::Expand;
use super::{
    Address, Binary, Block, Element, End, Inst, Kernel, KernelMemory, Loop, Memory, Narrow, Op, Scalar, Type, Unary,
    Value,
};
use crate::ir::AtomicOp;

/// How each memory was changed.
pub(super) struct Memories {
    narrow: Narrow,
    /// By what addresses in shared and local memories are multiplied, and what is stored there now.
    shared: Vec<(u32, Option<Element>)>,
    locals: Vec<(u32, Option<Element>)>,
}

/// A type that the kernel has to convert itself.
fn converted(element: Element, narrow: Narrow) -> bool {
    match narrow {
        Narrow::Native => false,
        Narrow::Bytes => matches!(
            element,
            Element::BF16 | Element::F8E4M3 | Element::F8E5M2 | Element::I4 | Element::FP4 | Element::NF4
        ),
        Narrow::Words => element.bits() < 32 && element != Element::F16,
    }
}

impl Memories {
    /// Gives memories that only the kernel sees a layout without small elements.
    pub(super) fn new(kernel: &mut Kernel, narrow: Narrow) -> Memories {
        let change = |memory: &mut KernelMemory| match memory.element {
            Some((element, width)) if converted(element, narrow) => {
                let carrier = match narrow {
                    Narrow::Words => Element::U32,
                    _ if element.bits() == 16 => Element::U16,
                    _ => Element::U8,
                };
                // 4-bit elements are addressed in elements, the others in bytes.
                let old = if element.bits() == 4 { 1 } else { element.bits() / 8 };
                let factor = carrier.bits() / 8 / old;
                let bytes = if element.bits() == 4 { memory.size * 2 } else { memory.size };
                memory.size = bytes * factor;
                memory.align = (memory.align * factor).max(carrier.bits() / 8);
                memory.element = Some((carrier, width));
                (factor, Some(carrier))
            }
            _ => (1, None),
        };
        Memories {
            narrow,
            shared: kernel.shared.iter_mut().map(change).collect(),
            locals: kernel.locals.iter_mut().map(change).collect(),
        }
    }
}

impl Expand {
    /// Where an element lies and how it is moved now; bound buffers keep their layout.
    fn moved(&self, address: &Address) -> Option<(Address, Element)> {
        let (factor, carrier) = match address.memory {
            Memory::Buffer(_) => return None,
            Memory::Shared(i) => self.memories.shared[i as usize],
            Memory::Local(i) => self.memories.locals[i as usize],
        };
        let mut address = address.clone();
        address.offset *= factor;
        address.terms.iter_mut().for_each(|(_, stride)| *stride *= factor);
        Some((address, carrier?))
    }

    /// Loads an element as a carrier and converts it.
    pub(super) fn narrow_load(
        &mut self,
        old: Value,
        width: u8,
        address: &Address,
        element: &Element,
        guard: Option<Value>,
    ) -> Option<Value> {
        let element = *element;
        if !converted(element, self.memories.narrow) {
            return None;
        }
        let mut parts: SmallVec<[Value; 4]> = SmallVec::new();
        for lane in 0..u32::from(width) {
            let code = match self.moved(address) {
                Some((mut address, carrier)) => {
                    address.offset += lane * carrier.bits() / 8;
                    self.emit(Scalar::U32, Op::Load { address, element: carrier, guard })
                }
                None => self.load_bound(address, lane, element, guard),
            };
            let value = self.decode(element, code);
            parts.push(match guard {
                // Zero bits are not zero in this type, but what lies outside the buffer is.
                Some(guard) if element == Element::NF4 => {
                    let zero = self.c(value, 0.0);
                    self.select(guard, value, zero)
                }
                _ => value,
            });
        }
        if width == 1 {
            return Some(parts[0]);
        }
        // Only extracts use a wide value, and they find the parts.
        self.wide.insert(old, parts);
        Some(old)
    }

    fn load_bound(&mut self, address: &Address, lane: u32, element: Element, guard: Option<Value>) -> Value {
        let words = self.memories.narrow == Narrow::Words;
        if !words && element.bits() >= 8 {
            let carrier = if element.bits() == 16 { Element::U16 } else { Element::U8 };
            let mut address = address.clone();
            address.offset += lane * carrier.bits() / 8;
            return self.emit(Scalar::U32, Op::Load { address, element: carrier, guard });
        }
        let per = if element.bits() == 4 { 1 } else { element.bits() / 8 };
        let at = self.position(address, lane * per);
        let (carrier, log) = if words { (Element::U32, 2) } else { (Element::U8, 0) };
        let log = if element.bits() == 4 { log + 1 } else { log };
        let (cell, shift) = self.cell(at, log, if element.bits() == 4 { 2 } else { 3 });
        let address =
            Address { memory: address.memory, terms: SmallVec::from_slice(&[(cell, carrier.bits() / 8)]), offset: 0 };
        let whole = self.emit(Scalar::U32, Op::Load { address, element: carrier, guard });
        let code = self.bin(Binary::Shr, whole, shift);
        let mask = self.i(Scalar::U32, (1i64 << element.bits()) - 1);
        self.bin(Binary::And, code, mask)
    }

    /// The sum of an address: bytes, or 4-bit elements.
    fn position(&mut self, address: &Address, more: u32) -> Value {
        let wide = address.terms.iter().any(|(value, _)| self.ty(*value) == Scalar::U64);
        let ty = if wide { Scalar::U64 } else { Scalar::U32 };
        let mut sum = self.i(ty, i64::from(address.offset) + i64::from(more));
        for (value, stride) in &address.terms {
            let value = self.cast(*value, ty);
            let stride = self.i(ty, (*stride).into());
            let part = self.bin(Binary::Mul, value, stride);
            sum = self.bin(Binary::Add, sum, part);
        }
        sum
    }

    /// The cell of `2^log` positions, and the shift of a position of `2^bits` bits in it.
    fn cell(&mut self, at: Value, log: u32, bits: u32) -> (Value, Value) {
        let count = self.i(Scalar::U32, log.into());
        let cell = self.bin(Binary::Shr, at, count);
        let low = self.cast(at, Scalar::U32);
        let mask = self.i(Scalar::U32, (1i64 << log) - 1);
        let inner = self.bin(Binary::And, low, mask);
        let bits = self.i(Scalar::U32, bits.into());
        (cell, self.bin(Binary::Shl, inner, bits))
    }

    /// Converts and stores; false when the store may stay as it is.
    pub(super) fn narrow_store(
        &mut self,
        address: &Address,
        element: &Element,
        value: &Value,
        guard: Option<Value>,
    ) -> bool {
        let element = *element;
        if !converted(element, self.memories.narrow) {
            return false;
        }
        let Type { scalar, width } = self.type_of(*value);
        for lane in 0..width {
            let part = match width {
                1 => *value,
                _ => self.emit(scalar, Op::Extract(*value, lane)),
            };
            let code = self.encode(element, part);
            let lane = u32::from(lane);
            let direct = match self.moved(address) {
                Some(moved) => Some(moved),
                None if self.memories.narrow == Narrow::Bytes && element.bits() >= 8 => {
                    Some((address.clone(), if element.bits() == 16 { Element::U16 } else { Element::U8 }))
                }
                None => None,
            };
            match direct {
                Some((mut address, carrier)) => {
                    address.offset += lane * carrier.bits() / 8;
                    self.push(Inst::Store { address, element: carrier, value: code, guard });
                }
                None => self.store_part(address, lane, element, code, guard),
            }
        }
        true
    }

    /// Changes a part of a word; others may be changing the rest of it at the same time.
    fn store_part(&mut self, address: &Address, lane: u32, element: Element, code: Value, guard: Option<Value>) {
        let four = element.bits() == 4;
        let at = self.position(address, if four { lane } else { lane * element.bits() / 8 });
        let (cell, shift) = self.cell(at, if four { 3 } else { 2 }, if four { 2 } else { 3 });
        let word = Address { memory: address.memory, terms: SmallVec::from_slice(&[(cell, 4)]), offset: 0 };
        let mask = self.i(Scalar::U32, (1i64 << element.bits()) - 1);
        let mask = self.bin(Binary::Shl, mask, shift);
        let kept = self.un(Unary::Not, mask);
        let code = self.bin(Binary::Shl, code, shift);
        let atomic = |op, value, compare, result| Inst::Atomic {
            op,
            address: word.clone(),
            element: Element::U32,
            value,
            compare,
            result: Some(result),
            guard: None,
        };
        self.blocks.push(Vec::new());
        let first = self.value(Scalar::U32);
        self.push(atomic(AtomicOp::Load, None, None, first));
        let seen = self.value(Scalar::U32);
        self.blocks.push(Vec::new());
        let rest = self.bin(Binary::And, seen, kept);
        let new = self.bin(Binary::Or, rest, code);
        let found = self.value(Scalar::U32);
        self.push(atomic(AtomicOp::CompareExchange, Some(new), Some(seen), found));
        let done = self.bin(Binary::Eq, found, seen);
        let leave = Block { insts: Vec::new(), end: End::Break(vec![found]) };
        let go_on = Block { insts: Vec::new(), end: End::Yield(Vec::new()) };
        self.push(Inst::If { cond: done, then: Box::new(leave), otherwise: Box::new(go_on), results: Vec::new() });
        let insts = self.blocks.pop().unwrap_or_default();
        let body = Block { insts, end: End::Continue(vec![found]) };
        let results = vec![self.value(Scalar::U32)];
        self.push(Inst::Loop(Box::new(Loop {
            counter: None,
            params: vec![seen],
            init: vec![first],
            body,
            results,
            finite: false,
            look: None,
            rare: false,
        })));
        let insts = self.blocks.pop().unwrap_or_default();
        match guard {
            Some(cond) => {
                let then = Block { insts, end: End::Yield(Vec::new()) };
                let otherwise = Block { insts: Vec::new(), end: End::Yield(Vec::new()) };
                self.push(Inst::If { cond, then: Box::new(then), otherwise: Box::new(otherwise), results: Vec::new() });
            }
            None => insts.into_iter().for_each(|inst| self.push(inst)),
        }
    }

    /// The value of a code.
    fn decode(&mut self, element: Element, code: Value) -> Value {
        match element {
            Element::U8 | Element::U16 => code,
            Element::I8 | Element::I16 | Element::I4 => {
                let up = self.i(Scalar::U32, i64::from(32 - element.bits()));
                let raised = self.bin(Binary::Shl, code, up);
                let signed = self.bits(raised, Scalar::I32);
                self.bin(Binary::Shr, signed, up)
            }
            Element::BF16 => {
                let up = self.i(Scalar::U32, 16);
                let raised = self.bin(Binary::Shl, code, up);
                self.bits(raised, Scalar::F32)
            }
            Element::NF4 => {
                let mut value = self.f(NF4[0]);
                for (level, number) in NF4.iter().enumerate().skip(1) {
                    let at = self.i(Scalar::U32, level as i64);
                    let here = self.bin(Binary::Eq, code, at);
                    let number = self.f(*number);
                    value = self.select(here, number, value);
                }
                value
            }
            other => self.decode_small(&small(other), code),
        }
    }

    fn f(&mut self, value: f32) -> Value {
        self.literal(crate::ir::Literal::F32(value))
    }

    fn decode_small(&mut self, format: &Small, code: Value) -> Value {
        let sign_bit = self.i(Scalar::U32, format.sign.into());
        let magnitude_mask = self.i(Scalar::U32, i64::from(format.sign) - 1);
        let magnitude = self.bin(Binary::And, code, magnitude_mask);
        let up = self.i(Scalar::U32, i64::from(23 - format.mantissa));
        let bits = self.bin(Binary::Shl, magnitude, up);
        let bias = self.i(Scalar::U32, i64::from(127 - format.bias) << 23);
        let bits = self.bin(Binary::Add, bits, bias);
        let normal = self.bits(bits, Scalar::F32);
        // Subnormal ones are multiples of one step. No f32 on the way is subnormal: devices take those for zero, processors are slow
        // with them.
        let steps = self.cast(magnitude, Scalar::F32);
        let subnormal = self.mul_c(steps, 2f64.powi(1 - format.bias - format.mantissa as i32));
        let smallest = self.i(Scalar::U32, 1 << format.mantissa);
        let is_subnormal = self.bin(Binary::Lt, magnitude, smallest);
        let mut value = self.select(is_subnormal, subnormal, normal);
        if format.nan > format.max {
            let most = self.i(Scalar::U32, format.max.into());
            let special = self.bin(Binary::Gt, magnitude, most);
            let mut other = self.f(f32::NAN);
            if format.infinity {
                let code = self.i(Scalar::U32, i64::from(format.max) + 1);
                let endless = self.bin(Binary::Eq, magnitude, code);
                let infinity = self.f(f32::INFINITY);
                other = self.select(endless, infinity, other);
            }
            value = self.select(special, other, value);
        }
        let sign = self.bin(Binary::And, code, sign_bit);
        let zero = self.i(Scalar::U32, 0);
        let positive = self.bin(Binary::Eq, sign, zero);
        let minus = self.un(Unary::Neg, value);
        self.select(positive, value, minus)
    }

    /// The code of a value, with nothing above its bits.
    fn encode(&mut self, element: Element, value: Value) -> Value {
        match element {
            Element::U8 | Element::U16 | Element::I8 | Element::I16 | Element::I4 => {
                let bits = if self.ty(value) == Scalar::I32 { self.bits(value, Scalar::U32) } else { value };
                let mask = self.i(Scalar::U32, (1i64 << element.bits()) - 1);
                self.bin(Binary::And, bits, mask)
            }
            Element::BF16 => {
                let bits = self.bits(value, Scalar::U32);
                let code = self.round_bits(bits, 16);
                self.unless_nan(value, code, 0x7fc0)
            }
            Element::NF4 => {
                let mut code = self.i(Scalar::U32, 0);
                for pair in NF4.windows(2) {
                    // Above the middle: above the largest f32 that is not above it.
                    let middle = (f64::from(pair[0]) + f64::from(pair[1])) / 2.0;
                    let near = middle as f32;
                    let limit = if f64::from(near) > middle { near.next_down() } else { near };
                    let limit = self.f(limit);
                    let above = self.bin(Binary::Lt, limit, value);
                    let one = self.cast(above, Scalar::U32);
                    code = self.bin(Binary::Add, code, one);
                }
                self.unless_nan(value, code, 7)
            }
            other => self.encode_small(&small(other), value),
        }
    }

    /// The upper bits of a float, rounded to nearest even.
    fn round_bits(&mut self, bits: Value, dropped: u32) -> Value {
        let count = self.i(Scalar::U32, dropped.into());
        let last = self.bin(Binary::Shr, bits, count);
        let one = self.i(Scalar::U32, 1);
        let odd = self.bin(Binary::And, last, one);
        let half = self.i(Scalar::U32, (1i64 << (dropped - 1)) - 1);
        let sum = self.bin(Binary::Add, bits, half);
        let sum = self.bin(Binary::Add, sum, odd);
        self.bin(Binary::Shr, sum, count)
    }

    fn unless_nan(&mut self, value: Value, code: Value, nan: u32) -> Value {
        let number = self.bin(Binary::Eq, value, value);
        let nan = self.i(Scalar::U32, nan.into());
        self.select(number, code, nan)
    }

    fn encode_small(&mut self, format: &Small, value: Value) -> Value {
        let a = self.abs(value);
        let most = self.f(format.largest);
        let a = self.bin(Binary::Min, a, most);
        let bits = self.bits(a, Scalar::U32);
        let rounded = self.round_bits(bits, 23 - format.mantissa);
        let bias = self.i(Scalar::U32, i64::from(127 - format.bias) << format.mantissa);
        let normal = self.bin(Binary::Sub, rounded, bias);
        // Below the smallest normal number, multiples of one step.
        let steps = self.mul_c(a, 2f64.powi(format.bias - 1 + format.mantissa as i32));
        let steps = self.un(Unary::Round, steps);
        let subnormal = self.cast(steps, Scalar::U32);
        let is_subnormal = self.lt_c(a, 2f64.powi(1 - format.bias));
        let magnitude = self.select(is_subnormal, subnormal, normal);
        let whole = self.bits(value, Scalar::U32);
        let top = self.i(Scalar::U32, 31);
        let sign = self.bin(Binary::Shr, whole, top);
        let up = self.i(Scalar::U32, format.sign.trailing_zeros().into());
        let sign = self.bin(Binary::Shl, sign, up);
        let code = self.bin(Binary::Or, magnitude, sign);
        self.unless_nan(value, code, format.nan)
    }
}

/// A float of 8 or 4 bits.
struct Small {
    mantissa: u32,
    bias: i32,
    sign: u32,
    max: u32,
    nan: u32,
    infinity: bool,
    largest: f32,
}

fn small(element: Element) -> Small {
    match element {
        Element::F8E5M2 => {
            Small { mantissa: 2, bias: 15, sign: 0x80, max: 0x7b, nan: 0x7f, infinity: true, largest: 57344.0 }
        }
        Element::FP4 => Small { mantissa: 1, bias: 1, sign: 8, max: 7, nan: 7, infinity: false, largest: 6.0 },
        _ => Small { mantissa: 3, bias: 7, sign: 0x80, max: 0x7e, nan: 0x7f, infinity: false, largest: 448.0 },
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Interpret, Kernel, Narrow, Options, Passes, interpret, lower};

    /// Copies `in` to `out` through the computing type; `scale` changes what is stored.
    fn program(from: &DataType, to: &DataType) -> Program {
        Program::wrapped(
            vec![BufferDecl::read("in", 0, from.clone()), BufferDecl::read_write("out", 1, to.clone())],
            [64, 1, 1],
            vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
        )
    }

    fn run(kernel: &Kernel, input: &[u8], out: usize) -> Vec<u8> {
        let mut buffers = [input.to_vec(), vec![0; out]];
        let grid = [(input.len() as u32 * 2).div_ceil(64), 1, 1];
        interpret(kernel, &mut buffers, &Interpret { grid, subgroup_size: 32, budget: u64::MAX, noise: None })
            .expect("runs");
        let [_, out] = buffers;
        out
    }

    #[test]
    fn written_out_conversions_give_what_the_elements_give() {
        let floats: Vec<u8> = (0..4096u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9) ^ i << 7))
            .chain((0..2048).map(|i| (i as f32 - 1024.0) / 64.0))
            .chain((0..1024).map(|i| (i as f32 - 512.0) / 512.0 * 500.0))
            .chain([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-9, -1e-9, 448.0, 464.0, 57344.0])
            .chain([2.5, 5.0, 0.25, 0.75, 0.039_790_15, f32::MAX, 61440.0])
            .flat_map(f32::to_le_bytes)
            .collect();
        let integers: Vec<u8> = (0..1024u32).flat_map(|i| (i.wrapping_mul(0x9e37_79b9)).to_le_bytes()).collect();
        let codes: Vec<u8> = (0..=255u8).flat_map(|high| [high.wrapping_mul(31), high]).collect();
        let types = [
            (DataType::BF16, DataType::F32),
            (DataType::F8E4M3, DataType::F32),
            (DataType::F8E5M2, DataType::F32),
            (DataType::FP4, DataType::F32),
            (DataType::NF4, DataType::F32),
            (DataType::I4, DataType::I32),
            (DataType::I8, DataType::I32),
            (DataType::U16, DataType::U32),
        ];
        for (stored, computed) in types {
            let input = if computed == DataType::F32 { &floats } else { &integers };
            let there = program(&computed, &stored).validate().expect("valid");
            let back = program(&stored, &computed).validate().expect("valid");
            let bits = stored.bits().expect("sized") as usize;
            let stored_bytes = (input.len() / 4 * bits / 8).next_multiple_of(4);
            for passes in [Passes::none(), Passes::all()] {
                let make =
                    |valid, narrow| lower(valid, &Options { passes, narrow, ..Options::default() }).expect("lowers");
                let expected = run(&make(&there, Narrow::Native), input, stored_bytes);
                let values = run(&make(&back, Narrow::Native), &codes, codes.len() / bits.max(4) * 32);
                for narrow in [Narrow::Bytes, Narrow::Words] {
                    let kernel = make(&there, narrow);
                    assert!(run(&kernel, input, stored_bytes) == expected, "{stored} by {narrow:?}\n{kernel}");
                    let kernel = make(&back, narrow);
                    let out = run(&kernel, &codes, values.len());
                    assert!(same(&out, &values), "{stored} by {narrow:?}\n{kernel}");
                }
            }
        }
    }

    fn same(a: &[u8], b: &[u8]) -> bool {
        a.chunks(4).zip(b.chunks(4)).all(|(a, b)| {
            let nan = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).is_nan();
            a == b || (nan(a) && nan(b))
        })
    }
}
