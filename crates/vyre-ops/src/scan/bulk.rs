//! Cumulative sums in PTX for `sm_90a`, as a variant of the portable scan: bulk copies bring chunks into shared memory and take the results away.
//!
//! A block has several chunks on their way at once, so that memory has work while chunks wait for those before them. Most of its warps add up
//! the groups of a chunk, go on with the next chunks, and come back when the sum before the first is known, which other warps find by looking
//! back. Another one takes chunks by their number, in order, and copies. Sums are in the order of the program, and what is told in
//! the states is what the program leaves there.
#![allow(unsafe_code, reason = "the promise about a kernel that is not checked as programs are")]

use std::fmt::Write;

use vyre::DataType;
use vyre::variant::{Blocks, Param, Ptx, Variant};

use super::{Cut, ITEMS, LANES, SPAN, SUBGROUP, Scan};
use crate::hopper::{line, registers, wait};

/// Blocks that are at work at once, one on each multiprocessor of an H100 or H200.
const BLOCKS: u32 = 132;
/// The one cut that it is written for.
const TILES: usize = 4;
const CHUNK: usize = TILES * LANES * ITEMS;
const GROUPS: usize = CHUNK / (SUBGROUP * ITEMS);
/// Bytes of a chunk, and by how many bits stages are shifted.
const STAGE: usize = CHUNK * 4;
const STAGE_BITS: u32 = STAGE.trailing_zeros();
/// Chunks of a block that are on their way, worked on or on their way back.
const STAGES: usize = 7;
/// Warps that add up; each has several groups of a chunk.
const WARPS: usize = 16;
const EACH: usize = GROUPS / WARPS;
/// So many chunks later the elements of a chunk get their sums, and so many and one warps look back, for one chunk after another in turn.
const LATER: usize = 4;
const LOOKING: usize = LATER + 1;
const THREADS: usize = (WARPS + LOOKING + 1) * SUBGROUP;
/// Threads that add up and those of a warp that looks back, which meet at barriers.
const BOTH: usize = (WARPS + 1) * SUBGROUP;
/// Where everything is behind the stages, in bytes: for each warp that looks back the sums of groups, what is before them, and what was told;
/// barriers and the numbers of the chunks, for each stage; whether all is done.
const SUMS: usize = STAGES * STAGE;
const BEFORE: usize = SUMS + LOOKING * GROUPS * 4;
const TOLD: usize = BEFORE + LOOKING * GROUPS * 4;
const FULL: usize = TOLD + LOOKING * SPAN * 4;
const DONE: usize = FULL + STAGES * 8;
const RING: usize = DONE + STAGES * 8;
const OVER: usize = RING + STAGES * 4;
const SHARED: usize = OVER + 4;
/// No chunk.
const NONE: u32 = u32::MAX;

/// The variant for a scan that processors have a function for, whose kernel binds elements, sizes, states and results in this order.
pub(super) fn variant(scan: &Scan<'_>, cut: Cut) -> Option<Variant> {
    if cut.lanes != LANES || cut.tiles != TILES {
        return None;
    }
    let ptx = Ptx {
        target: "sm_90a".to_owned(),
        entry: "scan".to_owned(),
        text: text(&scan.fold.ty, scan.inclusive),
        block: [THREADS as u32, 1, 1],
        blocks: Blocks::Fixed([BLOCKS, 1, 1]),
        shared: SHARED as u32,
        tensor_maps: Vec::new(),
        params: (0..4).map(Param::Buffer).collect(),
    };
    // SAFETY: what is copied is within the rows that the sizes tell, which the op has made of its buffers; what is told has the places that the
    // op has made room for. Blocks wait only for chunks with lower numbers, which others took that had begun to work on them.
    Some(unsafe { Variant::ptx("chunks on their way", ptx) })
}

/// How sums of a type are written.
struct Sum {
    add: &'static str,
    neutral: &'static str,
    is_float: bool,
}

impl Sum {
    fn of(ty: &DataType) -> Sum {
        match ty {
            DataType::F32 => Sum { add: "add.rn.f32", neutral: "0f80000000", is_float: true },
            _ => Sum { add: "add.u32", neutral: "0", is_float: false },
        }
    }

