//! What compiled code calls for operations without instructions of their own. It works on the scratch columns, lane by lane.

use vyre_foundation::ir::{AtomicOp, SubgroupOp};
use vyre_foundation::kernel::{Binary, Element, Memory, Scalar, eval};

use super::context::{
    COLUMN, FIRST, LAUNCH, MASK, RESULT, SCRATCH, SUBGROUP_ARGUMENT, SUBGROUP_OPERAND, SUBGROUP_RESULT,
};
use super::lower::{Access, OLD_UNUSED, Rare};
use crate::launch::SUBGROUP_SIZE;
use crate::memory::Span;

/// What the helper must know about the launch that calls it.
pub(super) struct Frame<'a> {
    pub(super) lanes: u32,
    pub(super) buffers: &'a [Span],
    /// Workgroup memory, and where each array of it lies.
    pub(super) shared: Span,
    pub(super) shared_at: &'a [u32],
    pub(super) shared_sizes: &'a [u32],
    /// The arrays of all lanes of a block, with the bytes of one lane's arrays together.
    pub(super) locals: Span,
    pub(super) lane_bytes: u32,
    /// First byte of each array within a lane's, its size, and whether its words lie lane beside lane.
    pub(super) arrays: &'a [(u32, u32, bool)],
}

/// The scratch columns.
struct Columns(*mut u8);

impl Columns {
    /// Bits of a lane of a column, as the kernel form counts them.
    fn get(&self, at: i32, scalar: Scalar, lane: u32) -> u64 {
        // SAFETY: `at` is the start of a column and a lane takes at most 8 of its 128 bytes; only this thread uses them.
        unsafe {
            match scalar {
                Scalar::Bool => u64::from(self.0.add(at as usize).cast::<u32>().read() >> lane & 1),
                Scalar::F16 => {
                    let wide = self.0.add(at as usize).cast::<f32>().add(lane as usize).read();
                    u64::from(half::f16::from_f32(wide).to_bits())
                }
                _ if scalar.bits() == 64 => self.0.add(at as usize).cast::<u64>().add(lane as usize).read(),
                _ => u64::from(self.0.add(at as usize).cast::<u32>().add(lane as usize).read()),
            }
        }
    }

    fn set(&self, scalar: Scalar, lane: u32, bits: u64) {
        self.set_at(RESULT, scalar, lane, bits);
    }

    fn set_at(&self, at: i32, scalar: Scalar, lane: u32, bits: u64) {
        let at = at as usize;
        // SAFETY: as in `get`.
        unsafe {
            match scalar {
                Scalar::Bool => {
                    let word = self.0.add(at).cast::<u32>();
                    word.write(word.read() & !(1 << lane) | u32::from(bits != 0) << lane);
                }
                Scalar::F16 => {
                    let wide = half::f16::from_bits(bits as u16).to_f32();
                    self.0.add(at).cast::<f32>().add(lane as usize).write(wide);
                }
                _ if scalar.bits() == 64 => self.0.add(at).cast::<u64>().add(lane as usize).write(bits),
                _ => self.0.add(at).cast::<u32>().add(lane as usize).write(bits as u32),
            }
        }
    }

    fn mask(&self) -> u32 {
        // SAFETY: as in `get`.
        unsafe { self.0.add(MASK as usize).cast::<u32>().read() }
    }

    fn first(&self) -> u32 {
        // SAFETY: as in `get`.
        unsafe { self.0.add(FIRST as usize).cast::<u32>().read() }
    }

    fn offset(&self, lane: u32) -> u64 {
        self.get(0, Scalar::U32, lane)
    }
}

/// The function that the context names.
///
/// # Safety
/// Called by compiled code only, with its own context and a word that lowering made.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe extern "sysv64" fn help(context: *const u64, word: u64) {
    // SAFETY: the caller's promise.
    unsafe { answer(context, word) }
}

/// The function that the context names.
///
/// # Safety
/// Called by compiled code only, with its own context and a word that lowering made.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe extern "C" fn help(context: *const u64, word: u64) {
    // SAFETY: the caller's promise.
    unsafe { answer(context, word) }
}

