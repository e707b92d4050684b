//! Booleans in memory as the words that they are stored in, so that an emitter needs nothing of its own for them.

use crate::ir::Literal;
use crate::kernel::{Binary, Block, Element, Inst, Kernel, Op, Scalar, Value, ValueInfo};

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
    let mut words = Words { values: std::mem::take(&mut kernel.values), constants: Vec::new() };
    let numbers = [0, 1].map(|number| words.constant(number));
    words.block(&mut kernel.body, numbers);
    kernel.values = words.values;
    kernel.body.insts.splice(0..0, words.constants);
}

struct Words {
    values: Vec<ValueInfo>,
    /// To be defined before everything else.
    constants: Vec<Inst>,
}

impl Words {
    fn word(&mut self) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: Scalar::U32.into(), uniform: false });
        value
    }

    fn constant(&mut self, number: u32) -> Value {
        let value = self.word();
        self.constants.push(Inst::Let(value, Op::Const(Literal::U32(number))));
        value
    }

    fn block(&mut self, block: &mut Block, [zero, one]: [Value; 2]) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::Let(value, Op::Load { element: element @ Element::Bool, .. })
                    if self.values[value.index()].ty.width == 1 =>
                {
                    *element = Element::U32;
                    let word = self.word();
                    let loaded = std::mem::replace(value, word);
                    insts.push(inst);
                    insts.push(Inst::Let(loaded, Op::Binary(Binary::Ne, word, zero)));
                    continue;
                }
                Inst::Store { element: element @ Element::Bool, value, .. }
                    if self.values[value.index()].ty.width == 1 =>
                {
                    *element = Element::U32;
                    let word = self.word();
                    insts.push(Inst::Let(word, Op::Select(*value, one, zero)));
                    *value = word;
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then, [zero, one]);
                    self.block(otherwise, [zero, one]);
                }
                Inst::Loop(inner) => self.block(&mut inner.body, [zero, one]),
                _ => {}
            }
            insts.push(inst);
        }
        block.insts = insts;
    }
}
