//! Machine code.
//!
//! `shape` finds how values change over lanes, `lower` turns the kernel form into machine instructions for a block of vectors,
//! `tidy` takes out what is not needed, `regalloc` and `emit` make bytes of them for x86-64 and `clif` for other processors,
//! `code` holds the bytes in executable memory, and `helper` is what they call.

mod asm;
mod before;
// On x86-64 Cranelift is asked for; on the other processors that it makes code for it is the only way.
#[cfg_attr(
    not(all(
        unix,
        any(target_arch = "aarch64", target_arch = "riscv64", all(target_arch = "x86_64", feature = "cranelift"))
    )),
    path = "no_clif.rs"
)]
mod clif;
mod code;
mod constants;
mod context;
mod divide;
mod emit;
mod flags;
mod hash;
mod helper;
mod isa;
mod joins;
mod jumps;
mod lower;
mod mir;
mod ops;
mod order;
mod regalloc;
mod shape;
mod single;
mod tidy;
mod tops;
mod updates;
mod ways;

use vyre_foundation::ir::{AtomicOp, Builtin};
use vyre_foundation::kernel::{Binary, Block, Inst, Kernel, Memory, Op, Value};

pub(crate) use isa::Isa;
pub(crate) use shape::MAX_INDEX;

use vyre_driver::backend::{Reader, Writer};

use crate::launch::{Grid, Stop, Stretch, workgroups};
use crate::memory::{Scratch, Span};
use lower::Tiling;
use shape::Layout;

/// A kernel as machine code.
#[derive(Debug)]
pub(crate) struct Native {
    code: code::Code,
    bytes: Vec<u8>,
    isa: Isa,
    tiling: Tiling,
    shape: FrameShape,
    vector_spills: u32,
    /// Buffers that can be written past the caches, and bytes of each invocation.
    streamed: Vec<(u32, u32)>,
    /// Buffers that are only added to, for which a thread may be given a copy.
    copied: Vec<u32>,
}

/// Sizes of the private memories of one thread.
#[derive(Debug)]
struct FrameShape {
    shared_at: Vec<u32>,
    shared_sizes: Vec<u32>,
    shared_bytes: u32,
    arrays: Vec<(u32, u32, bool)>,
    lane_bytes: u32,
    locals_bytes: usize,
    frame_bytes: usize,
}

/// Steps of all vectors of a workgroup that may make one block. More would be a great deal of code.
const MAX_STEPS: usize = 1 << 16;

/// Steps of a kernel for Cranelift: it takes more than twice as long for twice as many, and half a minute for three times this.
const MAX_STEPS_128: usize = 5_000;

/// Most vectors of a workgroup that are one block where a piece at a time would do as well, and most steps of all of them.
const MOST_VECTORS: u32 = 64;
const MOST_GROUP_STEPS: usize = 1 << 13;
/// Barriers one after the other that are those of a tree.
const ROUNDS_OF_A_TREE: usize = 6;
/// The same where there are half as many registers, and twice as many vectors for them.
const MOST_VECTORS_256: u32 = 16;
/// Most vectors for Cranelift, which takes ten times as long for a step.
const MOST_VECTORS_128: u32 = 8;
/// Bytes of the arrays of invocations that go through a loop side by side: more would push each other out of the first cache.
const MOST_ARRAYS: u32 = 16 << 10;
/// Steps of all vectors of a piece.
const PIECE_STEPS: usize = 1 << 9;

/// Steps of all vectors of a block along rows; the more steps a kernel has, the fewer vectors.
const MOST_BLOCK_STEPS: usize = 1 << 11;
/// The same for Cranelift, which takes ten times as long for a step.
const MOST_BLOCK_STEPS_128: usize = 1 << 8;

/// Most rows that lanes of a block read side by side, and steps for each element below which reading is most of the work.
const MOST_ROWS: u32 = 16;
const STEPS_OF_A_ROW: usize = 16;
/// Rows of different length that are gone over side by side.
const MOST_ROWS_TOGETHER: u32 = 32;

/// The part of a block's work that may be for values on the stack, before a smaller block is tried.
const MOST_SPILLED: f32 = 0.05;
/// The same for a block of two vectors in a loop: with one alone every instruction waits for the one before.
const MOST_SPILLED_OF_TWO: f32 = 0.2;
/// The same for AVX2, whose sixteen registers are soon spent: half of its vectors wait as long for each other, and most of what is on the
/// stack is an operand of the instruction that needs it.
const MOST_SPILLED_256: f32 = 0.15;
const MOST_SPILLED_OF_TWO_256: f32 = 0.8;
/// The same for pieces of a workgroup, of which the next smaller one is done right after.
const MOST_SPILLED_OF_PIECE_256: f32 = 0.1;
/// Steps of a kernel between barriers that has enough instructions which don't wait for each other in one vector.
const LONG_STEPS: usize = 96;

/// The part of a whole workgroup's work that may be for values on the stack, before another order of instructions is tried.
const MUCH_SPILLED: f32 = 0.3;
/// The same before a workgroup with loops is taken in pieces instead, and the bytes of code before it is: more than the processor's cache
/// of instructions holds, for what is run once for each workgroup is in them too. Few vectors that go through a long kernel side by side
/// hide each other's waiting, and stay together.
const TOO_MUCH_SPILLED: f32 = 0.25;
const TOO_MUCH_CODE: usize = 40_000;
const TOO_MUCH_TO_WAIT_FOR: usize = 32_000;
const MANY_VECTORS: u32 = 8;
/// Instructions that are too much code, whichever they are.
const TOO_MANY_INSTRUCTIONS: usize = TOO_MUCH_CODE / 5;

