//! Vectors that are constants throughout: one without a register is read from where constants lie, instead of a stack slot that would have
//! to be filled first.

use super::asm::Asm;
use super::hash::Map;
use super::isa::Isa;
use super::mir::{Class, LaneOp, M, R, Role, Src};
use super::ops;

/// The registers that hold constants, each with its bytes, of which there are a whole vector or as many as repeat.
#[derive(Default)]
pub(super) struct Constants {
    bytes: Map<R, Vec<u8>>,
}

impl Constants {
    /// Those of code for AVX2, where registers are few.
    pub(super) fn of(code: &mut [M], asm: &Asm, isa: Isa) -> Constants {
        let mut constants = Constants::default();
        if isa != Isa::Avx2 {
            return constants;
        }
        let mut writes: Map<R, u32> = Map::default();
        for m in code {
            m.visit(&mut |r, role| {
                if r.class() == Class::Vector && matches!(role, Role::Def | Role::Both) {
                    *writes.entry(*r).or_default() += 1;
                }
            });
            if let M::Vec(v) = m
                && let Some(bytes) = bytes_of(v, asm, isa)
            {
                constants.bytes.insert(v.dst, bytes);
            }
        }
        constants.bytes.retain(|r, _| writes.get(r) == Some(&1));
        constants
    }

    pub(super) fn has(&self, r: R) -> bool {
        self.bytes.contains_key(&r)
    }

    /// The instruction only loads a constant.
    pub(super) fn is_made_by(&self, m: &M) -> bool {
        matches!(m, M::Vec(v) if self.has(v.dst))
    }

    /// A whole vector of the constant.
    pub(super) fn place(&self, r: R, asm: &mut Asm, isa: Isa) -> Option<u32> {
        let bytes = self.bytes.get(&r)?;
        Some(asm.constant(&bytes.repeat(isa.len().bytes() as usize / bytes.len())))
    }
}

fn bytes_of(v: &LaneOp, asm: &Asm, isa: Isa) -> Option<Vec<u8>> {
    let whole = isa.len().bytes() as usize;
    let bytes = match (v.op, v.b) {
        // The register is cleared.
        (ops::VPXORD, Src::R(b)) if v.a == v.dst && b == v.dst => return Some(vec![0; 4]),
        (ops::VBROADCASTSS, Src::Pool(at)) => (at, 4),
        (ops::VPBROADCASTQ, Src::Pool(at)) => (at, 8),
        (ops::VMOVUPS, Src::Pool(at)) => (at, whole),
        _ => return None,
    };
    let is_plain = v.mask.is_none() && !v.acc && v.len == isa.len();
    asm.pool.get(bytes.0 as usize..bytes.0 as usize + bytes.1).filter(|_| is_plain).map(<[u8]>::to_vec)
}
