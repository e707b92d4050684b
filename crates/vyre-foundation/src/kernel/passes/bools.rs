//! Booleans in memory as the words that they are stored in, so that an emitter needs nothing of its own for them.

use super::values::Values;
use crate::ir::Literal;
use crate::kernel::walk::replace_insts;
use crate::kernel::{Binary, Element, Inst, Kernel, Op, Scalar};

pub(super) fn run(kernel: &mut Kernel) {
    let memories = kernel.shared.iter_mut().chain(&mut kernel.locals);
    let mut found = false;
    for memory in memories {
        if let Some((element @ Element::Bool, 1)) = &mut memory.element {
            *element = Element::U32;
            found = true;
        }
    }
    if !found {
        return;
    }
    let mut values = Values::of(kernel);
    let [zero, one] = [0, 1].map(|number| values.constant_at_start(Literal::U32(number)));
    replace_insts(&mut kernel.body, &mut |mut inst, insts| match &mut inst {
        Inst::Let(value, Op::Load { element: element @ Element::Bool, .. }) if values.ty(*value).width == 1 => {
            *element = Element::U32;
            let word = values.fresh(Scalar::U32);
            let loaded = std::mem::replace(value, word);
            insts.extend([inst, Inst::Let(loaded, Op::Binary(Binary::Ne, word, zero))]);
        }
        Inst::Store { element: element @ Element::Bool, value, .. } if values.ty(*value).width == 1 => {
            *element = Element::U32;
            *value = values.define(Scalar::U32, Op::Select(*value, one, zero), insts);
            insts.push(inst);
        }
        _ => insts.push(inst),
    });
    values.give_back(kernel);
}