/// A block with many values on the stack is taken instead of the smallest one if its cost for a vector is this part of that one's (with
/// AVX2: if it is less): what vectors of a block share may be most of the work of a loop.
const MUCH_CHEAPER: f32 = 0.7;

/// Code for a block, before it is made of bytes.
struct Made {
    tiling: Tiling,
    lowered: lower::Lowered,
    allocation: regalloc::Allocation,
    /// What a vector takes.
    cost: f32,
}

/// What decides how a kernel is compiled.
#[derive(Default)]
struct Survey {
    steps: usize,
    /// Of these, what stands for one lane after another.
    lane_steps: usize,
    loops: bool,
    matrices: bool,
    subgroups: bool,
    /// Lanes change memory one after another.
    by_lanes: bool,
    /// The invocation's place in its workgroup along x, or the workgroup's.
    place: bool,
    /// The place in the workgroup as one number.
    line: bool,
    /// What a workgroup of several rows works on lies together: its place along x is multiplied by as many as it has invocations, or more.
    apart: bool,
    /// A loop counts from the workgroup's place, which is only one number where a block is one workgroup.
    strides: bool,
    /// Invocations meet in a tree: there are many barriers, or loops with barriers, each of which goes on by halves or doubles and has
    /// no loop inside.
    tree: bool,
}

impl Survey {
    fn of(kernel: &Kernel, isa: Isa) -> Survey {
        let mut survey = Survey::default();
        // Values that the workgroup's place along x decides.
        let mut of_group = vec![false; kernel.values.len()];
        let mut constants = vec![None; kernel.values.len()];
        let mut places = vec![false; kernel.values.len()];
        let [size_x, size_y, _] = kernel.workgroup_size;
        visit(&kernel.body, &mut |inst| {
            survey.steps += 1;
            if let Inst::Let(value, op) = inst {
                places[value.index()] = *op == Op::Builtin(Builtin::WorkgroupId(0));
                constants[value.index()] = match op {
                    Op::Const(literal) => u32::try_from(literal.bits()).ok(),
                    _ => None,
                };
                let times = match op {
                    Op::Binary(Binary::Mul, a, b) if places[a.index()] => constants[b.index()],
                    Op::Binary(Binary::Mul, a, b) if places[b.index()] => constants[a.index()],
                    Op::Binary(Binary::Shl, a, b) if places[a.index()] => {
                        constants[b.index()].and_then(|by| 1u32.checked_shl(by))
                    }
                    _ => None,
                };
                survey.apart |= size_y > 1 && times.is_some_and(|times| times >= size_x * size_y);
                of_group[value.index()] = match op {
                    Op::Builtin(builtin) => *builtin == Builtin::WorkgroupId(0),
                    Op::Binary(_, a, b) => of_group[a.index()] || of_group[b.index()],
                    Op::Cast(a) | Op::BitCast(a) => of_group[a.index()],
                    _ => false,
                };
            }
            match inst {
                Inst::Loop(inner) => {
                    survey.loops = true;
                    let first = inner.counter.iter().map(|counter| counter.from).chain(inner.init.iter().copied());
                    let uniform = |value: &Value| kernel.values[value.index()].uniform && of_group[value.index()];
                    survey.strides |= first.into_iter().any(|value| uniform(&value));
                }
                // Lane by lane, and where the old value is needed in several steps; but loads and stores are like any others.
                Inst::Atomic { op: AtomicOp::Load | AtomicOp::Store, .. } => {}
                // At one place lanes are put together.
                Inst::Atomic { result: None, address, .. } if address.terms.is_empty() && isa != Isa::Simd128 => {}
                Inst::Atomic { result, .. } => {
                    survey.lane_steps += if result.is_some() { 4 } else { 2 } * isa.lanes() as usize;
                    survey.by_lanes = true;
                }
                Inst::Let(_, Op::Matrix(_)) => survey.matrices = true,
                Inst::Let(_, Op::Subgroup(..)) => survey.subgroups = true,
                Inst::Let(_, Op::Builtin(builtin)) => match builtin {
                    Builtin::LocalId(0) | Builtin::WorkgroupId(0) => survey.place = true,
                    Builtin::LocalIndex => survey.line = true,
                    Builtin::SubgroupLane | Builtin::SubgroupId => survey.subgroups = true,
                    _ => {}
                },
                _ => {}
            }
        });
        survey.steps += survey.lane_steps;
        survey.tree = is_tree(&kernel.body);
        survey
    }
}

/// What a workgroup has in its memory is put together in rounds between barriers, each with half or double the distance of the one before.
fn is_tree(body: &Block) -> bool {
    // Its rounds may be written out.
    let barriers = body.insts.iter().filter(|inst| matches!(inst, Inst::Barrier(_))).count();
    let (mut any, mut all) = (barriers >= ROUNDS_OF_A_TREE, true);
    visit(body, &mut |inst| {
        let Inst::Loop(inner) = inst else { return };
        let (mut barrier, mut plain, mut moves) = (false, true, false);
        visit(&inner.body, &mut |inst| match inst {
            Inst::Barrier(_) => barrier = true,
            Inst::Loop(_) => plain = false,
            Inst::Let(_, Op::Binary(Binary::Shl | Binary::Shr, distance, _)) => {
                moves |= inner.params.contains(distance)
            }
            _ => {}
        });
        any |= barrier;
        all &= !barrier || (plain && moves);
    });
    any && all
}

