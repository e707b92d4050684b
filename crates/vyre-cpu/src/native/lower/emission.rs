//! The instructions so far, their registers and labels.

use super::super::asm::{Asm, Label};
use super::super::mir::{Class, M, R};
use super::Lower;

pub(super) struct Emission {
    pub(super) code: Vec<M>,
    /// Registers of each class.
    pub(super) counts: [u32; 3],
    pub(super) labels: u32,
    /// Labels and constants.
    pub(super) asm: Asm,
}

impl Emission {
    pub(super) fn new() -> Emission {
        Emission { code: Vec::with_capacity(256), counts: [0; 3], labels: 0, asm: Asm::default() }
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        self.asm.label()
    }
}

impl Lower<'_> {
    pub(super) fn reg(&mut self, class: Class) -> R {
        let count = &mut self.emission.counts[class as usize];
        *count += 1;
        R::new(class, *count - 1)
    }

    pub(super) fn general(&mut self) -> R {
        self.reg(Class::General)
    }

    pub(super) fn vector(&mut self) -> R {
        self.reg(Class::Vector)
    }

    pub(super) fn label(&mut self) -> Label {
        self.emission.label()
    }

    pub(super) fn push(&mut self, m: M) {
        self.emission.code.push(m);
    }

    /// Binds a label; what was made before it is not known to have been made on every way to it, unless `keep`.
    pub(super) fn bind(&mut self, label: Label) {
        self.workgroup.cells.clear();
        self.push(M::Label(label));
    }
}
