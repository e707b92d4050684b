//! Elements that are stored in fewer bits than they compute in.

use std::fmt::Write;

use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value, eval};

use super::{Emitter, line, space};

/// A float of 8 or 4 bits: bits of its mantissa, bias of its exponent, largest code without a sign, code of NaN.
struct Small {
    mantissa: u32,
    bias: u32,
    sign: u32,
    max: u32,
    nan: u32,
}

const E4M3: Small = Small { mantissa: 3, bias: 7, sign: 0x80, max: 0x7e, nan: 0x7f };
const E5M2: Small = Small { mantissa: 2, bias: 15, sign: 0x80, max: 0x7b, nan: 0x7f };
const E2M1: Small = Small { mantissa: 1, bias: 1, sign: 0x8, max: 0x7, nan: 0x7 };

/// The name of the table of NF4's levels.
pub(super) const LEVELS: &str = "vyre_nf4";

/// The table as the module declares it.
pub(super) fn levels() -> String {
    let levels: Vec<String> = (0..16).map(|code| format!("0f{:08X}", eval::decode(Element::NF4, code))).collect();
    format!(".const .align 4 .f32 {LEVELS}[16] = {{{}}};\n", levels.join(", "))
}

impl Emitter<'_> {
    /// The value of stored bits that lie in the low part of a 32-bit register, the rest of which is zero.
    pub(super) fn decode(&mut self, element: Element, into: &str, bits: &str) {
        match element {
            Element::BF16 => {
                let word = self.temp("%r");
                line!(self, "shl.b32 {word}, {bits}, 16");
                line!(self, "mov.b32 {into}, {word}");
            }
            // The upper half of an f16.
            Element::F8E5M2 => self.decode_as_f16(into, bits, 8, 0x80, None),
            Element::F8E4M3 => {
                let (magnitude, nan) = (self.temp("%r"), self.temp("%p"));
                self.decode_as_f16(into, bits, 7, 0x80, Some(8));
                line!(self, "and.b32 {magnitude}, {bits}, 0x7f");
                line!(self, "setp.eq.u32 {nan}, {magnitude}, 0x7f");
                line!(self, "selp.f32 {into}, 0f7FC00000, {into}, {nan}");
            }
            Element::FP4 => self.decode_as_f16(into, bits, 9, 0x8, Some(14)),
            Element::NF4 => {
                self.uses_nf4 = true;
                let at = self.temp("%d");
                let base = self.temp("%d");
                line!(self, "mov.u64 {base}, {LEVELS}");
                line!(self, "mad.wide.u32 {at}, {bits}, 4, {base}");
                line!(self, "ld.const.f32 {into}, [{at}]");
            }
            Element::I4 => {
                line!(self, "shl.b32 {into}, {bits}, 28");
                line!(self, "shr.s32 {into}, {into}, 28");
            }
            _ => line!(self, "mov.b32 {into}, {bits}"),
        }
    }

    /// Puts exponent and mantissa where an f16 has them, which is exact, and corrects the exponent's bias.
    fn decode_as_f16(&mut self, into: &str, bits: &str, shift: u32, sign: u32, scale: Option<u32>) {
        let (magnitude, high, half) = (self.temp("%r"), self.temp("%r"), self.temp("%h"));
        line!(self, "and.b32 {magnitude}, {bits}, {}", sign - 1);
        line!(self, "shl.b32 {magnitude}, {magnitude}, {shift}");
        line!(self, "and.b32 {high}, {bits}, {sign}");
        line!(self, "shl.b32 {high}, {high}, {}", 15 - sign.trailing_zeros());
        line!(self, "or.b32 {magnitude}, {magnitude}, {high}");
        line!(self, "cvt.u16.u32 {half}, {magnitude}");
        line!(self, "cvt.f32.f16 {into}, {half}");
        if let Some(scale) = scale {
            line!(self, "mul.rn.f32 {into}, {into}, 0f{:08X}", (scale + 127) << 23);
        }
    }

    /// The bits to store for a value, in a 32-bit register.
    pub(super) fn encode(&mut self, element: Element, value: &str) -> String {
        match element {
            Element::BF16 => self.encode_bf16(value),
            Element::F8E4M3 => self.encode_small(&E4M3, value),
            Element::F8E5M2 => self.encode_small(&E5M2, value),
            Element::FP4 => self.encode_small(&E2M1, value),
            Element::NF4 => self.encode_nf4(value),
            Element::I4 => {
                let code = self.temp("%r");
                line!(self, "and.b32 {code}, {value}, 15");
                code
            }
            _ => value.to_owned(),
        }
    }

    fn encode_bf16(&mut self, value: &str) -> String {
        let (word, odd, code, nan) = (self.temp("%r"), self.temp("%r"), self.temp("%r"), self.temp("%p"));
        line!(self, "mov.b32 {word}, {value}");
        line!(self, "bfe.u32 {odd}, {word}, 16, 1");
        line!(self, "add.u32 {code}, {word}, {odd}");
        line!(self, "add.u32 {code}, {code}, 0x7fff");
        line!(self, "shr.u32 {code}, {code}, 16");
        line!(self, "setp.nan.f32 {nan}, {value}, {value}");
        line!(self, "selp.b32 {code}, 0x7fc0, {code}, {nan}");
        code
    }

    /// Rounds to nearest even, saturates.
    fn encode_small(&mut self, format: &Small, value: &str) -> String {
        let (word, magnitude, odd, code) = (self.temp("%r"), self.temp("%r"), self.temp("%r"), self.temp("%r"));
        line!(self, "mov.b32 {word}, {value}");
        line!(self, "and.b32 {magnitude}, {word}, 0x7fffffff");
        // Normal results: round away the mantissa's lower bits, then move the exponent.
        let shift = 23 - format.mantissa;
        line!(self, "bfe.u32 {odd}, {magnitude}, {shift}, 1");
        line!(self, "add.u32 {code}, {magnitude}, {odd}");
        line!(self, "add.u32 {code}, {code}, {}", (1u32 << (shift - 1)) - 1);
        line!(self, "shr.u32 {code}, {code}, {shift}");
        line!(self, "sub.u32 {code}, {code}, {}", (127 - format.bias) << format.mantissa);
        line!(self, "min.u32 {code}, {code}, {}", format.max);
        // Subnormal results: a sum whose last bit is worth the smallest code rounds to it.
        let anchor = (127 + 24 - format.bias - format.mantissa) << 23;
        let (absolute, sum, small, tiny) = (self.temp("%f"), self.temp("%f"), self.temp("%r"), self.temp("%p"));
        line!(self, "mov.b32 {absolute}, {magnitude}");
        line!(self, "add.rn.f32 {sum}, {absolute}, 0f{anchor:08X}");
        line!(self, "mov.b32 {small}, {sum}");
        line!(self, "sub.u32 {small}, {small}, {anchor}");
        line!(self, "setp.lt.u32 {tiny}, {magnitude}, {}", (128 - format.bias) << 23);
        line!(self, "selp.b32 {code}, {small}, {code}, {tiny}");
        let (sign, nan) = (self.temp("%r"), self.temp("%p"));
        line!(self, "shr.u32 {sign}, {word}, {}", 31 - format.sign.trailing_zeros());
        line!(self, "and.b32 {sign}, {sign}, {}", format.sign);
        line!(self, "or.b32 {code}, {code}, {sign}");
        line!(self, "setp.nan.f32 {nan}, {value}, {value}");
        line!(self, "selp.b32 {code}, {}, {code}, {nan}", format.nan);
        code
    }

    /// Counts the midpoints between levels that lie below the value; a tie goes to the lower level.
    fn encode_nf4(&mut self, value: &str) -> String {
        let (code, above) = (self.temp("%r"), self.temp("%p"));
        line!(self, "mov.u32 {code}, 0");
        let level = |code: u64| f64::from(f32::from_bits(eval::decode(Element::NF4, code) as u32));
        for pair in 0..15 {
            // A float is above the midpoint when it is above the largest float that is not.
            let middle = (level(pair) + level(pair + 1)) / 2.0;
            let rounded = middle as f32;
            let below = if f64::from(rounded) > middle { rounded.next_down() } else { rounded };
            line!(self, "setp.gt.f32 {above}, {value}, 0f{:08X}", below.to_bits());
            line!(self, "@{above} add.u32 {code}, {code}, 1");
        }
        line!(self, "setp.nan.f32 {above}, {value}, {value}");
        line!(self, "selp.b32 {code}, 7, {code}, {above}");
        code
    }

    /// The element's number in a memory of 4-bit elements, counted up by `lane`; 64 bits for buffers, else 32.
    fn nibble(&mut self, address: &Address, lane: u8) -> String {
        let wide = matches!(address.memory, Memory::Buffer(_));
        let ty = if wide { "u64" } else { "u32" };
        let mut sum = self.temp(if wide { "%d" } else { "%r" });
        line!(self, "mov.{ty} {sum}, {}", u64::from(address.offset) + u64::from(lane));
        for &(index, stride) in &address.terms {
            let next = self.temp(if wide { "%d" } else { "%r" });
            let long = self.scalar(index) == Scalar::U64;
            let index = self.reg(index);
            match (wide, long) {
                (true, true) => line!(self, "mad.lo.u64 {next}, {index}, {stride}, {sum}"),
                (true, false) => line!(self, "mad.wide.u32 {next}, {index}, {stride}, {sum}"),
                (false, false) => line!(self, "mad.lo.u32 {next}, {index}, {stride}, {sum}"),
                (false, true) => {
                    let short = self.temp("%r");
                    line!(self, "cvt.u32.u64 {short}, {index}");
                    line!(self, "mad.lo.u32 {next}, {short}, {stride}, {sum}");
                }
            }
            sum = next;
        }
        sum
    }

    /// The address of the byte or word that holds an element, and the element's position in it, in bits.
    fn nibble_place(&mut self, memory: Memory, element: &str, per_place: u32) -> (String, String) {
        let wide = matches!(memory, Memory::Buffer(_));
        let (ty, bits, class) = if wide { ("u64", "b64", "%d") } else { ("u32", "b32", "%r") };
        let (at, shift) = (self.temp(class), self.temp("%r"));
        line!(self, "shr.{ty} {at}, {element}, {}", per_place.trailing_zeros());
        if per_place == 8 {
            line!(self, "shl.{bits} {at}, {at}, 2");
        }
        let base = match memory {
            Memory::Buffer(index) => format!("%buffer{index}"),
            Memory::Shared(_) | Memory::Local(_) => {
                let base = self.temp("%r");
                let name = self.memory_name(memory);
                line!(self, "mov.u32 {base}, {name}");
                base
            }
        };
        line!(self, "add.{ty} {at}, {at}, {base}");
        if wide {
            line!(self, "cvt.u32.u64 {shift}, {element}");
        } else {
            line!(self, "mov.u32 {shift}, {element}");
        }
        line!(self, "and.b32 {shift}, {shift}, {}", per_place - 1);
        line!(self, "shl.b32 {shift}, {shift}, 2");
        (at, shift)
    }

    pub(super) fn load_nibbles(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        path: &str,
        guard: Option<Value>,
    ) {
        let predicate = self.guard(guard);
        for lane in 0..self.width(value) {
            let number = self.nibble(address, lane);
            let (at, shift) = self.nibble_place(address.memory, &number, 2);
            let bits = self.temp("%r");
            line!(self, "mov.u32 {bits}, 0");
            line!(self, "{predicate}ld.{path}.u8 {bits}, [{at}]");
            line!(self, "shr.u32 {bits}, {bits}, {shift}");
            line!(self, "and.b32 {bits}, {bits}, 15");
            let into = self.component(value, lane);
            self.decode(element, &into, &bits);
            // A code of zero is not zero in every format.
            if let (Some(guard), Element::NF4) = (guard, element) {
                let guard = self.reg(guard);
                line!(self, "selp.f32 {into}, {into}, 0f00000000, {guard}");
            }
        }
    }

    /// Neighbours share a word, so it is exchanged as a whole, and only if nobody else changed it meanwhile.
    pub(super) fn store_nibbles(&mut self, address: &Address, element: Element, value: Value, guard: Option<Value>) {
        let path = space(address.memory);
        for lane in 0..self.width(value) {
            let skip = self.label();
            if let Some(guard) = guard {
                let guard = self.reg(guard);
                line!(self, "@!{guard} bra L{skip}");
            }
            let source = self.component(value, lane);
            let code = self.encode(element, &source);
            let number = self.nibble(address, lane);
            let (at, shift) = self.nibble_place(address.memory, &number, 8);
            let (mask, old, new, seen) = (self.temp("%r"), self.temp("%r"), self.temp("%r"), self.temp("%r"));
            let (placed, differs, retry) = (self.temp("%r"), self.temp("%p"), self.label());
            line!(self, "shl.b32 {placed}, {code}, {shift}");
            line!(self, "mov.u32 {mask}, 15");
            line!(self, "shl.b32 {mask}, {mask}, {shift}");
            line!(self, "not.b32 {mask}, {mask}");
            match address.memory {
                Memory::Local(_) => {
                    line!(self, "ld.local.u32 {old}, [{at}]");
                    line!(self, "and.b32 {new}, {old}, {mask}");
                    line!(self, "or.b32 {new}, {new}, {placed}");
                    line!(self, "st.local.u32 [{at}], {new}");
                }
                Memory::Buffer(_) | Memory::Shared(_) => {
                    let scope = if path == "shared" { "cta" } else { "gpu" };
                    line!(self, "ld.relaxed.{scope}.{path}.u32 {old}, [{at}]");
                    self.place(retry);
                    line!(self, "and.b32 {new}, {old}, {mask}");
                    line!(self, "or.b32 {new}, {new}, {placed}");
                    line!(self, "atom.relaxed.{scope}.{path}.cas.b32 {seen}, [{at}], {old}, {new}");
                    line!(self, "setp.ne.u32 {differs}, {seen}, {old}");
                    line!(self, "mov.u32 {old}, {seen}");
                    line!(self, "@{differs} bra L{retry}");
                }
            }
            self.place(skip);
        }
    }

    /// How a memory other than a buffer is called.
    fn memory_name(&self, memory: Memory) -> String {
        match memory {
            Memory::Shared(index) => self.shared_base[index as usize].clone(),
            Memory::Local(index) | Memory::Buffer(index) => format!("local{index}"),
        }
    }
}