/// Why a kernel can't be compiled; the interpreter then runs it.
pub(crate) fn refusal(kernel: &Kernel, isa: Isa) -> Option<String> {
    let survey = Survey::of(kernel, isa);
    if survey.matrices {
        return Some("it has matrix operations".to_owned());
    }
    let total: u32 = kernel.workgroup_size.iter().product();
    let vectors = total.div_ceil(isa.lanes()) as usize;
    let layout = layout(kernel, isa, &survey);
    let steps = survey.steps;
    let whole = !layout.is_along_rows()
        && (isa != Isa::Simd128
            || is_small(kernel, isa, &survey)
            || pieces(kernel, isa, layout, &survey, &shape::analyse(kernel, isa, layout, 1)).is_empty());
    // Cranelift takes long for such blocks, and their code was not seen to hold on every processor.
    if whole && isa == Isa::Simd128 && vectors > 64 {
        return Some(format!("{vectors} vectors of a workgroup are too much code"));
    }
    if isa == Isa::Simd128 && steps > MAX_STEPS_128 {
        return Some(format!("its {steps} steps are too much code"));
    }
    if whole && vectors * steps > MAX_STEPS {
        return Some(format!("its {steps} steps for {vectors} vectors of a workgroup are too much code"));
    }
    if kernel.buffers.len() > 0xffff || kernel.shared.len() > 0xffff || kernel.locals.len() > 0xffff {
        return Some("it has too many memories".to_owned());
    }
    None
}

fn visit(block: &Block, f: &mut dyn FnMut(&Inst)) {
    for inst in &block.insts {
        f(inst);
        match inst {
            Inst::If { then, otherwise, .. } => {
                visit(then, f);
                visit(otherwise, f);
            }
            Inst::Loop(inner) => visit(&inner.body, f),
            _ => {}
        }
    }
}

/// The vectors of a workgroup can be one block, with another for where it is not inside all bounds.
fn is_one_block(kernel: &Kernel, isa: Isa, survey: &Survey) -> bool {
    let vectors = vectors_of(kernel, isa);
    let most = match isa {
        Isa::Avx512 => MOST_VECTORS,
        Isa::Avx2 => MOST_VECTORS_256,
        Isa::Simd128 => MOST_VECTORS_128,
    };
    vectors <= most && vectors as usize * survey.steps <= MOST_GROUP_STEPS / 2
}

/// How a kernel is laid over vectors.
fn layout(kernel: &Kernel, isa: Isa, survey: &Survey) -> Layout {
    let size = kernel.workgroup_size;
    let whole_rows = size[0].is_multiple_of(isa.lanes());
    let free = !kernel.has_barrier && kernel.shared.is_empty() && !survey.subgroups && !survey.strides;
    let together = !(survey.apart && whole_rows && is_one_block(kernel, isa, survey));
    let simple = !survey.place || (whole_rows && size[0].is_power_of_two());
    let is_row = size[1] == 1 && size[2] == 1 && whole_rows && size[0].is_power_of_two();
    if free && together && simple && (!survey.line || is_row) {
        return Layout::Rows;
    }
    if whole_rows { Layout::Group } else { Layout::Line }
}

/// The vectors of a workgroup.
fn vectors_of(kernel: &Kernel, isa: Isa) -> u32 {
    kernel.workgroup_size.iter().product::<u32>().div_ceil(isa.lanes())
}

/// A workgroup has few vectors and steps, and might be one block.
fn is_small(kernel: &Kernel, isa: Isa, survey: &Survey) -> bool {
    let vectors = vectors_of(kernel, isa);
    let arrays = lower::Frame::of(kernel).lane_bytes * isa.lanes();
    let most = match isa {
        Isa::Simd128 => MOST_VECTORS_128,
        // What waits on the stack is little beside what is done lane by lane.
        Isa::Avx2 if survey.by_lanes => MOST_VECTORS,
        // Partners of a tree are known vectors then, and what waits on the stack would wait in workgroup memory otherwise.
        Isa::Avx2 if survey.tree => MOST_VECTORS,
        Isa::Avx2 => MOST_VECTORS_256,
        Isa::Avx512 => MOST_VECTORS,
    };
    // Most rounds of a tree are for few vectors, or are loops over words.
    let most_steps = if survey.tree { 4 * MOST_GROUP_STEPS } else { MOST_GROUP_STEPS };
    vectors <= most
        && (isa == Isa::Simd128 || vectors as usize * survey.steps <= most_steps)
        && vectors * arrays <= MOST_ARRAYS
}