/// # Safety
/// As for `help`.
unsafe fn answer(context: *const u64, word: u64) {
    // SAFETY: the context holds the addresses of the launch's frame and of its scratch memory at these places.
    let (frame, columns) = unsafe {
        let frame = context.add(LAUNCH as usize / 8).read() as *const Frame<'_>;
        let scratch = context.add(SCRATCH as usize / 8).read() as *mut u8;
        (&*frame, Columns(scratch))
    };
    let operand = |column: i32| column * COLUMN;
    let Some(rare) = Rare::unpack(word) else { return };
    match rare {
        Rare::Subgroup(op, ty) => return subgroup(&columns, op, ty),
        Rare::Memory {
            access: Access::Atomic(op),
            memory: Memory::Buffer(index),
            element: element @ (Element::U32 | Element::I32),
            ..
        } => {
            let span = frame.buffers[index as usize];
            return atomics(span, &columns, op, element, frame.lanes, word & OLD_UNUSED == 0);
        }
        _ => {}
    }
    for lane in 0..frame.lanes {
        match rare {
            Rare::Unary(op, ty) => {
                columns.set(ty, lane, eval::unary(op, ty, columns.get(0, ty, lane)));
            }
            Rare::Binary(op, ty) => {
                let compares =
                    matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge);
                let shifts = matches!(op, Binary::Shl | Binary::Shr);
                let a = columns.get(0, ty, lane);
                let b = columns.get(operand(1), if shifts { Scalar::U32 } else { ty }, lane);
                let bits = eval::binary(op, ty, a, b);
                columns.set(if compares { Scalar::Bool } else { ty }, lane, bits);
            }
            Rare::Fma(ty) => {
                let [a, b, c] = [0, 1, 2].map(|column| columns.get(operand(column), ty, lane));
                columns.set(ty, lane, eval::fma(ty, a, b, c));
            }
            Rare::Cast(from, to) => {
                columns.set(to, lane, eval::cast(from, to, columns.get(0, from, lane)));
            }
            Rare::BitCast(from, to) => {
                columns.set(to, lane, eval::bit_cast(from, to, columns.get(0, from, lane)));
            }
            // Not lane by lane.
            Rare::Subgroup(..) => {}
            Rare::Memory { access, memory, element, component } => {
                on_memory(frame, &columns, access, memory, element, component, lane);
            }
        }
    }
}

/// An atomic of all lanes on words of a buffer. Where nobody needs the old values, neighbours with one address become one operation.
fn atomics(span: Span, columns: &Columns, op: AtomicOp, element: Element, lanes: u32, wanted: bool) {
    let (mask, scalar) = (columns.mask(), element.scalar());
    let combines = !matches!(op, AtomicOp::Load | AtomicOp::Store | AtomicOp::Exchange | AtomicOp::CompareExchange);
    // What is subtracted adds up, as what is added.
    let joined = |a: u32, b: u32| {
        let op = if op == AtomicOp::Sub { AtomicOp::Add } else { op };
        eval::atomic(op, scalar, u64::from(a), u64::from(b), 0) as u32
    };
    let mut waiting: Option<(u64, u32)> = None;
    for lane in 0..lanes {
        if mask >> lane & 1 == 0 {
            columns.set(scalar, lane, 0);
            continue;
        }
        let (at, value) = (columns.offset(lane), columns.get(COLUMN, scalar, lane) as u32);
        if wanted || !combines {
            let compare = columns.get(2 * COLUMN, scalar, lane) as u32;
            columns.set(scalar, lane, u64::from(span.atomic(op, element == Element::I32, at, value, compare)));
            continue;
        }
        waiting = match waiting {
            Some((before, sum)) if before == at => Some((at, joined(sum, value))),
            Some((before, sum)) => {
                span.atomic(op, element == Element::I32, before, sum, 0);
                Some((at, value))
            }
            None => Some((at, value)),
        };
    }
    if let Some((at, sum)) = waiting {
        span.atomic(op, element == Element::I32, at, sum, 0);
    }
}