    fn add(&self, t: &mut String, to: &str, a: &str, b: &str) {
        line!(t, "{} {to}, {a}, {b};", self.add);
    }
}

/// The whole module.
fn text(ty: &DataType, inclusive: bool) -> String {
    let sum = Sum::of(ty);
    let mut t = String::new();
    line!(t, ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 shm[];");
    line!(t, ".visible .entry scan(.param .u64 p_x, .param .u64 p_sizes, .param .u64 p_states, .param .u64 p_out)");
    line!(
        t,
        ".reqntid {THREADS}, 1, 1\n.maxnreg 64\n{{\n.reg .pred %p, %q, %lead, %last, %more, %swap, %aligned, %end;"
    );
    line!(t, ".reg .pred %far, %near, %two, %ends, %from1, %from2, %from4, %from8, %from16;");
    line!(t, ".reg .b32 %r<16>, %v<8>, %w<8>, %e<{SPAN}>, %s<{EACH}>, %x<{EACH}>, %y<{}>, %u;", LATER * EACH);
    line!(
        t,
        ".reg .b32 %t, %lane, %warp, %shm, %n, %chunks, %all, %spans, %stage, %phase, %side, %chunk, %row, %given, %gave;"
    );
    line!(
        t,
        ".reg .b32 %first, %second, %own, %count, %within, %span, %total, %inside, %before, %neutral, %at, %left;"
    );
    line!(t, ".reg .b32 %bulk, %filling, %busy; .reg .b64 %d<8>, %x, %out, %states, %place, %there, %ticket;");
    line!(t, "mov.u32 %t, %tid.x; shr.u32 %warp, %t, 5; and.b32 %lane, %t, 31; mov.u32 %shm, shm;");
    line!(t, "mov.b32 %neutral, {}; setp.eq.u32 %lead, %lane, 0;", sum.neutral);
    for (name, to) in [("x", "%x"), ("states", "%states"), ("out", "%out"), ("sizes", "%d0")] {
        line!(t, "ld.param.u64 {to}, [p_{name}]; cvta.to.global.u64 {to}, {to};");
    }
    for (at, size) in ["%n", "%chunks", "%all", "%spans"].into_iter().enumerate() {
        line!(t, "ld.global.u32 {size}, [%d0+{}];", at * 4);
    }
    line!(t, "setp.ne.u32 %p, %t, 0; @%p bra READY;");
    for stage in 0..STAGES {
        line!(t, "mbarrier.init.shared::cta.b64 [%shm+{}], 1;", FULL + stage * 8);
        line!(t, "mbarrier.init.shared::cta.b64 [%shm+{}], {WARPS};", DONE + stage * 8);
    }
    line!(t, "st.shared.u32 [%shm+{OVER}], 0; fence.mbarrier_init.release.cluster;\nREADY: bar.sync 0;");
    line!(t, "mov.u32 %stage, 0; mov.u32 %phase, 0; mov.u32 %side, 0;");
    line!(t, "setp.eq.u32 %p, %warp, {}; @%p bra COPY;", WARPS + LOOKING);
    line!(t, "setp.ge.u32 %p, %warp, {WARPS}; @%p bra LOOKING;");
    add_up(&mut t, &sum, inclusive);
    look_back(&mut t, &sum);
    copy(&mut t);
    line!(t, "END: ret;\n}}");
    t
}

/// The barrier of a stage, in `%r0`.
fn barrier(t: &mut String, which: usize, stage: &str) {
    line!(t, "shl.b32 %r0, {stage}, 3; add.u32 %r0, %r0, %shm; add.u32 %r0, %r0, {which};");
}

/// The chunk of a stage; `%more` where there is one.
fn chunk_of(t: &mut String, stage: &str) {
    line!(t, "shl.b32 %r0, {stage}, 2; add.u32 %r0, %r0, %shm; ld.shared.u32 %chunk, [%r0+{RING}];");
    line!(t, "setp.ne.u32 %more, %chunk, {NONE};");
}

fn next_stage(t: &mut String, stage: &str, phase: &str) {
    turn(t, stage, STAGES);
    line!(t, "selp.b32 %r0, 1, 0, %p; xor.b32 {phase}, {phase}, %r0;");
}

/// The eight elements of a lane in a group of the stage whose places are in `%r1` and `%r2`. Half of the lanes fetch the second four first, so that they
/// meet in no bank.
fn eight(t: &mut String, group: usize) {
    let ahead = group * WARPS * SUBGROUP * ITEMS * 4;
    line!(t, "ld.shared.v4.b32 {{{}}}, [%r1+{ahead}];", registers("w", 0..4));
    line!(t, "ld.shared.v4.b32 {{{}}}, [%r2+{ahead}];", registers("w", 4..8));
    for at in 0..4 {
        line!(t, "selp.b32 %v{at}, %w{}, %w{at}, %swap; selp.b32 %v{}, %w{at}, %w{}, %swap;", at + 4, at + 4, at + 4);
    }
}

/// The warps that add up groups of a chunk and, some chunks later, give its elements their sums.
fn add_up(t: &mut String, sum: &Sum, inclusive: bool) {
    line!(t, "shr.u32 %r0, %lane, 2; and.b32 %r0, %r0, 1; setp.ne.u32 %swap, %r0, 0; shl.b32 %r0, %r0, 4;");
    line!(t, "shl.b32 %r1, %warp, 10; shl.b32 %r2, %lane, 5; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %shm;");
    line!(t, "add.u32 %first, %r1, %r0; xor.b32 %r0, %r0, 16; add.u32 %second, %r1, %r0;");
    line!(t, "shl.b32 %own, %warp, 2; add.u32 %own, %own, %shm; setp.eq.u32 %last, %lane, 31;");
    for distance in [1, 2, 4, 8, 16] {
        line!(t, "setp.ge.u32 %from{distance}, %lane, {distance};");
    }
    // Chunks that wait for their sums; the stage of the first of them, and whose turn it was to look back for it.
    line!(t, "mov.u32 %count, 0; mov.u32 %given, 0; mov.u32 %gave, 0;\nADD:");
    barrier(t, FULL, "%stage");
    wait(t, "ADD_FULL", "%r0", "%phase");
    chunk_of(t, "%stage");
    line!(t, "@!%more bra GIVE;\nshl.b32 %r0, %stage, {STAGE_BITS};");
    line!(t, "add.u32 %r1, %first, %r0; add.u32 %r2, %second, %r0;");
    for group in 0..EACH {
        eight(t, group);
        sum.add(t, &format!("%s{group}"), "%v0", "%v1");
        (2..ITEMS).for_each(|at| sum.add(t, &format!("%s{group}"), &format!("%s{group}"), &format!("%v{at}")));
    }
    for distance in [1, 2, 4, 8, 16] {
        for own in (0..EACH).map(|group| format!("%s{group}")) {
            line!(t, "shfl.sync.up.b32 %u, {own}, {distance}, 0, 0xffffffff;");
            sum.add(t, "%u", "%u", &own);
            line!(t, "selp.b32 {own}, %u, {own}, %from{distance};");
        }
    }
    line!(t, "shl.b32 %r3, %side, 7; add.u32 %r3, %r3, %own;");
    for group in 0..EACH {
        line!(t, "shfl.sync.up.b32 %u, %s{group}, 1, 0, 0xffffffff; selp.b32 %x{group}, %u, %neutral, %from1;");
        line!(t, "@%last st.shared.b32 [%r3+{}], %s{group};", SUMS + group * WARPS * 4);
    }
    line!(t, "add.u32 %r0, %side, 1; bar.arrive %r0, {BOTH};");
    // While chunks come, one that has waited long enough gets its sums; when none come, all of them do. What is kept of those that wait moves up.
    line!(t, "setp.lt.u32 %p, %count, {LATER}; @%p bra ADDED;");
    line!(t, "GIVE: setp.eq.u32 %p, %count, 0; @%p bra GAVE; sub.u32 %count, %count, 1;");
    line!(t, "add.u32 %r0, %gave, {}; bar.sync %r0, {BOTH};", 1 + LOOKING);
    line!(t, "shl.b32 %r3, %gave, 7; add.u32 %r3, %r3, %own; shl.b32 %r0, %given, {STAGE_BITS};");
    line!(t, "add.u32 %r1, %first, %r0; add.u32 %r2, %second, %r0;");
    for group in 0..EACH {
        give(t, sum, inclusive, group);
    }
    line!(t, "fence.proxy.async.shared::cta; bar.warp.sync 0xffffffff;");
    barrier(t, DONE, "%given");
    line!(t, "@%lead mbarrier.arrive.release.cta.shared::cta.b64 _, [%r0];");
    (EACH..LATER * EACH).for_each(|at| line!(t, "mov.b32 %y{}, %y{at};", at - EACH));
    turn(t, "%given", STAGES);
    turn(t, "%gave", LOOKING);
    line!(t, "@!%more bra GIVE;");
    (0..EACH).for_each(|group| line!(t, "mov.b32 %y{}, %x{group};", (LATER - 1) * EACH + group));
    line!(t, "bra NEXT;\nADDED:");
    // The first few stand in the order in which they came.
    for place in 0..LATER {
        line!(t, "setp.eq.u32 %p, %count, {place};");
        (0..EACH).for_each(|group| line!(t, "selp.b32 %y{0}, %x{group}, %y{0}, %p;", place * EACH + group));
    }
    line!(t, "NEXT: add.u32 %count, %count, 1;");
    turn(t, "%side", LOOKING);
    next_stage(t, "%stage", "%phase");
    line!(t, "bra ADD;\nGAVE: setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [%shm+{OVER}], 1; membar.cta;");
    (0..LOOKING).for_each(|at| line!(t, "bar.arrive {}, {BOTH};", at + 1));
    line!(t, "bra END;");
}

/// Counts on and begins again.
fn turn(t: &mut String, number: &str, end: usize) {
    line!(t, "add.u32 {number}, {number}, 1; setp.eq.u32 %p, {number}, {end}; selp.b32 {number}, 0, {number}, %p;");
}

/// Puts what is before a lane's elements of a group to the sums of them.
fn give(t: &mut String, sum: &Sum, inclusive: bool, group: usize) {
    line!(t, "ld.shared.b32 %u, [%r3+{}];", BEFORE + group * WARPS * 4);
    sum.add(t, "%u", "%u", &format!("%y{group}"));
    if sum.is_float {
        // As it is stored, the sum of nothing is 0 and not −0.
        sum.add(t, "%u", "%u", "0f00000000");
    }
    eight(t, group);
    (1..ITEMS).for_each(|at| sum.add(t, &format!("%v{at}"), &format!("%v{}", at - 1), &format!("%v{at}")));
    match inclusive {
        true => (0..ITEMS).for_each(|at| sum.add(t, &format!("%v{at}"), "%u", &format!("%v{at}"))),
        false => {
            (1..ITEMS).rev().for_each(|at| sum.add(t, &format!("%v{at}"), "%u", &format!("%v{}", at - 1)));
            line!(t, "mov.b32 %v0, %u;");
        }
    }
    for at in 0..4 {
        line!(t, "selp.b32 %w{at}, %v{}, %v{at}, %swap; selp.b32 %w{}, %v{at}, %v{}, %swap;", at + 4, at + 4, at + 4);
    }
    let ahead = group * WARPS * SUBGROUP * ITEMS * 4;
    line!(t, "st.shared.v4.b32 [%r1+{ahead}], {{{}}};", registers("w", 0..4));
    line!(t, "st.shared.v4.b32 [%r2+{ahead}], {{{}}};", registers("w", 4..8));
}

/// The warps that find what is before chunks, each for one chunk in so many.
fn look_back(t: &mut String, sum: &Sum) {
    line!(t, "LOOKING: sub.u32 %side, %warp, {WARPS}; mov.u32 %stage, %side;");
    line!(t, "LOOK: add.u32 %r0, %side, 1; bar.sync %r0, {BOTH};");
    line!(t, "ld.shared.u32 %r0, [%shm+{OVER}]; setp.ne.u32 %p, %r0, 0; @%p bra END;");
    chunk_of(t, "%stage");
    line!(t, "add.u32 %stage, %stage, {LOOKING}; rem.u32 %stage, %stage, {STAGES};");
    line!(t, "div.u32 %row, %chunk, %chunks; mul.lo.u32 %r1, %row, %chunks; sub.u32 %r1, %chunk, %r1;");
    line!(t, "and.b32 %within, %r1, {}; shr.u32 %span, %r1, {};", SPAN - 1, SPAN.trailing_zeros());
    // Where this chunk tells, and which of those before it in its span this lane asks.
    line!(t, "mad.wide.u32 %place, %chunk, 8, %states; add.s64 %place, %place, 8; setp.lt.u32 %near, %lane, %within;");
    line!(t, "sub.u32 %r1, %lane, %within; mul.wide.s32 %d1, %r1, 8; add.s64 %d1, %place, %d1;");
    // Where this span tells, and which of the spans before it this lane asks: the farthest is the first lane's.
    line!(t, "mad.lo.u32 %r1, %row, %spans, %span; add.u32 %r1, %r1, %all; mad.wide.u32 %there, %r1, 8, %states;");
    line!(t, "add.s64 %there, %there, 8; sub.u32 %r2, {SPAN}, %lane; setp.le.u32 %far, %r2, %span;");
    line!(t, "mul.wide.u32 %d2, %r2, 8; sub.s64 %d2, %there, %d2;");
    line!(
        t,
        "shr.u32 %r1, %lane, 3; shl.b32 %r1, %r1, 5; shl.b32 %r2, %side, 7; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %shm;"
    );
    line!(t, "ld.shared.v4.b32 {{{}}}, [%r1+{SUMS}];", registers("e", 0..4));
    line!(t, "ld.shared.v4.b32 {{{}}}, [%r1+{}];", registers("e", 4..8), SUMS + 16);
    // The groups before that of this lane in its tile, in `%r3`; the tiles before that, in `%r4`; all of the chunk.
    line!(t, "and.b32 %r2, %lane, 7; mov.b32 %r3, %neutral;");
    for at in 0..7 {
        line!(t, "setp.gt.u32 %p, %r2, {at}; @%p {} %r3, %r3, %e{at};", sum.add);
    }
    sum.add(t, "%r4", "%r3", "%e7");
    for tile in 0..TILES {
        line!(t, "shfl.sync.idx.b32 %e{tile}, %r4, {}, 31, 0xffffffff;", tile * 8 + 7);
    }
    line!(t, "mov.b32 %r4, %neutral; mov.b32 %total, %e0;");
    for tile in 1..TILES {
        line!(t, "setp.ge.u32 %p, %lane, {}; selp.b32 %r4, %total, %r4, %p;", tile * 8);
        sum.add(t, "%total", "%total", &format!("%e{tile}"));
    }
    line!(t, "mov.b64 %d3, {{%total, 1}}; @%lead st.relaxed.gpu.global.u64 [%place], %d3;");
    // Both are asked at once, and the chunks waited for first: the spans behind wait for what the last of them tells.
    line!(t, "mov.b64 %d3, 0; mov.b64 %d4, 0; @%far ld.relaxed.gpu.global.u64 %d4, [%d2];");
    line!(t, "CHUNKS: @%near ld.relaxed.gpu.global.u64 %d3, [%d1]; mov.b64 {{%r5, %r6}}, %d3;");
    line!(t, "setp.eq.and.u32 %p, %r6, 0, %near; @%p bra CHUNKS;\nselp.b32 %r5, %r5, %neutral, %near;");
    chain(t, sum, "%inside");
    line!(t, "setp.eq.and.u32 %ends, %within, {}, %lead;", SPAN - 1);
    sum.add(t, "%r7", "%inside", "%total");
    line!(t, "mov.b64 %d3, {{%r7, 1}}; @%ends st.relaxed.gpu.global.u64 [%there], %d3;");
    line!(
        t,
        "selp.b32 %r8, 2, 1, %lead; mov.b64 {{%r5, %r6}}, %d4;\nsetp.lt.and.u32 %p, %r6, %r8, %far; @!%p bra SPANS_KNOWN;"
    );
    line!(t, "SPANS: ld.relaxed.gpu.global.u64 %d4, [%d2]; mov.b64 {{%r5, %r6}}, %d4;");
    line!(t, "setp.lt.u32 %p, %r6, %r8; @%p bra SPANS;\nSPANS_KNOWN: bar.warp.sync 0xffffffff;");
    // The nearest that knows everything before it.
    line!(t, "setp.eq.and.u32 %two, %r6, 2, %far; vote.sync.ballot.b32 %r8, %two, 0xffffffff; bfind.u32 %r8, %r8;");
    line!(t, "setp.ge.s32 %p, %lane, %r8; and.pred %p, %p, %far; selp.b32 %r5, %r5, %neutral, %p;");
    chain(t, sum, "%before");
    sum.add(t, "%r7", "%before", "%r7");
    line!(t, "mov.b64 %d3, {{%r7, 2}}; @%ends st.relaxed.gpu.global.u64 [%there], %d3;");
    sum.add(t, "%r5", "%before", "%inside");
    sum.add(t, "%r5", "%r5", "%r4");
    sum.add(t, "%r5", "%r5", "%r3");
    line!(t, "shl.b32 %r1, %side, 7; shl.b32 %r2, %lane, 2; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %shm;");
    line!(t, "st.shared.b32 [%r1+{BEFORE}], %r5; add.u32 %r0, %side, {}; bar.arrive %r0, {BOTH};", 1 + LOOKING);
    line!(t, "bra LOOK;");
}

/// The sum of `%r5` of all lanes, from the first to the last.
fn chain(t: &mut String, sum: &Sum, to: &str) {
    line!(t, "shl.b32 %r2, %side, 7; add.u32 %r2, %r2, %shm; shl.b32 %r1, %lane, 2; add.u32 %r1, %r1, %r2;");
    line!(t, "bar.warp.sync 0xffffffff; st.shared.b32 [%r1+{TOLD}], %r5; bar.warp.sync 0xffffffff;");
    for at in (0..SPAN).step_by(4) {
        line!(t, "ld.shared.v4.b32 {{{}}}, [%r2+{}];", registers("e", at..at + 4), TOLD + at * 4);
    }
    line!(t, "mov.b32 {to}, %neutral;");
    (0..SPAN).for_each(|at| sum.add(t, to, to, &format!("%e{at}")));
}

/// Where a chunk is and how much of it there is: the first element in `%at`, how many in `%left`, and of these those that bulk copies can take,
/// in `%bulk`.
fn place(t: &mut String) {
    line!(t, "div.u32 %row, %chunk, %chunks; mul.lo.u32 %r1, %row, %chunks; sub.u32 %r1, %chunk, %r1;");
    line!(t, "shl.b32 %r1, %r1, {}; mad.lo.u32 %at, %row, %n, %r1;", CHUNK.trailing_zeros());
    line!(t, "sub.u32 %left, %n, %r1; min.u32 %left, %left, {CHUNK};");
    line!(t, "and.b32 %r1, %at, 3; setp.eq.and.u32 %p, %r1, 0, %aligned; and.b32 %bulk, %left, 0xfffffffc;");
    line!(t, "selp.b32 %bulk, %bulk, 0, %p;");
}

/// The warp that takes chunks in their order and copies. Elements that bulk copies can't take are copied one by one.
fn copy(t: &mut String) {
    line!(t, "COPY: or.b64 %d0, %x, %out; and.b64 %d0, %d0, 15; setp.eq.u64 %aligned, %d0, 0;");
    line!(t, "mov.u32 %filling, 0; mov.u32 %busy, 0; setp.ne.u32 %end, %lane, %lane; mov.b64 %ticket, 0;");
    line!(t, "@%lead atom.relaxed.gpu.global.add.u64 %ticket, [%states], 1;");
    line!(t, "FILL: setp.eq.or.u32 %p, %busy, {STAGES}, %end; @%p bra DRAIN;");
    line!(t, "cvt.u32.u64 %r1, %ticket; shfl.sync.idx.b32 %chunk, %r1, 0, 31, 0xffffffff;");
    line!(t, "add.u32 %busy, %busy, 1; shl.b32 %r3, %filling, 2; add.u32 %r3, %r3, %shm;");
    barrier(t, FULL, "%filling");
    line!(t, "mov.u32 %r4, %r0; setp.ge.u32 %end, %chunk, %all; @!%end bra TAKEN;");
    // Nothing is left, and nothing was taken.
    line!(t, "@!%lead bra DRAIN; st.shared.u32 [%r3+{RING}], {NONE};");
    line!(t, "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r4];");
    line!(t, "mov.b64 %d0, -1; red.relaxed.gpu.global.add.u64 [%states], %d0; bra DRAIN;\nTAKEN:");
    place(t);
    line!(t, "mad.wide.u32 %d1, %at, 4, %x; shl.b32 %r5, %filling, {STAGE_BITS}; add.u32 %r5, %r5, %shm;");
    line!(t, "add.u32 %r6, %bulk, %lane;\nONES: setp.ge.u32 %p, %r6, {CHUNK}; @%p bra ONES_DONE;");
    line!(t, "mov.b32 %u, %neutral; setp.lt.u32 %p, %r6, %left; mad.wide.u32 %d2, %r6, 4, %d1;");
    line!(t, "@%p ld.global.b32 %u, [%d2]; shl.b32 %r7, %r6, 2; add.u32 %r7, %r7, %r5; st.shared.b32 [%r7], %u;");
    line!(t, "add.u32 %r6, %r6, 32; bra ONES;\nONES_DONE: bar.warp.sync 0xffffffff; @!%lead bra FILLED;");
    line!(t, "st.shared.u32 [%r3+{RING}], %chunk; shl.b32 %r6, %bulk, 2; setp.ne.u32 %p, %bulk, 0;");
    line!(t, "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r4], %r6;");
    line!(t, "@%p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%d1], %r6, [%r4];");
    // The program counts all of its workgroups, also those that find no chunk.
    line!(t, "add.u32 %r6, %chunk, 1; setp.ne.u32 %p, %r6, %all; @%p bra COUNTED;");
    line!(t, "add.u32 %r6, %all, 32767; and.b32 %r6, %r6, 0xffff8000; sub.u32 %r6, %r6, %all;");
    line!(t, "setp.le.u32 %p, %all, 32768; selp.b32 %r6, 0, %r6, %p; cvt.u64.u32 %d0, %r6;");
    line!(t, "red.relaxed.gpu.global.add.u64 [%states], %d0;");
    line!(t, "COUNTED: atom.relaxed.gpu.global.add.u64 %ticket, [%states], 1;\nFILLED: bar.warp.sync 0xffffffff;");
    line!(
        t,
        "add.u32 %filling, %filling, 1; setp.eq.u32 %p, %filling, {STAGES}; selp.b32 %filling, 0, %filling, %p; bra FILL;"
    );
    line!(t, "DRAIN: bar.warp.sync 0xffffffff;");
    chunk_of(t, "%stage");
    line!(t, "@!%more bra COPIED;");
    barrier(t, DONE, "%stage");
    wait(t, "COPY_DONE", "%r0", "%phase");
    place(t);
    line!(t, "mad.wide.u32 %d1, %at, 4, %out; shl.b32 %r5, %stage, {STAGE_BITS}; add.u32 %r5, %r5, %shm;");
    line!(t, "shl.b32 %r6, %bulk, 2; setp.ne.and.u32 %p, %bulk, 0, %lead;");
    line!(t, "@%p cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r5], %r6;");
    line!(t, "@%lead cp.async.bulk.commit_group;\nadd.u32 %r6, %bulk, %lane;");
    line!(t, "GIVEN: setp.ge.u32 %p, %r6, %left; @%p bra GIVEN_DONE; shl.b32 %r7, %r6, 2; add.u32 %r7, %r7, %r5;");
    line!(t, "ld.shared.b32 %u, [%r7]; mad.wide.u32 %d2, %r6, 4, %d1; st.global.b32 [%d2], %u;");
    line!(t, "add.u32 %r6, %r6, 32; bra GIVEN;\nGIVEN_DONE: fence.proxy.async.shared::cta;");
    line!(t, "@%lead cp.async.bulk.wait_group.read 0;\nbar.warp.sync 0xffffffff; sub.u32 %busy, %busy, 1;");
    next_stage(t, "%stage", "%phase");
    line!(t, "bra FILL;\nCOPIED: cp.async.bulk.wait_group 0;");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::{Fold, Kind};

    #[test]
    fn the_assembler_takes_every_form() {
        for ty in [DataType::F32, DataType::U32] {
            for inclusive in [false, true] {
                let fold = Fold { kind: Kind::Sum, ty: ty.clone() };
                let scan =
                    Scan { fold, inclusive, terms: &[], along: 1, outputs: &[], each: "", end: "", covers: true };
                let variant = variant(&scan, Cut { lanes: LANES, tiles: TILES }).expect("its cut");
                crate::hopper::assemble("scan", &[variant]);
            }
        }
    }
}