/// The pieces that a workgroup can be taken in, the best first; none where it has to be one block.
fn pieces(kernel: &Kernel, isa: Isa, layout: Layout, survey: &Survey, shapes: &shape::Shapes) -> Vec<Tiling> {
    if !lower::can_split(&kernel.body, shapes) {
        return Vec::new();
    }
    let size = kernel.workgroup_size;
    let vectors = vectors_of(kernel, isa);
    let arrays = lower::Frame::of(kernel).lane_bytes * isa.lanes();
    let along = if layout == Layout::Group { size[0] / isa.lanes() } else { vectors };
    // Lanes one after another need few registers.
    let (subgroups, steps) = (survey.subgroups, survey.steps - survey.lane_steps);
    let largest = |count: u32, most: u32| (1..=most.min(count)).rev().find(|&n| count.is_multiple_of(n)).unwrap_or(1);
    let mut all: Vec<Tiling> = Vec::new();
    for most in [16, 8, 4, 2, 1] {
        let x = largest(along, most);
        let y = if layout == Layout::Group && x == along { largest(size[1], most / x) } else { 1 };
        // A subgroup is in one piece.
        let whole = !subgroups || (x * y * isa.lanes()).is_multiple_of(crate::launch::SUBGROUP_SIZE);
        let few = (x * y) as usize * steps <= PIECE_STEPS && x * y * arrays <= MOST_ARRAYS;
        let fits = few || subgroups || x * y == 1;
        let tiling = Tiling { layout, vectors: x, rows: y };
        if whole && fits && !all.contains(&tiling) {
            all.push(tiling);
        }
    }
    all
}

/// Rows of a block along rows. They share what does not depend on them, when a loop makes that worth it, or what they have in common lies
/// apart from what others have.
fn block_rows(kernel: &Kernel, survey: &Survey) -> u32 {
    if kernel.workgroup_size[1].is_multiple_of(4) && (survey.loops || survey.apart) { 4 } else { 1 }
}

/// Invocations that are components of vectors do better than whole vectors. In a workgroup with barriers AVX2 takes long rows one by one, so that
/// what rows have in common is loaded for each of them; only more than one sum of each row is worth that.
pub(crate) fn gains_by_components(kernel: &Kernel, isa: Isa) -> bool {
    let mut most = 0;
    visit(&kernel.body, &mut |inst| {
        if let Inst::Loop(inner) = inst {
            most = most.max(inner.params.len());
        }
    });
    isa != Isa::Avx2 || !kernel.has_barrier || most > 1
}

/// As many invocations along x are inside the bounds of accesses by their place alone: no longer block ever is.
fn lanes_in_bounds(kernel: &Kernel) -> u32 {
    let (mut constants, mut places) = (vec![None; kernel.values.len()], vec![false; kernel.values.len()]);
    let (mut limits, mut guards) = (vec![None; kernel.values.len()], Vec::new());
    visit(&kernel.body, &mut |inst| match inst {
        Inst::Let(value, Op::Const(literal)) => constants[value.index()] = u32::try_from(literal.bits()).ok(),
        Inst::Let(value, Op::Builtin(Builtin::GlobalId(0))) => places[value.index()] = true,
        Inst::Let(value, Op::Binary(Binary::Lt, a, b)) if places[a.index()] => {
            limits[value.index()] = constants[b.index()];
        }
        Inst::Let(_, Op::Load { guard, .. }) | Inst::Store { guard, .. } => guards.extend(*guard),
        _ => {}
    });
    guards.into_iter().filter_map(|guard| limits[guard.index()]).min().unwrap_or(u32::MAX)
}

/// There is a loop in which each lane reads a row of its own, and little else is done: of many rows that are read side by side, the
/// processor foresees none.
fn reads_rows(kernel: &Kernel, shapes: &shape::Shapes) -> bool {
    let is_far = |inst: &Inst| {
        let Inst::Let(_, Op::Load { address, .. }) = inst else { return false };
        let apart = address.terms.iter().map(|&(index, stride)| match shapes.of(index).lane {
            shape::Lane::Affine(lane) => i64::from(lane) * i64::from(stride),
            _ => 0,
        });
        matches!(address.memory, Memory::Buffer(_)) && apart.sum::<i64>().abs() >= 64
    };
    let mut any = false;
    visit(&kernel.body, &mut |inst| {
        let Inst::Loop(inner) = inst else { return };
        let (mut steps, mut far) = (0, 0);
        visit(&inner.body, &mut |inst| {
            steps += 1;
            far += usize::from(is_far(inst));
        });
        any |= far > 0 && steps <= STEPS_OF_A_ROW * far;
    });
    any
}

