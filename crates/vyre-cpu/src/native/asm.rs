//! A small x86-64 encoder: what the emitter needs of the integer set, and every vector instruction through one VEX and one
//! EVEX form. Tests check it against an independent decoder.

use super::hash::Map;

/// Width of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Len {
    L128,
    L256,
    L512,
}

impl Len {
    pub(super) fn bytes(self) -> i32 {
        16 << self as i32
    }
}

/// A vector instruction's opcode, the same under VEX and EVEX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct VOp {
    /// 0: none, 1: 66, 2: F3, 3: F2.
    pub(super) pp: u8,
    /// 1: 0F, 2: 0F38, 3: 0F3A.
    pub(super) map: u8,
    pub(super) op: u8,
    pub(super) w: u8,
    /// The memory operand is a whole vector, so it may be a spilled register and its displacement is compressed by the width.
    pub(super) full: bool,
    /// Exists only as EVEX.
    pub(super) evex: bool,
    /// Opcode extension in the reg field, with the destination in vvvv (shifts by an immediate).
    pub(super) ext: Option<u8>,
}

/// A physical memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mem {
    /// `base + index·scale + disp`; the index may be a vector register.
    At { base: u8, index: Option<(u8, u8)>, disp: i32 },
    /// A constant of the pool.
    Pool(u32),
}

/// A physical register or memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rm {
    Reg(u8),
    Mem(Mem),
}

/// What a vector instruction may carry besides its operands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    pub(super) imm: Option<u8>,
    /// Mask register, 0 for none.
    pub(super) mask: u8,
    pub(super) zeroing: bool,
    /// The memory operand is one element for all lanes.
    pub(super) broadcast: bool,
    /// The index of the memory operand is a vector.
    pub(super) vsib: bool,
}

/// A place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label(pub(super) u32);

/// Condition of a jump, set or conditional move, with its code in the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Cond {
    Below = 2,
    AboveEqual = 3,
    Equal = 4,
    NotEqual = 5,
    BelowEqual = 6,
    Above = 7,
    Less = 12,
    GreaterEqual = 13,
    LessEqual = 14,
    Greater = 15,
}

impl Cond {
    /// What holds where this does not.
    pub(super) fn inverse(self) -> Cond {
        match self {
            Cond::Below => Cond::AboveEqual,
            Cond::AboveEqual => Cond::Below,
            Cond::Equal => Cond::NotEqual,
            Cond::NotEqual => Cond::Equal,
            Cond::BelowEqual => Cond::Above,
            Cond::Above => Cond::BelowEqual,
            Cond::Less => Cond::GreaterEqual,
            Cond::GreaterEqual => Cond::Less,
            Cond::LessEqual => Cond::Greater,
            Cond::Greater => Cond::LessEqual,
        }
    }
}

/// Two-operand integer instructions, by the opcode of `op r, rm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Alu {
    Add = 0x03,
    Or = 0x0b,
    And = 0x23,
    Sub = 0x2b,
    Xor = 0x33,
    Cmp = 0x3b,
}

/// Shifts, by the opcode extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Shift {
    Left = 4,
    Right = 5,
    Arithmetic = 7,
}

pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;

/// Code under construction.
#[derive(Debug, Default)]
pub(super) struct Asm {
    pub(super) code: Vec<u8>,
    labels: Vec<Option<u32>>,
    jumps: Vec<(u32, Label)>,
    /// Constants after the code, and the displacements that refer to them with the bytes from there to the next instruction.
    pub(super) pool: Vec<u8>,
    pool_at: Map<Vec<u8>, u32>,
    pool_uses: Vec<(u32, u32)>,
}

impl Asm {
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    pub(super) fn bind(&mut self, label: Label) {
        self.labels[label.0 as usize] = Some(self.code.len() as u32);
    }

    /// A constant of a power-of-two size, aligned to it.
    pub(super) fn constant(&mut self, bytes: &[u8]) -> u32 {
        if let Some(&at) = self.pool_at.get(bytes) {
            return at;
        }
        let at = self.pool.len().next_multiple_of(bytes.len());
        self.pool.resize(at, 0);
        self.pool.extend_from_slice(bytes);
        self.pool_at.insert(bytes.to_vec(), at as u32);
        at as u32
    }

