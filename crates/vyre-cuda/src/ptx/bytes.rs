//! Sums of four products of the bytes of two words, for which there is one instruction.

use std::collections::HashMap;

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Value};

/// The two words, and whether their bytes have signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dot {
    pub(super) words: [Value; 2],
    pub(super) signed: bool,
}

/// The values that are such sums. What they are made of is still computed; the assembler drops what nobody needs.
pub(super) fn dots(kernel: &Kernel) -> HashMap<Value, Dot> {
    let mut products = Products { kernel, defs: HashMap::new(), dots: HashMap::new() };
    products.block(&kernel.body);
    products.dots
}

/// A byte of a word: which word, which byte, and whether it has a sign.
type Byte = (Value, u32, bool);

struct Products<'k> {
    kernel: &'k Kernel,
    /// Shifts, masks, products, sums and constants of 32 bits.
    defs: HashMap<Value, &'k Op>,
    dots: HashMap<Value, Dot>,
}

impl<'k> Products<'k> {
    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op @ (Op::Const(_) | Op::BitCast(_) | Op::Binary(..))) => {
                    if !matches!(self.scalar(*value), Scalar::U32 | Scalar::I32) {
                        continue;
                    }
                    self.defs.insert(*value, op);
                    if let Op::Binary(Binary::Add, ..) = op
                        && let Some(dot) = self.dot(*value)
                    {
                        self.dots.insert(*value, dot);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => self.block(&inner.body),
                _ => {}
            }
        }
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn number(&self, value: Value) -> Option<u32> {
        match self.defs.get(&value)? {
            Op::Const(Literal::U32(number)) => Some(*number),
            Op::Const(Literal::I32(number)) => Some(*number as u32),
            _ => None,
        }
    }

    fn dot(&self, sum: Value) -> Option<Dot> {
        let mut products = Vec::new();
        self.products(sum, &mut products)?;
        if products.len() != 4 {
            return None;
        }
        let mut found: Option<Dot> = None;
        let mut seen = [false; 4];
        for (a, b) in products {
            let ((a, place, signed), (b, other, also)) = (self.byte(a)?, self.byte(b)?);
            if place != other || signed != also || std::mem::replace(&mut seen[place as usize], true) {
                return None;
            }
            match found {
                None => found = Some(Dot { words: [a, b], signed }),
                Some(dot) if dot.signed == signed && (dot.words == [a, b] || dot.words == [b, a]) => {}
                Some(_) => return None,
            }
        }
        found
    }

    /// The factors of all that is added; nothing where something is no product or there are too many.
    fn products(&self, sum: Value, into: &mut Vec<(Value, Value)>) -> Option<()> {
        match self.defs.get(&sum)? {
            Op::Binary(Binary::Add, a, b) if into.len() < 4 => {
                self.products(*a, into)?;
                self.products(*b, into)
            }
            Op::Binary(Binary::Mul, a, b) if into.len() < 4 => {
                into.push((*a, *b));
                Some(())
            }
            _ => None,
        }
    }

    fn byte(&self, value: Value) -> Option<Byte> {
        let signed = self.scalar(value) == Scalar::I32;
        match self.defs.get(&value)? {
            Op::Binary(Binary::Shr, from, by) if self.number(*by) == Some(24) => {
                if let Some(Op::Binary(Binary::Shl, word, by)) = self.defs.get(from)
                    && let Some(by @ (8 | 16 | 24)) = self.number(*by)
                {
                    return Some((self.word(*word), (24 - by) / 8, signed));
                }
                Some((self.word(*from), 3, signed))
            }
            Op::Binary(Binary::And, from, mask) if !signed && self.number(*mask) == Some(0xff) => {
                if let Some(Op::Binary(Binary::Shr, word, by)) = self.defs.get(from)
                    && self.scalar(*from) == Scalar::U32
                    && let Some(by @ (8 | 16)) = self.number(*by)
                {
                    return Some((self.word(*word), by / 8, false));
                }
                Some((self.word(*from), 0, false))
            }
            _ => None,
        }
    }

    /// The same bits under another type.
    fn word(&self, value: Value) -> Value {
        match self.defs.get(&value) {
            Some(Op::BitCast(from)) if matches!(self.scalar(*from), Scalar::U32 | Scalar::I32) => self.word(*from),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{self, Options};
    use vyre_wgsl::{ImportOptions, import};

    use crate::ptx::{Target, emit, lowering};

    fn text(of: &str, ty: &str) -> String {
        let source = format!(
            "@group(0) @binding(0) var<storage, read> a: array<u32, 64>;
             @group(0) @binding(1) var<storage, read> b: array<u32, 64>;
             @group(0) @binding(2) var<storage, read_write> c: array<{ty}, 64>;
             @compute @workgroup_size(64)
             fn main(@builtin(local_invocation_id) id: vec3u) {{
                 let i = id.x;
                 c[i] = c[i] + {of};
             }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = kernel::lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("emits").text
    }

    #[test]
    fn sums_of_products_of_bytes_are_one_instruction() {
        let signed = text("dot4I8Packed(a[i], b[i])", "i32");
        assert!(signed.contains("dp4a.s32.s32"), "{signed}");
        let unsigned = text("dot4U8Packed(a[i], b[i])", "u32");
        assert!(unsigned.contains("dp4a.u32.u32"), "{unsigned}");
    }

    #[test]
    fn other_bytes_are_not() {
        let crossed = "(a[i] & 255u) * (b[i] & 255u) + ((a[i] >> 8u) & 255u) * ((b[i] >> 16u) & 255u)
            + ((a[i] >> 16u) & 255u) * ((b[i] >> 8u) & 255u) + (a[i] >> 24u) * (b[i] >> 24u)";
        assert!(!text(crossed, "u32").contains("dp4a"));
        let twice = "(a[i] & 255u) * (b[i] & 255u) + (a[i] & 255u) * (b[i] & 255u)
            + ((a[i] >> 16u) & 255u) * ((b[i] >> 16u) & 255u) + (a[i] >> 24u) * (b[i] >> 24u)";
        assert!(!text(twice, "u32").contains("dp4a"));
    }
}