/// Compiles a kernel; `None` when it needs more stack than a thread should spend, or the system gives no executable memory.
/// Interruptible code looks at the stop word of its launch.
pub(crate) fn compile(kernel: &Kernel, isa: Isa) -> Option<Native> {
    let survey = Survey::of(kernel, isa);
    let layout = layout(kernel, isa, &survey);
    let mut rows = block_rows(kernel, &survey);
    let mut shapes = shape::analyse(kernel, isa, layout, rows);
    if rows > 1 && shapes.parting_loops() > 0 {
        // Rows that go through a loop for different times, or to different places, are not worth what they share.
        let single = shape::analyse(kernel, isa, layout, 1);
        if layout == Layout::Rows && single.parting_loops() < shapes.parting_loops() {
            (rows, shapes) = (1, single);
        }
    }
    if layout == Layout::Rows && isa != Isa::Simd128 && single::goes_apart(kernel, &shapes) {
        let carried = tops::carried(kernel);
        let kernel = carried.as_ref().unwrap_or(kernel);
        let shapes = shape::analyse(kernel, isa, Layout::Single, 1);
        let tiling = Tiling { layout: Layout::Single, vectors: 1, rows: 1 };
        return compile_as(kernel, isa, &survey, &shapes, vec![tiling], usize::MAX).map(|(native, _)| native);
    }
    let candidates: Vec<Tiling> = match layout {
        Layout::Rows => {
            // Lanes that leave a loop one by one wait for the whole block, so it is not a large one.
            let most = if shapes.parting_loops() > 0 { 4 } else { 8 };
            // Neither is one of a long kernel, which would be much code for little gain.
            let most_steps = if isa == Isa::Simd128 { MOST_BLOCK_STEPS_128 } else { MOST_BLOCK_STEPS };
            let room = (most_steps / survey.steps.max(1)).max(1) as u32;
            let by_rows = rows == 1 && reads_rows(kernel, &shapes);
            let most = room.min(if by_rows { MOST_ROWS / isa.lanes() } else { most });
            let mut all: Vec<Tiling> = [8, 4, 2]
                .iter()
                .filter(|&&n| n > rows / 2 && n <= most)
                .map(|&n| Tiling { layout, vectors: (n / rows).max(1), rows })
                .collect();
            // Eight short chains of instructions don't fill the three units that AVX2 has on many processors.
            if isa == Isa::Avx2 && survey.loops && rows == 1 && most == 8 && 12 <= room {
                all.insert(0, Tiling { layout, vectors: 12, rows });
            }
            if rows > 1 && 4 * rows <= room {
                all.insert(0, Tiling { layout, vectors: 4, rows });
            }
            if isa == Isa::Avx2 && rows > 1 && 2 <= room {
                all.push(Tiling { layout, vectors: 1, rows: 2 });
            }
            let longest = lanes_in_bounds(kernel) / isa.lanes();
            all.iter_mut().for_each(|tiling| tiling.vectors = tiling.vectors.min(longest.max(1)));
            all.push(Tiling { layout, vectors: 1, rows: 1 });
            all.dedup();
            all
        }
        _ => {
            if let Some(native) = compile_divided(kernel, isa, layout, &shapes) {
                return Some(native);
            }
            let whole = vec![Tiling { layout, vectors: 0, rows: 0 }];
            let is_small = is_small(kernel, isa, &survey);
            let mut pieces = if is_small && !(survey.loops && vectors_of(kernel, isa) >= MANY_VECTORS) {
                Vec::new()
            } else {
                pieces(kernel, isa, layout, &survey, &shapes)
            };
            let few_rows = |tiling: &Tiling| tiling.vectors * tiling.rows * isa.lanes() <= MOST_ROWS_TOGETHER;
            if isa != Isa::Simd128 && pieces.iter().any(few_rows) && reads_rows(kernel, &shapes) {
                pieces.retain(few_rows);
                return compile_as(kernel, isa, &survey, &shapes, pieces, usize::MAX).map(|(native, _)| native);
            }
            match (pieces.is_empty(), is_small) {
                (true, _) => whole,
                (false, false) => return compile_pieces(kernel, isa, &survey, &shapes, whole, pieces),
                (false, true) => return compile_group(kernel, isa, &survey, &shapes, whole, pieces),
            }
        }
    };
    compile_as(kernel, isa, &survey, &shapes, candidates, usize::MAX).map(|(native, _)| native)
}

/// Compiles a workgroup with loops that carry more vectors than there are registers, in pieces; nothing where it has no such loops.
fn compile_divided(kernel: &Kernel, isa: Isa, layout: Layout, shapes: &shape::Shapes) -> Option<Native> {
    if isa == Isa::Simd128 || !kernel.has_barrier || !lower::can_split(&kernel.body, shapes) {
        return None;
    }
    let kernel = divide::divided(kernel, isa, shapes)?;
    let shapes = shape::analyse(&kernel, isa, layout, 1);
    let survey = Survey::of(&kernel, isa);
    let pieces = pieces(&kernel, isa, layout, &survey, &shapes);
    compile_as(&kernel, isa, &survey, &shapes, pieces, usize::MAX).map(|(native, _)| native)
}

/// Compiles a workgroup as one block, or in pieces where that is too much code or has too many values.
fn compile_group(
    kernel: &Kernel,
    isa: Isa,
    survey: &Survey,
    shapes: &shape::Shapes,
    whole: Vec<Tiling>,
    pieces: Vec<Tiling>,
) -> Option<Native> {
    let most = if isa == Isa::Simd128 { usize::MAX } else { TOO_MANY_INSTRUCTIONS };
    let as_whole = compile_as(kernel, isa, survey, shapes, whole.clone(), most);
    if let Some((native, spilled)) = &as_whole {
        // Beside what is done lane by lane, what waits on the stack is little, and pieces would go over memory in smaller steps.
        let is_spilled = *spilled > TOO_MUCH_SPILLED && survey.loops && !survey.tree && !survey.by_lanes;
        // Where lanes leave loops one by one, all vectors of a block wait for the last.
        let most = if shapes.parting_loops() > 0 { TOO_MUCH_TO_WAIT_FOR } else { TOO_MUCH_CODE };
        if isa == Isa::Simd128 || !(is_spilled || native.bytes.len() > most) {
            return as_whole.map(|(native, _)| native);
        }
    }
    compile_as(kernel, isa, survey, shapes, pieces, usize::MAX)
        .or(as_whole)
        .or_else(|| compile_as(kernel, isa, survey, shapes, whole, usize::MAX))
        .map(|(native, _)| native)
}