/// One operation of a whole subgroup, in the order of its lanes.
fn subgroup(columns: &Columns, op: SubgroupOp, ty: Scalar) {
    let present = columns.mask();
    let lanes = || (0..SUBGROUP_SIZE).filter(|lane| present >> lane & 1 != 0);
    let get = |lane: u32| columns.get(SUBGROUP_OPERAND, ty, lane);
    let set = |lane: u32, bits: u64| columns.set_at(SUBGROUP_RESULT, ty, lane, bits);
    let combine = match op {
        SubgroupOp::Add | SubgroupOp::InclusiveAdd | SubgroupOp::ExclusiveAdd => Binary::Add,
        SubgroupOp::Mul | SubgroupOp::InclusiveMul | SubgroupOp::ExclusiveMul => Binary::Mul,
        SubgroupOp::Min => Binary::Min,
        SubgroupOp::Max => Binary::Max,
        SubgroupOp::And => Binary::And,
        SubgroupOp::Or => Binary::Or,
        _ => Binary::Xor,
    };
    let both = |a: u64, b: u64| match (combine, ty) {
        (Binary::Add, Scalar::U32 | Scalar::I32) => u64::from((a as u32).wrapping_add(b as u32)),
        (Binary::Add, Scalar::F32) => u64::from((f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()),
        _ => eval::binary(combine, ty, a, b),
    };
    match op {
        SubgroupOp::InclusiveAdd | SubgroupOp::InclusiveMul | SubgroupOp::ExclusiveAdd | SubgroupOp::ExclusiveMul => {
            let inclusive = matches!(op, SubgroupOp::InclusiveAdd | SubgroupOp::InclusiveMul);
            // What nothing combines to.
            let none = if combine == Binary::Mul { eval::cast(Scalar::U32, ty, 1) } else { 0 };
            let mut sum: Option<u64> = None;
            for lane in lanes() {
                let bits = get(lane);
                let next = sum.map_or(bits, |sum| both(sum, bits));
                set(lane, if inclusive { next } else { sum.unwrap_or(none) });
                sum = Some(next);
            }
        }
        SubgroupOp::Broadcast
        | SubgroupOp::Shuffle
        | SubgroupOp::ShuffleXor
        | SubgroupOp::ShuffleUp
        | SubgroupOp::ShuffleDown => {
            for lane in lanes() {
                let by = columns.get(SUBGROUP_ARGUMENT, Scalar::U32, lane) as u32;
                let from = match op {
                    SubgroupOp::ShuffleXor => Some(lane ^ by),
                    SubgroupOp::ShuffleUp => lane.checked_sub(by),
                    SubgroupOp::ShuffleDown => lane.checked_add(by),
                    _ => Some(by),
                };
                let from = from.filter(|&from| from < SUBGROUP_SIZE && present >> from & 1 != 0);
                set(lane, from.map_or(0, get));
            }
        }
        _ => {
            let all = match op {
                SubgroupOp::BroadcastFirst => lanes().next().map(get),
                _ => lanes().map(get).reduce(both),
            };
            for lane in lanes() {
                set(lane, all.unwrap_or(0));
            }
        }
    }
}

fn on_memory(
    frame: &Frame<'_>,
    columns: &Columns,
    access: Access,
    memory: Memory,
    element: Element,
    component: u32,
    lane: u32,
) {
    let scalar = element.scalar();
    if columns.mask() >> lane & 1 == 0 {
        columns.set(scalar, lane, 0);
        return;
    }
    let mut at = columns.offset(lane);
    let span = match memory {
        Memory::Buffer(index) => frame.buffers[index as usize],
        Memory::Shared(index) => {
            let (at, bytes) = (frame.shared_at[index as usize], frame.shared_sizes[index as usize]);
            frame.shared.part(at as usize, bytes as usize)
        }
        Memory::Local(index) => {
            let (first, size, beside) = frame.arrays[index as usize];
            let lanes_before = columns.first() + component * frame.lanes;
            let start = u64::from(lanes_before * frame.lane_bytes + first * frame.lanes);
            at = match beside {
                true => start + (at / 4 * u64::from(frame.lanes) + u64::from(lane)) * 4,
                false => start + u64::from(lane * size) + at,
            };
            frame.locals
        }
    };
    let value = |column: i32| columns.get(column * COLUMN, scalar, lane);
    match access {
        Access::Load => columns.set(scalar, lane, eval::decode(element, span.read(element, at))),
        Access::Store => span.write(element, at, eval::encode(element, value(1))),
        Access::Atomic(AtomicOp::Load) => columns.set(scalar, lane, span.update(element, at, |old| old)),
        Access::Atomic(op) => {
            let (operand, compare) = (value(1), value(2));
            let old = span.update(element, at, |old| eval::atomic(op, scalar, old, operand, compare));
            columns.set(scalar, lane, old);
        }
    }
}
