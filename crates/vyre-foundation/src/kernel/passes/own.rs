//! Words of workgroup memory that only one invocation writes, as in `row[local_id.x] = x`: what it wrote there it need not load, whatever barriers
//! come between.
//!
//! It keeps a copy of them in a private array, which then becomes values. What is written in branches only, as by those that take part in a round of
//! a tree, stays as it is: so little would be left in such a branch that all go through it.

use smallvec::SmallVec;

use super::arrays;
use crate::ir::Builtin;
use crate::kernel::walk::{access, blocks, each_inst, replace_insts};
use crate::kernel::{Address, Block, Element, Inst, Kernel, KernelMemory, Memory, Op};

/// Words of an array that an invocation keeps.
const MOST_WORDS: usize = 4;

pub(super) fn run(kernel: &mut Kernel, array_values: u32) {
    if !kernel.has_barrier || kernel.shared.is_empty() {
        return;
    }
    let is_line = kernel.workgroup_size[1] == 1 && kernel.workgroup_size[2] == 1;
    let mut places = vec![false; kernel.values.len()];
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(value, Op::Builtin(builtin)) = inst {
            places[value.index()] = *builtin == Builtin::LocalIndex || *builtin == Builtin::LocalId(0) && is_line;
        }
    });
    let invocations = kernel.workgroup_size.iter().product();
    let mut own: Vec<Own> = kernel.shared.iter().map(Own::new).collect();
    let widths: Vec<u8> = kernel.values.iter().map(|info| info.ty.width).collect();
    note(&kernel.body, false, &places, &widths, &mut own);
    own.iter_mut().for_each(|own| own.settle(invocations));
    if own.iter().all(|own| own.words.is_empty()) {
        return;
    }
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(_, Op::Load { address, element, .. }) = inst
            && let Memory::Shared(shared) = address.memory
        {
            let own = &mut own[shared as usize];
            own.is_loaded |= own.word(address, *element, &places).is_some();
        }
    });
    for (own, shared) in own.iter_mut().zip(&kernel.shared).filter(|(own, _)| own.is_loaded) {
        own.copy = Some(kernel.locals.len() as u32);
        let size = own.words.len() as u32 * own.bytes();
        kernel.locals.push(KernelMemory { size, atomic: false, ..shared.clone() });
    }
    keep(&mut kernel.body, &places, &widths, &own);
    arrays::promote(kernel, array_values);
}

/// What is written to an array in workgroup memory.
struct Own {
    element: Element,
    /// How far apart the places of neighbours are.
    stride: u32,
    /// Where an invocation's words begin; none where others may write them too.
    words: SmallVec<[u32; MOST_WORDS]>,
    /// Everything that was seen of it fits.
    fits: bool,
    is_loaded: bool,
    /// The private array that has the words.
    copy: Option<u32>,
}

impl Own {
    fn new(memory: &KernelMemory) -> Own {
        let element = memory.element.map_or(Element::U32, |(element, _)| element);
        let fits = arrays::is_plain(memory) && !memory.atomic;
        Own { element, stride: 0, words: SmallVec::new(), fits, is_loaded: false, copy: None }
    }

    fn bytes(&self) -> u32 {
        self.element.bits() / 8
    }

    /// Words of different invocations must not be the same.
    fn settle(&mut self, invocations: u32) {
        self.words.sort_unstable();
        let all = u64::from(self.stride) * u64::from(invocations);
        let apart = self.words.windows(2).all(|pair| u64::from(pair[1] - pair[0]) >= all);
        if !self.fits || !apart || self.stride < self.bytes() {
            self.words.clear();
        }
    }

    fn word(&self, address: &Address, element: Element, places: &[bool]) -> Option<u32> {
        let own = matches!(address.terms[..], [(at, stride)] if places[at.index()] && stride == self.stride);
        let word = self.words.iter().position(|word| *word == address.offset)?;
        (own && element == self.element).then_some(word as u32 * self.bytes())
    }
}

/// Notes what is stored.
fn note(block: &Block, in_branch: bool, places: &[bool], widths: &[u8], all: &mut [Own]) {
    for inst in &block.insts {
        match inst {
            Inst::Store { address, element, value, guard } => {
                let Memory::Shared(shared) = address.memory else { continue };
                let own = &mut all[shared as usize];
                match address.terms[..] {
                    [(at, stride)] if places[at.index()] && (own.words.is_empty() || own.stride == stride) => {
                        own.stride = stride;
                        own.fits &=
                            guard.is_none() && !in_branch && *element == own.element && widths[value.index()] == 1;
                        if !own.words.contains(&address.offset) {
                            own.fits &= own.words.len() < MOST_WORDS;
                            own.words.push(address.offset);
                        }
                    }
                    _ => own.fits = false,
                }
            }
            Inst::Atomic { .. } => {
                if let Some((Address { memory: Memory::Shared(shared), .. }, _)) = access(inst) {
                    all[*shared as usize].fits = false;
                }
            }
            inst => {
                let in_branch = in_branch || matches!(inst, Inst::If { .. });
                blocks(inst).for_each(|block| note(block, in_branch, places, widths, all));
            }
        }
    }
}

/// Keeps what is stored, and takes what is loaded from there.
fn keep(body: &mut Block, places: &[bool], widths: &[u8], all: &[Own]) {
    let copy_of = |address: &Address, element: Element| {
        let Memory::Shared(shared) = address.memory else { return None };
        let own = &all[shared as usize];
        let (local, offset) = (own.copy?, own.word(address, element, places)?);
        Some(Address { memory: Memory::Local(local), terms: SmallVec::new(), offset })
    };
    replace_insts(body, &mut |mut inst, insts| {
        let mut kept = None;
        match &mut inst {
            Inst::Let(value, Op::Load { address, element, guard }) if widths[value.index()] == 1 => {
                if let Some(copy) = copy_of(address, *element).filter(|_| guard.is_none()) {
                    *address = copy;
                }
            }
            Inst::Store { address, element, value, .. } => {
                kept = copy_of(address, *element).map(|address| Inst::Store {
                    address,
                    element: *element,
                    value: *value,
                    guard: None,
                });
            }
            _ => {}
        }
        insts.push(inst);
        insts.extend(kept);
    });
}