    /// The finished code with its constants behind it; everything in it is relative, so it runs at any address that is a
    /// multiple of 64.
    pub(super) fn finish(mut self) -> Option<Vec<u8>> {
        let base = self.code.len().next_multiple_of(64);
        for &(at, label) in &self.jumps {
            let target = self.labels[label.0 as usize]?;
            let from = at + 4;
            self.code[at as usize..from as usize].copy_from_slice(&target.wrapping_sub(from).to_le_bytes());
        }
        for &(at, constant) in &self.pool_uses {
            let place = at as usize..at as usize + 4;
            let trailing = u32::from_le_bytes(self.code[place.clone()].try_into().ok()?);
            let from = at + 4 + trailing;
            let target = base as u32 + constant;
            self.code[place].copy_from_slice(&target.wrapping_sub(from).to_le_bytes());
        }
        self.code.resize(base, 0xcc);
        self.code.extend_from_slice(&self.pool);
        Some(self.code)
    }

    fn byte(&mut self, byte: u8) {
        self.code.push(byte);
    }

    fn dword(&mut self, value: i32) {
        self.code.extend_from_slice(&value.to_le_bytes());
    }

    /// ModRM, SIB and displacement. `unit` is what an EVEX displacement of one byte counts in; 0 forbids one.
    fn modrm(&mut self, reg: u8, rm: Rm, unit: i32, trailing: u32) {
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(rm) => self.byte(0xc0 | reg | (rm & 7)),
            Rm::Mem(Mem::Pool(constant)) => {
                self.byte(reg | 5);
                self.pool_uses.push((self.code.len() as u32, constant));
                self.dword(trailing as i32);
            }
            Rm::Mem(Mem::At { base, index, disp }) => {
                let short = unit > 0 && disp % unit == 0 && i8::try_from(disp / unit).is_ok();
                let mode = if disp == 0 && base & 7 != 5 {
                    0
                } else if short {
                    0x40
                } else {
                    0x80
                };
                match index {
                    Some((index, scale)) => {
                        self.byte(mode | reg | 4);
                        self.byte((scale.trailing_zeros() as u8) << 6 | (index & 7) << 3 | (base & 7));
                    }
                    None if base & 7 == 4 => {
                        self.byte(mode | reg | 4);
                        self.byte(0x24);
                    }
                    None => self.byte(mode | reg | (base & 7)),
                }
                match mode {
                    0x40 => self.byte((disp / unit) as i8 as u8),
                    0x80 => self.dword(disp),
                    _ => {}
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // The operands of an instruction.
    /// A vector instruction. `evex` chooses the encoding; `a` is the first source, 0 when there is none.
    pub(super) fn vector(&mut self, op: VOp, len: Len, evex: bool, dst: u8, a: u8, rm: Rm, extra: Extra) {
        let (reg, vvvv) = match op.ext {
            Some(ext) => (ext, dst),
            None => (dst, a),
        };
        let (b3, b4, x3, x4) = match rm {
            Rm::Reg(rm) => (rm >> 3 & 1, rm >> 4 & 1, 0, 0),
            Rm::Mem(Mem::Pool(_)) => (0, 0, 0, 0),
            Rm::Mem(Mem::At { base, index, .. }) => {
                let index = index.map_or(0, |(index, _)| index);
                (base >> 3 & 1, 0, index >> 3 & 1, index >> 4 & 1)
            }
        };
        let is_reg = matches!(rm, Rm::Reg(_));
        let unit = if evex {
            let r = (reg >> 3 & 1) ^ 1;
            let r4 = (reg >> 4 & 1) ^ 1;
            let x = if is_reg { b4 ^ 1 } else { x3 ^ 1 };
            let v4 = if extra.vsib { x4 ^ 1 } else { (vvvv >> 4 & 1) ^ 1 };
            self.byte(0x62);
            self.byte(r << 7 | x << 6 | (b3 ^ 1) << 5 | r4 << 4 | op.map);
            self.byte(op.w << 7 | (!vvvv & 15) << 3 | 4 | op.pp);
            self.byte(
                u8::from(extra.zeroing) << 7
                    | (len as u8) << 5
                    | u8::from(extra.broadcast) << 4
                    | v4 << 3
                    | (extra.mask & 7),
            );
            match (extra.broadcast, op.full) {
                (true, _) => 4 << op.w,
                (false, true) => len.bytes(),
                (false, false) => 0,
            }
        } else {
            let x = if is_reg { 1 } else { x3 ^ 1 };
            self.byte(0xc4);
            self.byte(((reg >> 3 & 1) ^ 1) << 7 | x << 6 | (b3 ^ 1) << 5 | op.map);
            self.byte(op.w << 7 | (!vvvv & 15) << 3 | u8::from(len != Len::L128) << 2 | op.pp);
            1
        };
        self.byte(op.op);
        self.modrm(reg, rm, unit, u32::from(extra.imm.is_some()));
        if let Some(imm) = extra.imm {
            self.byte(imm);
        }
    }

    /// An instruction on mask registers, always VEX. `wide` is the L bit: two sources.
    pub(super) fn mask(&mut self, op: VOp, wide: bool, reg: u8, vvvv: u8, rm: Rm, imm: Option<u8>) {
        let len = if wide { Len::L256 } else { Len::L128 };
        self.vector(op, len, false, reg, vvvv, rm, Extra { imm, ..Extra::default() });
    }

    fn rex(&mut self, wide: bool, reg: u8, rm: Rm, force: bool) {
        let (b, x) = match rm {
            Rm::Reg(rm) => (rm >> 3, 0),
            Rm::Mem(Mem::Pool(_)) => (0, 0),
            Rm::Mem(Mem::At { base, index, .. }) => (base >> 3, index.map_or(0, |(index, _)| index >> 3)),
        };
        let rex = u8::from(wide) << 3 | (reg >> 3 & 1) << 2 | (x & 1) << 1 | (b & 1);
        if rex != 0 || force {
            self.byte(0x40 | rex);
        }
    }

    fn simple(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: Rm, trailing: u32) {
        self.rex(wide, reg, rm, false);
        self.code.extend_from_slice(opcode);
        self.modrm(reg, rm, 1, trailing);
    }

    pub(super) fn alu(&mut self, op: Alu, wide: bool, dst: u8, src: Rm) {
        self.simple(wide, &[op as u8], dst, src, 0);
    }

    pub(super) fn alu_imm(&mut self, op: Alu, wide: bool, dst: u8, imm: i32) {
        let ext = op as u8 >> 3;
        match i8::try_from(imm) {
            Ok(imm) => {
                self.simple(wide, &[0x83], ext, Rm::Reg(dst), 1);
                self.byte(imm as u8);
            }
            Err(_) => {
                self.simple(wide, &[0x81], ext, Rm::Reg(dst), 4);
                self.dword(imm);
            }
        }
    }

    /// The instruction that follows changes memory in one step.
    pub(super) fn lock(&mut self) {
        self.byte(0xf0);
    }

    /// A word of memory is changed.
    pub(super) fn update(&mut self, op: Alu, dst: Mem, src: u8) {
        self.simple(false, &[op as u8 - 2], src, Rm::Mem(dst), 0);
    }

    /// Puts a register into a word of memory, or adds it there, and the old word into the register, in one step.
    pub(super) fn fetch(&mut self, adds: bool, dst: Mem, src: u8) {
        if adds {
            self.lock();
            self.simple(false, &[0x0f, 0xc1], src, Rm::Mem(dst), 0);
        } else {
            // Locked by itself.
            self.simple(false, &[0x87], src, Rm::Mem(dst), 0);
        }
    }

    /// Puts a register into a word of memory where EAX is the old one; EAX becomes that.
    pub(super) fn compare_exchange(&mut self, dst: Mem, src: u8) {
        self.lock();
        self.simple(false, &[0x0f, 0xb1], src, Rm::Mem(dst), 0);
    }

    pub(super) fn update_imm(&mut self, op: Alu, dst: Mem, imm: i32) {
        let ext = op as u8 >> 3;
        match i8::try_from(imm) {
            Ok(imm) => {
                self.simple(false, &[0x83], ext, Rm::Mem(dst), 1);
                self.byte(imm as u8);
            }
            Err(_) => {
                self.simple(false, &[0x81], ext, Rm::Mem(dst), 4);
                self.dword(imm);
            }
        }
    }

    pub(super) fn mov(&mut self, wide: bool, dst: u8, src: Rm) {
        self.simple(wide, &[0x8b], dst, src, 0);
    }

    pub(super) fn store(&mut self, bytes: u32, dst: Mem, src: u8) {
        match bytes {
            1 => {
                self.rex(false, src, Rm::Mem(dst), src >= 4);
                self.byte(0x88);
                self.modrm(src, Rm::Mem(dst), 1, 0);
            }
            2 => {
                self.byte(0x66);
                self.simple(false, &[0x89], src, Rm::Mem(dst), 0);
            }
            _ => self.simple(bytes == 8, &[0x89], src, Rm::Mem(dst), 0),
        }
    }

    /// Loads one or two bytes, extended to 32 bits.
    pub(super) fn load_narrow(&mut self, bytes: u32, signed: bool, dst: u8, src: Mem) {
        let opcode = match (bytes, signed) {
            (1, false) => 0xb6,
            (1, true) => 0xbe,
            (_, false) => 0xb7,
            (_, true) => 0xbf,
        };
        self.simple(false, &[0x0f, opcode], dst, Rm::Mem(src), 0);
    }

    pub(super) fn mov_imm(&mut self, dst: u8, value: u64) {
        if value == 0 {
            self.alu(Alu::Xor, false, dst, Rm::Reg(dst));
        } else if u32::try_from(value).is_ok() {
            self.rex(false, 0, Rm::Reg(dst), false);
            self.byte(0xb8 | (dst & 7));
            self.dword(value as i32);
        } else if i32::try_from(value as i64).is_ok() {
            self.simple(true, &[0xc7], 0, Rm::Reg(dst), 4);
            self.dword(value as i32);
        } else {
            self.rex(true, 0, Rm::Reg(dst), false);
            self.byte(0xb8 | (dst & 7));
            self.code.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn lea(&mut self, wide: bool, dst: u8, at: Mem) {
        self.simple(wide, &[0x8d], dst, Rm::Mem(at), 0);
    }

    /// `prefetcht0`, or `prefetchw`, which processors that don't know it take for nothing.
    pub(super) fn prefetch(&mut self, at: Mem, writes: bool) {
        self.simple(false, &[0x0f, if writes { 0x0d } else { 0x18 }], 1, Rm::Mem(at), 0);
    }

    pub(super) fn movsxd(&mut self, dst: u8, src: Rm) {
        self.simple(true, &[0x63], dst, src, 0);
    }

    /// How many bits are set.
    pub(super) fn popcnt(&mut self, dst: u8, src: u8) {
        self.byte(0xf3);
        self.simple(false, &[0x0f, 0xb8], dst, Rm::Reg(src), 0);
    }

    pub(super) fn imul(&mut self, wide: bool, dst: u8, src: Rm) {
        self.simple(wide, &[0x0f, 0xaf], dst, src, 0);
    }

    pub(super) fn imul_imm(&mut self, wide: bool, dst: u8, src: Rm, imm: i32) {
        self.simple(wide, &[0x69], dst, src, 4);
        self.dword(imm);
    }

    pub(super) fn shift_imm(&mut self, shift: Shift, wide: bool, dst: u8, count: u8) {
        self.simple(wide, &[0xc1], shift as u8, Rm::Reg(dst), 1);
        self.byte(count);
    }

    pub(super) fn neg(&mut self, wide: bool, dst: u8) {
        self.simple(wide, &[0xf7], 3, Rm::Reg(dst), 0);
    }

    pub(super) fn not(&mut self, wide: bool, dst: u8) {
        self.simple(wide, &[0xf7], 2, Rm::Reg(dst), 0);
    }

    /// `rax, rdx = rdx:rax / src`.
    pub(super) fn div(&mut self, wide: bool, signed: bool, src: u8) {
        self.simple(wide, &[0xf7], if signed { 7 } else { 6 }, Rm::Reg(src), 0);
    }

    /// Extends the sign of `rax` into `rdx`.
    pub(super) fn cdq(&mut self, wide: bool) {
        self.rex(wide, 0, Rm::Reg(0), false);
        self.byte(0x99);
    }

    pub(super) fn test(&mut self, wide: bool, a: u8, b: u8) {
        self.simple(wide, &[0x85], b, Rm::Reg(a), 0);
    }

    /// 0 or 1 in the whole register; `dst` is written after the flags are read and must not be their source.
    pub(super) fn setcc(&mut self, cond: Cond, dst: u8) {
        self.rex(false, 0, Rm::Reg(dst), true);
        self.code.extend_from_slice(&[0x0f, 0x90 | cond as u8]);
        self.modrm(0, Rm::Reg(dst), 1, 0);
        self.rex(false, dst, Rm::Reg(dst), true);
        self.code.extend_from_slice(&[0x0f, 0xb6]);
        self.modrm(dst, Rm::Reg(dst), 1, 0);
    }

    pub(super) fn cmov(&mut self, cond: Cond, dst: u8, src: Rm) {
        self.simple(true, &[0x0f, 0x40 | cond as u8], dst, src, 0);
    }

    pub(super) fn jump(&mut self, label: Label) {
        self.byte(0xe9);
        self.jumps.push((self.code.len() as u32, label));
        self.dword(0);
    }

    pub(super) fn jump_if(&mut self, cond: Cond, label: Label) {
        self.code.extend_from_slice(&[0x0f, 0x80 | cond as u8]);
        self.jumps.push((self.code.len() as u32, label));
        self.dword(0);
    }

    pub(super) fn call(&mut self, target: Mem) {
        self.simple(false, &[0xff], 2, Rm::Mem(target), 0);
    }

    pub(super) fn push(&mut self, reg: u8) {
        self.rex(false, 0, Rm::Reg(reg), false);
        self.byte(0x50 | (reg & 7));
    }

    pub(super) fn pop(&mut self, reg: u8) {
        self.rex(false, 0, Rm::Reg(reg), false);
        self.byte(0x58 | (reg & 7));
    }

    pub(super) fn ret(&mut self) {
        self.byte(0xc3);
    }

    pub(super) fn vzeroupper(&mut self) {
        self.code.extend_from_slice(&[0xc5, 0xf8, 0x77]);
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    use super::super::ops;
    use super::*;

    fn decode(code: &[u8]) -> Vec<String> {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        let mut all = Vec::new();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            all.push(text);
        }
        all
    }

    fn one(encode: impl FnOnce(&mut Asm)) -> String {
        let mut asm = Asm::default();
        encode(&mut asm);
        let mut all = decode(&asm.code);
        assert_eq!(all.len(), 1, "{all:?} from {:x?}", asm.code);
        all.remove(0)
    }

    /// The mnemonic that a constant's name promises.
    fn mnemonic(name: &str, evex: bool) -> String {
        let name = name.strip_suffix("_STORE").or(name.strip_suffix("_G")).unwrap_or(name);
        let name = name.strip_suffix("_TO").or(name.strip_suffix("_FROM")).unwrap_or(name);
        let renamed = match (name, evex) {
            ("VROUNDPS", true) => "vrndscaleps",
            ("VROUNDPD", true) => "vrndscalepd",
            ("VPANDD", false) => "vpand",
            ("VPANDND", false) => "vpandn",
            ("VPORD", false) => "vpor",
            ("VPXORD", false) => "vpxor",
            _ => name,
        };
        renamed.to_lowercase()
    }

    #[test]
    fn vector_instructions_decode_as_what_they_are_called() {
        let only_vex = [
            "VMASKMOVPS",
            "VMASKMOVPD",
            "VPBLENDD",
            "VBLENDVPS",
            "VMOVMSKPS",
            "VEXTRACTI128",
            "VINSERTI128",
            "VPERM2F128",
            "VPEXTR",
            "VMOVHPS",
        ];
        for &(name, op) in ops::ALL.iter().filter(|(name, _)| name.starts_with('V')) {
            let is_vex_only = only_vex.iter().any(|only| name.starts_with(only));
            for evex in [true, false] {
                if (evex && is_vex_only) || (!evex && op.evex) {
                    continue;
                }
                let scalar = ["VMOVD", "VMOVQ", "VPEXTR", "VMOVHPS"].iter().any(|start| name.starts_with(start));
                let len = match (scalar, evex) {
                    (true, _) => Len::L128,
                    (false, true) => Len::L512,
                    (false, false) => Len::L256,
                };
                let op = if !evex && name == "VPBROADCASTQ" { VOp { w: 0, ..op } } else { op };
                let vsib = name.contains("GATHER") || name.contains("SCATTER");
                let three = (name.starts_with("VINSERT")
                    || name.starts_with("VRANGE")
                    || !matches!(op.op, 0x10 | 0x11 | 0x17 | 0x28 | 0x2b | 0x50 | 0x51 | 0x6e | 0x7e | 0x18))
                    && !name.starts_with("VCVT")
                    && !name.starts_with("VPMOV")
                    && !name.starts_with("VPBROADCAST")
                    && !name.starts_with("VPABS")
                    && !name.starts_with("VROUND")
                    && !name.starts_with("VEXTRACT")
                    && !name.starts_with("VPEXTR")
                    && !name.starts_with("VPLZCNT")
                    && !name.starts_with("VRSQRT")
                    && !name.starts_with("VRCP")
                    && *name != *"VPERMQ"
                    && !(vsib && evex);
                let a = if three { 9 } else { 0 };
                let imm = (op.map == 3 || [0xc2, 0xc6, 0x70, 0x71, 0x72, 0x73].contains(&op.op)).then_some(1);
                let mask = if vsib && evex { 3 } else { 0 };
                let index = if evex { 20 } else { 12 };
                let places: Vec<Rm> = match vsib {
                    true => vec![Rm::Mem(Mem::At { base: 13, index: Some((index, 4)), disp: 192 })],
                    false => {
                        let mut all = vec![Rm::Mem(Mem::At { base: 13, index: Some((10, 8)), disp: 192 })];
                        if op.ext.is_some()
                            || !name.contains("STORE") && !name.contains("_G") && !name.contains("MASKMOV")
                        {
                            let reg = if name.contains("_TO") || name.contains("_FROM") {
                                11
                            } else if evex {
                                21
                            } else {
                                11
                            };
                            all.push(Rm::Reg(reg));
                        }
                        if name.ends_with("_G") {
                            all = vec![Rm::Reg(11)];
                        }
                        if *name == *"VMOVMSKPS" || (op.ext.is_some() && !evex) {
                            all.remove(0);
                        }
                        all
                    }
                };
                for rm in places {
                    let (dst, broadcast) =
                        (if evex && !name.starts_with("VPCMP") && !name.starts_with("VCMP") { 18 } else { 2 }, false);
                    let extra = Extra { imm, mask, zeroing: false, broadcast, vsib };
                    let text = one(|asm| asm.vector(op, len, evex, dst, a, rm, extra));
                    let expected = mnemonic(name, evex);
                    let found = text.split(' ').next().unwrap_or_default();
                    // Comparisons carry their predicate in the name.
                    let same = found == expected
                        || (expected.starts_with("vcmpp") && found.starts_with("vcmp"))
                        || (expected.starts_with("vpcmp") && found.starts_with("vpcmp"))
                        || (expected == "vpermq" && found == "vpermq");
                    assert!(same, "{name} decodes as `{text}`");
                    match rm {
                        Rm::Mem(_) if vsib => assert!(text.contains("r13+") && text.contains("mm"), "{text}"),
                        Rm::Mem(_) => assert!(text.contains("r13+r10*8+0C0h"), "{name}: {text}"),
                        Rm::Reg(reg) => assert!(text.contains(&reg.to_string()), "{name}: {text}"),
                    }
                }
            }
        }
    }

    #[test]
    fn operands_of_vector_instructions_are_in_their_places() {
        let text = |dst, a, rm, extra| one(|asm| asm.vector(ops::VADDPS, Len::L512, true, dst, a, rm, extra));
        let plain = Extra::default();
        assert_eq!(text(31, 15, Rm::Reg(16), plain), "vaddps zmm31,zmm15,zmm16");
        let masked = Extra { mask: 5, zeroing: true, ..plain };
        assert_eq!(text(0, 31, Rm::Reg(8), masked), "vaddps zmm0{k5}{z},zmm31,zmm8");
        let one_element = Extra { broadcast: true, ..plain };
        let at = Rm::Mem(Mem::At { base: 4, index: None, disp: 12 });
        assert_eq!(text(1, 2, at, one_element), "vaddps zmm1,zmm2,[rsp+0Ch]{1to16}");
        let at = Rm::Mem(Mem::At { base: 5, index: Some((12, 4)), disp: -128 });
        assert_eq!(text(1, 2, at, plain), "vaddps zmm1,zmm2,[rbp+r12*4-80h]");
        let at = Rm::Mem(Mem::At { base: 5, index: Some((12, 4)), disp: 100_000 });
        assert_eq!(text(1, 2, at, plain), "vaddps zmm1,zmm2,[rbp+r12*4+186A0h]");
        let vex = one(|asm| asm.vector(ops::VADDPS, Len::L256, false, 9, 15, Rm::Reg(8), plain));
        assert_eq!(vex, "vaddps ymm9,ymm15,ymm8");
        let shift = Extra { imm: Some(7), ..plain };
        let text = one(|asm| asm.vector(ops::VPSRLD, Len::L512, true, 20, 0, Rm::Reg(3), shift));
        assert_eq!(text, "vpsrld zmm20,zmm3,7");
        let text = one(|asm| asm.mask(ops::KANDNW, true, 1, 2, Rm::Reg(3), None));
        assert_eq!(text, "kandnw k1,k2,k3");
        let text = one(|asm| asm.mask(ops::KUNPCKBW, true, 1, 2, Rm::Reg(3), None));
        assert_eq!(text, "kunpckbw k1,k2,k3");
        let text = one(|asm| asm.mask(ops::KSHIFTRW, false, 1, 0, Rm::Reg(3), Some(8)));
        assert_eq!(text, "kshiftrw k1,k3,8");
        let text = one(|asm| asm.mask(ops::KMOVW_TO, false, 1, 0, Rm::Reg(11), None));
        assert_eq!(text, "kmovw k1,r11d");
        let text = one(|asm| asm.mask(ops::KMOVW_FROM, false, 11, 0, Rm::Reg(3), None));
        assert_eq!(text, "kmovw r11d,k3");
        let at = Rm::Mem(Mem::At { base: 4, index: None, disp: 80 });
        assert_eq!(one(|asm| asm.mask(ops::KMOVW_STORE, false, 3, 0, at, None)), "kmovw [rsp+50h],k3");
        assert_eq!(one(|asm| asm.mask(ops::KMOVW, false, 3, 0, at, None)), "kmovw k3,[rsp+50h]");
        assert_eq!(one(|asm| asm.mask(ops::PDEP, false, 11, 3, Rm::Reg(9), None)), "pdep r11,rbx,r9");
        assert_eq!(one(|asm| asm.mask(ops::BLS, false, 3, 9, Rm::Reg(3), None)), "blsi r9d,ebx");
        assert_eq!(one(|asm| asm.mask(ops::BLS, false, 1, 3, Rm::Reg(14), None)), "blsr ebx,r14d");
        let wide = VOp { w: 1, ..ops::SARX };
        assert_eq!(one(|asm| asm.mask(ops::SHLX, false, 9, 3, Rm::Reg(14), None)), "shlx r9d,r14d,ebx");
        assert_eq!(one(|asm| asm.mask(ops::SHRX, false, 3, 10, Rm::Reg(1), None)), "shrx ebx,ecx,r10d");
        assert_eq!(one(|asm| asm.mask(wide, false, 9, 3, Rm::Reg(14), None)), "sarx r9,r14,rbx");
        assert_eq!(one(|asm| asm.mask(ops::KORTESTW, false, 3, 0, Rm::Reg(6), None)), "kortestw k3,k6");
        assert_eq!(one(|asm| asm.mask(ops::KNOTW, false, 3, 0, Rm::Reg(6), None)), "knotw k3,k6");
    }

    #[test]
    fn integer_instructions_decode() {
        let at = Mem::At { base: 12, index: Some((9, 4)), disp: 5 };
        assert_eq!(one(|asm| asm.alu(Alu::Sub, true, 9, Rm::Reg(3))), "sub r9,rbx");
        assert_eq!(one(|asm| asm.popcnt(9, 3)), "popcnt r9d,ebx");
        assert_eq!(one(|asm| asm.alu_imm(Alu::And, false, 14, -1)), "and r14d,0FFFFFFFFh");
        assert_eq!(one(|asm| asm.alu_imm(Alu::Cmp, true, 3, 1000)), "cmp rbx,3E8h");
        assert_eq!(one(|asm| asm.update(Alu::Xor, at, 10)), "xor [r12+r9*4+5],r10d");
        assert_eq!(one(|asm| asm.update_imm(Alu::Add, at, 1)), "add dword ptr [r12+r9*4+5],1");
        let whole = one(|asm| {
            asm.lock();
            asm.update_imm(Alu::Sub, at, 1000);
        });
        assert_eq!(whole, "lock sub dword ptr [r12+r9*4+5],3E8h");
        assert_eq!(one(|asm| asm.fetch(true, at, 2)), "lock xadd [r12+r9*4+5],edx");
        assert_eq!(one(|asm| asm.fetch(false, at, 10)), "xchg [r12+r9*4+5],r10d");
        assert_eq!(one(|asm| asm.compare_exchange(at, 10)), "lock cmpxchg [r12+r9*4+5],r10d");
        assert_eq!(one(|asm| asm.mov(true, 15, Rm::Mem(at))), "mov r15,[r12+r9*4+5]");
        assert_eq!(one(|asm| asm.store(1, at, 6)), "mov [r12+r9*4+5],sil");
        assert_eq!(one(|asm| asm.store(2, at, 6)), "mov [r12+r9*4+5],si");
        assert_eq!(one(|asm| asm.store(4, at, 6)), "mov [r12+r9*4+5],esi");
        assert_eq!(one(|asm| asm.store(8, at, 6)), "mov [r12+r9*4+5],rsi");
        assert_eq!(one(|asm| asm.load_narrow(1, true, 10, at)), "movsx r10d,byte ptr [r12+r9*4+5]");
        assert_eq!(one(|asm| asm.mov_imm(10, 5)), "mov r10d,5");
        assert_eq!(one(|asm| asm.mov_imm(10, u64::MAX)), "mov r10,0FFFFFFFFFFFFFFFFh");
        assert_eq!(one(|asm| asm.mov_imm(10, 1 << 40)), "mov r10,10000000000h");
        assert_eq!(one(|asm| asm.lea(false, 3, at)), "lea ebx,[r12+r9*4+5]");
        assert_eq!(one(|asm| asm.movsxd(3, Rm::Reg(9))), "movsxd rbx,r9d");
        assert_eq!(one(|asm| asm.imul(true, 3, Rm::Reg(9))), "imul rbx,r9");
        assert_eq!(one(|asm| asm.imul_imm(false, 3, Rm::Reg(9), 12)), "imul ebx,r9d,0Ch");
        assert_eq!(one(|asm| asm.shift_imm(Shift::Arithmetic, false, 9, 3)), "sar r9d,3");
        assert_eq!(one(|asm| asm.neg(true, 9)), "neg r9");
        assert_eq!(one(|asm| asm.not(false, 9)), "not r9d");
        assert_eq!(one(|asm| asm.div(true, true, 1)), "idiv rcx");
        assert_eq!(one(|asm| asm.cdq(true)), "cqo");
        assert_eq!(one(|asm| asm.test(false, 9, 3)), "test r9d,ebx");
        assert_eq!(one(|asm| asm.cmov(Cond::Above, 9, Rm::Reg(3))), "cmova r9,rbx");
        assert_eq!(one(|asm| asm.call(Mem::At { base: 15, index: None, disp: 48 })), "call qword ptr [r15+30h]");
        let mut asm = Asm::default();
        asm.setcc(Cond::Less, 6);
        assert_eq!(decode(&asm.code), ["setl sil", "movzx esi,sil"]);
    }
}