/// Compiles a workgroup in pieces. Where these are more code than the processor's cache of instructions holds, nearly all of it is run once for
/// each of them, and one block is less.
fn compile_pieces(
    kernel: &Kernel,
    isa: Isa,
    survey: &Survey,
    shapes: &shape::Shapes,
    whole: Vec<Tiling>,
    pieces: Vec<Tiling>,
) -> Option<Native> {
    let (in_pieces, _) = compile_as(kernel, isa, survey, shapes, pieces, usize::MAX)?;
    let vectors = vectors_of(kernel, isa);
    let is_long = in_pieces.bytes.len() > TOO_MUCH_CODE && vectors as usize * survey.steps <= MOST_GROUP_STEPS;
    if isa != Isa::Avx2 || vectors > MOST_VECTORS || !is_long {
        return Some(in_pieces);
    }
    let count = vectors / (in_pieces.tiling.vectors * in_pieces.tiling.rows).max(1);
    let as_whole = compile_as(kernel, isa, survey, shapes, whole, usize::MAX).map(|(native, _)| native);
    as_whole.filter(|native| native.bytes.len() < in_pieces.bytes.len() * count as usize).or(Some(in_pieces))
}

/// Compiles a kernel as the first of some blocks that does well, with the part of its work that is for values on the stack; none where
/// there are more instructions than `most`.
fn compile_as(
    kernel: &Kernel,
    isa: Isa,
    survey: &Survey,
    shapes: &shape::Shapes,
    candidates: Vec<Tiling>,
    most: usize,
) -> Option<(Native, f32)> {
    let last = candidates.len() - 1;
    let layout = candidates[last].layout;
    let long_group = !layout.is_along_rows() && survey.steps >= LONG_STEPS;
    let mut best: Option<Made> = None;
    for (position, tiling) in candidates.into_iter().enumerate() {
        let whole = !tiling.layout.is_along_rows() && tiling.vectors == 0;
        let mut lowered = lower::lower(kernel, isa, shapes, tiling)?;
        tidy::tidy(&mut lowered, isa);
        if lowered.code.len() > most {
            return None;
        }
        let mut allocation = emit::assign(&mut lowered.code, lowered.counts, lowered.labels, &lowered.asm, isa);
        if whole && isa != Isa::Simd128 && allocation.vector_cost > MUCH_SPILLED * allocation.total_cost {
            let mut code = order::by_results(&lowered.code, lowered.memories());
            let other = emit::assign(&mut code, lowered.counts, lowered.labels, &lowered.asm, isa);
            if other.vector_cost < allocation.vector_cost {
                (lowered.code, allocation) = (code, other);
            }
        }
        // The largest block whose values fit into registers, but for a few that are rarely used.
        let alone = tiling.vectors * tiling.rows == 2 && survey.loops && !(isa == Isa::Avx2 && long_group);
        let most_spilled = match (alone, isa == Isa::Avx2) {
            (true, false) => MOST_SPILLED_OF_TWO,
            (true, true) => MOST_SPILLED_OF_TWO_256,
            (false, true) if !layout.is_along_rows() && !whole => MOST_SPILLED_OF_PIECE_256,
            (false, true) if tiling.vectors * tiling.rows <= 8 => MOST_SPILLED_256,
            (false, _) => MOST_SPILLED,
        };
        // Gathers of two vectors, and lanes one after another, keep the processor busy while lanes leave a loop; in arithmetic each vector more
        // hides the time of another.
        let by_lanes = || survey.by_lanes || lowered.code.iter().any(|m| matches!(m, mir::M::Gather { .. }));
        let masks = tiling.vectors * tiling.rows > 2 && shapes.parting_loops() > 0 && by_lanes();
        let spilled = allocation.vector_cost + if masks { allocation.mask_cost } else { 0.0 };
        // Those of the longest row keep all others waiting.
        let wide = lowered.tiled && tiling.vectors * tiling.rows * isa.lanes() > MOST_ROWS_TOGETHER;
        let cost = (allocation.total_cost + spilled) / (tiling.vectors * tiling.rows).max(1) as f32;
        let cheaper = if isa == Isa::Avx2 { 1.0 } else { MUCH_CHEAPER };
        let mut made = Made { tiling, lowered, allocation, cost };
        if position != last {
            if wide {
                continue;
            }
            if spilled > most_spilled * made.allocation.total_cost {
                best = Some(best.filter(|best| best.cost <= cost).unwrap_or(made));
                continue;
            }
        } else if let Some(best) = best.take_if(|best| survey.loops && best.cost < cheaper * cost) {
            made = best;
        }
        let Made { tiling, mut lowered, mut allocation, .. } = made;
        if isa != Isa::Simd128 {
            emit::join_scalars(&mut lowered.code, lowered.counts, lowered.labels, isa, &mut allocation);
        }
        let emitted = match isa {
            Isa::Simd128 => clif::compile(&lowered, clif::Target::host()?).map(|code| (code, allocation.slots[1])),
            Isa::Avx2 | Isa::Avx512 => emit::emit(&mut lowered.code, lowered.asm, &allocation, isa)
                .map(|emitted| (emitted.code, emitted.vector_spills)),
        };
        // A smaller block may fit where this one did not.
        let Some((bytes, vector_spills)) = emitted else { continue };
        let shape = frame_shape(kernel, isa, tiling, lowered.frame_bytes);
        let streamed = lowered.streamed;
        let copied = lower::Frame::of(kernel).copied;
        let copied = (0..).zip(copied).filter(|(_, copied)| *copied).map(|(index, _)| index).collect();
        let code = code::Code::new(&bytes)?;
        let spilled = allocation.vector_cost / allocation.total_cost;
        return Some((Native { code, bytes, isa, tiling, shape, vector_spills, streamed, copied }, spilled));
    }
    None
}

