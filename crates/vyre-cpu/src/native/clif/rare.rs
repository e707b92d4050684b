//! What the helper would do lane by lane, without the call where it is a few scalar instructions.

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::types::{I32X4, I64X2};
use vyre_foundation::kernel::{Binary, Scalar};

use super::super::context::{COLUMN, RESULT};
use super::super::lower::Rare;
use super::{Emitter, access};

impl Emitter<'_> {
    /// Emits what a word to the helper asks; false when the helper has to be called.
    pub(super) fn rare(&mut self, code: u64) -> bool {
        let Some(Rare::Binary(op @ (Binary::Div | Binary::Rem), scalar)) = Rare::unpack(code) else { return false };
        let (ty, parts) = match scalar {
            Scalar::U32 | Scalar::I32 => (I32X4, 1),
            Scalar::U64 | Scalar::I64 => (I64X2, 2),
            _ => return false,
        };
        for part in 0..parts {
            let at = part * 16;
            let a = self.builder.ins().load(ty, access(), self.scratch, at);
            let b = self.builder.ins().load(ty, access(), self.scratch, COLUMN + at);
            let mut value = a;
            for lane in 0..ty.lane_count() as u8 {
                let x = self.builder.ins().extractlane(a, lane);
                let y = self.builder.ins().extractlane(b, lane);
                let one = self.divide(scalar.is_signed(), op == Binary::Rem, x, y);
                value = self.builder.ins().insertlane(value, one, lane);
            }
            self.builder.ins().store(access(), value, self.scratch, RESULT + at);
        }
        true
    }
}