/// What the processor must have for code of an instruction set, beyond what its name says.
pub(crate) fn features(isa: Isa) -> String {
    match isa {
        Isa::Simd128 => clif::Target::host().map_or_else(String::new, clif::Target::description),
        _ => String::new(),
    }
}

fn frame_shape(kernel: &Kernel, isa: Isa, tiling: Tiling, frame_bytes: u32) -> FrameShape {
    let lower::Frame { shared: shared_at, shared_bytes, locals: locals_at, lane_bytes, .. } = lower::Frame::of(kernel);
    let vectors = match tiling.layout {
        Layout::Rows | Layout::Single => tiling.vectors * tiling.rows,
        _ => vectors_of(kernel, isa),
    };
    let arrays = kernel
        .locals
        .iter()
        .zip(locals_at)
        .map(|(memory, at)| (at, memory.size.next_multiple_of(64), lower::lies_lane_beside_lane(memory)))
        .collect();
    FrameShape {
        shared_at,
        shared_sizes: kernel.shared.iter().map(|memory| memory.size.next_multiple_of(8)).collect(),
        shared_bytes,
        arrays,
        lane_bytes,
        locals_bytes: (vectors * isa.lanes()) as usize * lane_bytes as usize,
        frame_bytes: frame_bytes as usize,
    }
}

impl Native {
    /// The machine code, position-independent.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What [`Native::read`] makes the same code of again.
    pub(crate) fn write(&self, out: &mut Writer) {
        let Tiling { layout, vectors, rows } = self.tiling;
        out.word(match self.isa {
            Isa::Avx2 => 0,
            Isa::Avx512 => 1,
            Isa::Simd128 => 2,
        });
        out.bytes(features(self.isa).as_bytes());
        out.word(match layout {
            Layout::Rows => 0,
            Layout::Group => 1,
            Layout::Line => 2,
            Layout::Single => 3,
        });
        for word in [vectors, rows, self.vector_spills] {
            out.word(word);
        }
        let shape = &self.shape;
        out.words(&shape.shared_at);
        out.words(&shape.shared_sizes);
        out.word(shape.shared_bytes);
        out.word(shape.arrays.len() as u32);
        for &(at, size, beside) in &shape.arrays {
            for word in [at, size, u32::from(beside)] {
                out.word(word);
            }
        }
        out.word(shape.lane_bytes);
        out.word(shape.locals_bytes as u32);
        out.word(shape.frame_bytes as u32);
        out.word(self.streamed.len() as u32);
        for &(buffer, bytes) in &self.streamed {
            out.word(buffer);
            out.word(bytes);
        }
        out.words(&self.copied);
        out.bytes(&self.bytes);
    }

    /// Reads what [`Native::write`] wrote; `None` when it is not that, or for another instruction set.
    pub(crate) fn read(input: &mut Reader<'_>, wanted: Isa) -> Option<Native> {
        let isa = match input.word()? {
            0 => Isa::Avx2,
            1 => Isa::Avx512,
            2 => Isa::Simd128,
            _ => return None,
        };
        let made_for = input.bytes()?;
        if isa != wanted || made_for != features(isa).as_bytes() {
            return None;
        }
        let layout = match input.word()? {
            0 => Layout::Rows,
            1 => Layout::Group,
            2 => Layout::Line,
            3 => Layout::Single,
            _ => return None,
        };
        let (vectors, rows, vector_spills) = (input.word()?, input.word()?, input.word()?);
        let (shared_at, shared_sizes, shared_bytes) = (input.words()?, input.words()?, input.word()?);
        let count = input.word()?;
        let mut arrays = Vec::new();
        for _ in 0..count {
            arrays.push((input.word()?, input.word()?, input.word()? != 0));
        }
        let (lane_bytes, locals_bytes, frame_bytes) = (input.word()?, input.word()? as usize, input.word()? as usize);
        let mut streamed = Vec::new();
        for _ in 0..input.word()? {
            streamed.push((input.word()?, input.word()?));
        }
        let copied = input.words()?;
        let bytes = input.bytes()?.to_vec();
        let shape = FrameShape { shared_at, shared_sizes, shared_bytes, arrays, lane_bytes, locals_bytes, frame_bytes };
        let tiling = Tiling { layout, vectors, rows };
        Some(Native { code: code::Code::new(&bytes)?, bytes, isa, tiling, shape, vector_spills, streamed, copied })
    }

    /// How the kernel was laid out, for people.
    pub(crate) fn describe(&self) -> String {
        let layout = match self.tiling.layout {
            Layout::Rows => format!("blocks of {} x {} vectors along rows", self.tiling.vectors, self.tiling.rows),
            Layout::Single => "one invocation after the other".to_owned(),
            _ if self.tiling.vectors == 0 => "one workgroup a block".to_owned(),
            _ => format!("workgroups in pieces of {} x {} vectors", self.tiling.vectors, self.tiling.rows),
        };
        format!(
            "{} vectors of {} lanes, {layout}, {} bytes of code, {} vector registers on the stack",
            match self.isa {
                Isa::Avx512 => "AVX-512",
                Isa::Avx2 => "AVX2",
                Isa::Simd128 => "128-bit",
            },
            self.isa.lanes(),
            self.bytes.len(),
            self.vector_spills
        )
    }

    /// Bytes of a launch that can be written past the caches.
    pub(crate) fn streamed_bytes(&self, workgroup_size: [u32; 3], buffers: &[Span], grid: [u32; 3]) -> u64 {
        if self.streamed.is_empty() {
            return 0;
        }
        let group = workgroup_size.iter().fold(1, |all: u64, &n| all.saturating_mul(u64::from(n)));
        let invocations = workgroups(grid).saturating_mul(group);
        self.streamed.iter().fold(0, |all: u64, &(buffer, each)| {
            let bound = buffers.get(buffer as usize).map_or(0, |span| span.bytes() as u64);
            all.saturating_add(invocations.saturating_mul(u64::from(each)).min(bound))
        })
    }

    /// Buffers for which a thread may be given a copy that it alone adds to.
    pub(crate) fn copied(&self) -> &[u32] {
        &self.copied
    }

    /// The launch is small enough for 32-bit offsets.
    pub(crate) fn fits(&self, workgroup_size: [u32; 3], buffers: &[Span], grid: [u32; 3]) -> bool {
        let invocations =
            (0..3).all(|axis| u64::from(grid[axis]) * u64::from(workgroup_size[axis]) <= u64::from(MAX_INDEX));
        invocations && buffers.iter().all(|buffer| buffer.bytes() <= MAX_INDEX as usize)
    }

    /// Where the parts of a thread's private memory start: scratch columns, zeros, workgroup memory, arrays, waiting values. Before
    /// them is the context. And where they end.
    fn places(&self, buffers: usize) -> [usize; 6] {
        let shape = &self.shape;
        let columns = ((context::HEADER_WORDS + 2 * buffers) * 8).next_multiple_of(64);
        let zeros = columns + context::SCRATCH_BYTES;
        let shared = zeros + 64;
        let locals = (shared + shape.shared_bytes as usize).next_multiple_of(64) + lower::SPILL;
        let frame = (locals + shape.locals_bytes).next_multiple_of(64);
        [columns, zeros, shared, locals, frame, frame + shape.frame_bytes + 64]
    }

    /// Bytes of private memory that one thread needs.
    pub(crate) fn scratch_bytes(&self, buffers: usize) -> usize {
        self.places(buffers)[5]
    }

    /// Runs some workgroups, where `grid` says so with stores past the caches; false when they were left because of the stop word.
    pub(crate) fn run(
        &self,
        scratch: &mut Scratch,
        buffers: &[Span],
        grid: &Grid<'_>,
        stop: &Stop,
        stretches: impl Iterator<Item = Stretch>,
    ) -> bool {
        let shape = &self.shape;
        let [columns, zeros, shared, locals, frame_at, end] = self.places(buffers.len());
        let frame = helper::Frame {
            lanes: self.isa.lanes(),
            buffers,
            shared: scratch.span(shared, shape.shared_bytes as usize),
            shared_at: &shape.shared_at,
            shared_sizes: &shape.shared_sizes,
            locals: scratch.span(locals, shape.locals_bytes),
            lane_bytes: shape.lane_bytes,
            arrays: &shape.arrays,
        };
        scratch.span(zeros, 64).clear();
        // Where code takes whole workgroups it never says which invocation is the first.
        scratch.span(columns + context::FIRST as usize, 8).clear();
        let address = |at: usize| scratch.span(at, end - at).start() as u64;
        let places = [
            (context::STOP, stop.word() as u64),
            (context::SCRATCH, address(columns)),
            (context::ZEROS, address(zeros)),
            (context::SHARED, address(shared)),
            (context::LOCALS, address(locals)),
            (context::FRAME, address(frame_at)),
            (context::HELPER, helper::help as *const () as u64),
            (context::LAUNCH, std::ptr::from_ref(&frame) as u64),
            (context::ENDED, 0),
            (context::STREAM, u64::from(grid.streams)),
            (context::COPIES, u64::from(grid.copies)),
        ];
        let words = scratch.words(context::HEADER_WORDS + 2 * buffers.len());
        let [x, y, z] = grid.workgroups;
        words[context::GROUPS as usize / 8] = u64::from(x) | u64::from(y) << 32;
        words[context::GROUPS as usize / 8 + 1] = u64::from(z);
        for (place, word) in places {
            words[place as usize / 8] = word;
        }
        for (index, (buffer, &length)) in buffers.iter().zip(grid.lengths).enumerate() {
            words[context::HEADER_WORDS + 2 * index] = buffer.start() as u64;
            words[context::HEADER_WORDS + 2 * index + 1] = length;
        }
        let context = words.as_mut_ptr();
        let mut ended = false;
        for stretch in stretches {
            ended |= stop.is_set();
            if ended {
                break;
            }
            // SAFETY: the code came from this crate's emitter for a kernel whose private memory has the places of the context,
            // and the buffers are those of the launch, within the limits that `fits` checked.
            unsafe { self.code.call(context, stretch.first, stretch.end, stretch.y, stretch.z) }
        }
        if grid.streams {
            // Stores past the caches are in no order with those that will say that this is done.
            past_stores_are_seen();
        }
        // SAFETY: the context is private memory of this thread, and the code that wrote to it has returned.
        !ended && unsafe { context.add(context::ENDED as usize / 8).read() == 0 }
    }
}

/// What this thread has stored past the caches is seen by whoever sees what it stores from here on.
fn past_stores_are_seen() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction, which only waits.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
