//! Attention of f16 in PTX for `sm_90a`, as a variant of the portable program: bulk tensor copies, `wgmma`, and weights that go from one product to
//! the next in registers.
//!
//! A block has 64 queries for each of its warpgroups but the first, which fetches with one thread. The scores of a block of keys are made while
//! the block before is added to the results, and warpgroups take turns, so that one's weights are made while another multiplies.
#![allow(unsafe_code, reason = "the promise about a kernel that is not checked as programs are")]

use std::fmt::Write;

use vyre::DataType;
use vyre::variant::{Blocks, Param, Ptx, TensorMap, Tolerance, Variant};

use crate::hopper::{COPY, descriptor, exchange, line, name, registers, wait};

/// A score that counts for nothing: -1e30.
const NOTHING: &str = "0fF149F2CA";

/// Blocks of keys, and of values, that are on their way or in use.
const STAGES: usize = 2;

/// Bytes of keys and values that are worked on at the same time, so that they stay in the cache.
const IN_CACHE: usize = 24 << 20;

/// How a kernel is cut.
#[derive(Clone, Copy, Debug)]
struct Form {
    dim: usize,
    causal: bool,
    /// Warpgroups that multiply.
    groups: usize,
    /// Keys of a block.
    keys: usize,
}

impl Form {
    /// Queries of a block.
    fn rows(self) -> usize {
        self.groups * 64
    }

    fn threads(self) -> usize {
        (self.groups + 1) * 128
    }

    /// Registers of a thread: at the start, of the warpgroup that fetches, and of those that multiply.
    fn registers(self) -> [usize; 3] {
        if self.groups == 2 { [168, 24, 240] } else { [128, 32, 160] }
    }

    /// Bytes of the queries, and of a block of keys or of values.
    fn bytes(self) -> [usize; 2] {
        [self.rows() * self.dim * 2, self.keys * self.dim * 2]
    }

    /// Where the barriers begin: one for the queries, then two for each stage of keys and of values.
    fn barriers(self) -> usize {
        let [queries, block] = self.bytes();
        queries + 2 * STAGES * block
    }

    /// Bytes of shared memory, with what is lost by starting at a multiple of 1024.
    fn shared(self) -> usize {
        self.barriers() + 16 + 32 * STAGES + 1024
    }
}

/// `[batches, m, dim]` queries and `[batches, n, dim]` keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batches: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) dim: usize,
}

/// The variants for a program that binds `q`, `k`, `v`, sizes and the result.
pub(super) fn variants(ty: &DataType, sizes: Sizes, causal: bool, scale: f32) -> Vec<Variant> {
    if !matches!(ty, DataType::F16 | DataType::BF16) {
        return Vec::new();
    }
    forms(sizes.dim, causal).into_iter().map(|form| variant(ty, sizes, form, scale)).collect()
}

fn forms(dim: usize, causal: bool) -> Vec<Form> {
    let form = |groups, keys| Form { dim, causal, groups, keys };
    match dim {
        64 => vec![form(3, 128), form(2, 128)],
        128 if causal => vec![form(2, 128)],
        128 => vec![form(2, 128), form(2, 176)],
        _ => Vec::new(),
    }
}

fn variant(ty: &DataType, sizes: Sizes, form: Form, scale: f32) -> Variant {
    let Sizes { batches, m, n, dim } = sizes;
    let map = |buffer: usize, rows: usize, tile: usize| TensorMap {
        buffer,
        element: ty.clone(),
        extents: [dim, rows, batches].map(|size| size as u64).to_vec(),
        strides: [dim * 2, rows * dim * 2].map(|size| size as u64).to_vec(),
        tile: [64, tile, 1].map(|size| size as u32).to_vec(),
        swizzle: 128,
    };
    let tiles = m.div_ceil(form.rows());
    // Causal blocks of the last queries have most to do and come first; those of several heads, as long as their keys and values fit.
    let together = if form.causal { (IN_CACHE / (4 * n * dim)).clamp(1, batches) } else { 1 };
    let power = scale * std::f32::consts::LOG2_E;
    let ptx = Ptx {
        target: "sm_90a".to_owned(),
        entry: "attention".to_owned(),
        text: text(ty, form),
        block: [form.threads() as u32, 1, 1],
        blocks: Blocks::Fixed([(tiles * batches) as u32, 1, 1]),
        shared: form.shared() as u32,
        tensor_maps: vec![map(0, m, form.rows()), map(1, n, form.keys), map(2, n, form.keys)],
        params: [Param::Buffer(4)]
            .into_iter()
            .chain([m, n, tiles, batches, together].map(|size| Param::U32(size as u32)))
            .chain([Param::U32(power.to_bits())])
            .collect(),
    };
    let name = format!("wgmma {}x{}", form.rows(), form.keys);
    // SAFETY: the copies are of arrays whose extents are those of the buffers, which the op has made or checked, and fill with zeros what is
    // outside of them; rows that are stored are compared with their number. Every wait is for work that was begun before.
    let variant = unsafe { Variant::ptx(name, ptx) };
    // Weights are rounded to the type of the values, after another largest score, and added in another order.
    variant.within(Tolerance { ulps: 2, of_largest: 1.0 / 1024.0 })
}

/// The whole module.
fn text(ty: &DataType, form: Form) -> String {
    let [at_first, fetching, _] = form.registers();
    let [queries, block] = form.bytes();
    let mut t = String::new();
    line!(t, ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 shm[];");
    line!(t, ".visible .entry attention(.param .align 64 .b8 map_q[128], .param .align 64 .b8 map_k[128],");
    line!(
        t,
        " .param .align 64 .b8 map_v[128], .param .u64 p_out, .param .u32 p_m, .param .u32 p_n, .param .u32 p_tiles,"
    );
    line!(t, " .param .u32 p_batches, .param .u32 p_together, .param .f32 p_power)\n.reqntid {}, 1, 1", form.threads());
    line!(
        t,
        ".maxnreg {at_first}\n{{\n.reg .pred %p, %q, %goes, %never, %always, %one, %odd, %upper; .reg .b32 %r<64>; .reg .b64 %d<16>;"
    );
    line!(t, ".reg .f32 %o<{}>; .reg .f32 %s<{}>; .reg .b32 %w<{}>;", form.dim / 2, form.keys / 2, form.keys / 4);
    line!(t, ".reg .f32 %power, %most0, %most1, %sum0, %sum1, %shrink0, %shrink1, %base0, %base1, %f<16>;");
    line!(t, ".reg .b32 %t, %wg, %shm, %bar, %m, %n, %row, %bat, %total, %whole, %at, %before, %see0, %see1, %c;");
    line!(t, "mov.u32 %t, %tid.x; shr.u32 %wg, %t, 7;");
    line!(t, "mov.u32 %shm, shm; add.u32 %shm, %shm, 1023; and.b32 %shm, %shm, 0xfffffc00;");
    line!(t, "add.u32 %bar, %shm, {};", form.barriers());
    line!(t, "ld.param.u32 %m, [p_m]; ld.param.u32 %n, [p_n];");
    place(&mut t, form);
    line!(t, "setp.ne.u32 %p, %t, 0; @%p bra READY;\nmbarrier.init.shared::cta.b64 [%bar], 1;");
    for at in (0..2 * STAGES).map(|stage| 16 + stage * 16) {
        line!(t, "mbarrier.init.shared::cta.b64 [%bar+{at}], 1;");
        // Each warp says that it is done with a stage.
        line!(t, "mbarrier.init.shared::cta.b64 [%bar+{}], {};", at + 8, form.groups * 4);
    }
    line!(t, "fence.mbarrier_init.release.cluster;\nREADY: bar.sync 0;\nsetp.ne.u32 %p, %wg, 0; @%p bra CONSUMER;");
    line!(t, "setmaxnreg.dec.sync.aligned.u32 {fetching};\nsetp.ne.u32 %p, %t, 0; @%p bra END;");
    produce(&mut t, form, queries, block);
    consume(&mut t, ty, form);
    line!(t, "END: ret;\n}}");
    t
}

/// First row and batch of this block, and how many blocks of keys its queries look at.
fn place(t: &mut String, form: Form) {
    line!(
        t,
        "mov.u32 %r0, %ctaid.x; ld.param.u32 %r1, [p_tiles]; ld.param.u32 %r2, [p_together]; ld.param.u32 %r3, [p_batches];"
    );
    line!(t, "mul.lo.u32 %r4, %r1, %r2; div.u32 %r5, %r0, %r4; rem.u32 %r0, %r0, %r4; mul.lo.u32 %r5, %r5, %r2;");
    line!(t, "sub.u32 %r3, %r3, %r5; min.u32 %r3, %r3, %r2; div.u32 %row, %r0, %r3; rem.u32 %bat, %r0, %r3;");
    line!(t, "add.u32 %bat, %bat, %r5;");
    if form.causal {
        line!(t, "sub.u32 %row, %r1, %row; sub.u32 %row, %row, 1;");
    }
    line!(t, "mul.lo.u32 %row, %row, {0}; mov.u32 %total, %n;", form.rows());
    if form.causal {
        line!(t, "add.u32 %r4, %row, {}; min.u32 %total, %total, %r4;", form.rows());
    }
    line!(t, "add.u32 %total, %total, {}; div.u32 %total, %total, {};", form.keys - 1, form.keys);
}

/// Where a stage's barriers are, in `%r6`: the one of what has come, and behind it that of what is free. `of` is 0 for keys and 1 for values.
fn barriers(t: &mut String, number: &str, of: usize) {
    line!(t, "and.b32 %r6, {number}, {}; shl.b32 %r6, %r6, 4; add.u32 %r6, %r6, %bar;", STAGES - 1);
    line!(t, "add.u32 %r6, %r6, {};", 16 + of * 16 * STAGES);
    line!(t, "shr.u32 %r7, {number}, {}; and.b32 %r7, %r7, 1;", STAGES.ilog2());
}

/// One thread fetches.
fn produce(t: &mut String, form: Form, queries: usize, block: usize) {
    for (map, at) in [("map_q", "%d0"), ("map_k", "%d1"), ("map_v", "%d2")] {
        line!(t, "mov.b64 {at}, {map}; cvta.param.u64 {at}, {at}; prefetch.tensormap [{at}];");
    }
    line!(t, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {queries};");
    for part in 0..form.dim / 64 {
        line!(t, "mov.u32 %c, {}; add.u32 %r8, %shm, {};", part * 64, part * form.rows() * 128);
        line!(t, "{COPY} [%r8], [%d0, {{%c, %row, %bat}}], [%bar];");
    }
    line!(t, "mov.u32 %at, 0;\nFILL: mul.lo.u32 %r9, %at, {};", form.keys);
    for (of, map) in [(0, "%d1"), (1, "%d2")] {
        barriers(t, "%at", of);
        line!(t, "xor.b32 %r7, %r7, 1;");
        wait(t, &format!("FREE{of}"), "%r6+8", "%r7");
        line!(t, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r6], {block};");
        line!(t, "and.b32 %r10, %at, {}; mad.lo.u32 %r10, %r10, {block}, %shm;", STAGES - 1);
        for part in 0..form.dim / 64 {
            let offset = queries + of * STAGES * block + part * form.keys * 128;
            line!(t, "mov.u32 %c, {}; add.u32 %r8, %r10, {offset};", part * 64);
            line!(t, "{COPY} [%r8], [{map}, {{%c, %r9, %bat}}], [%r6];");
        }
    }
    line!(t, "add.u32 %at, %at, 1; setp.lt.u32 %p, %at, %total; @%p bra FILL;\nbra END;");
}

/// The other warpgroups multiply.
fn consume(t: &mut String, ty: &DataType, form: Form) {
    let [queries, block] = form.bytes();
    line!(t, "CONSUMER: setmaxnreg.inc.sync.aligned.u32 {};", form.registers()[2]);
    line!(t, "add.u32 %wg, %wg, -1; shl.b32 %r0, %wg, 6; add.u32 %row, %row, %r0;");
    // One lane of each warp says that a stage is free.
    line!(t, "and.b32 %r1, %t, 31; setp.eq.u32 %one, %r1, 0;");
    // Where matrices are: queries of this warpgroup, keys, values.
    let along = descriptor(true, 0).0;
    let across = descriptor(false, form.keys * 128).0;
    line!(
        t,
        "shl.b32 %r0, %wg, 13; add.u32 %r0, %r0, %shm; shr.u32 %r0, %r0, 4; cvt.u64.u32 %d0, %r0; or.b64 %d0, %d0, {along};"
    );
    line!(t, "add.u32 %r0, %shm, {queries}; shr.u32 %r0, %r0, 4; cvt.u64.u32 %d1, %r0; or.b64 %d1, %d1, {along};");
    line!(
        t,
        "add.u32 %r0, %shm, {}; shr.u32 %r0, %r0, 4; cvt.u64.u32 %d2, %r0; or.b64 %d2, %d2, {across};",
        queries + STAGES * block
    );
    // Keys that this lane's two rows look at, from its own first column on; blocks that all rows of the warpgroup look at.
    line!(
        t,
        "bfe.u32 %r2, %t, 5, 2; shl.b32 %r2, %r2, 4; bfe.u32 %r3, %t, 2, 3; add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %row;"
    );
    line!(t, "and.b32 %r3, %t, 3; shl.b32 %r3, %r3, 1; mov.u32 %see0, %n; mov.u32 %see1, %n; mov.u32 %whole, %n;");
    if form.causal {
        line!(t, "add.u32 %r4, %r2, 1; min.u32 %see0, %see0, %r4; add.u32 %r4, %r2, 9; min.u32 %see1, %see1, %r4;");
        line!(t, "add.u32 %r4, %row, 1; min.u32 %whole, %whole, %r4;");
    }
    line!(t, "sub.s32 %see0, %see0, %r3; sub.s32 %see1, %see1, %r3; div.u32 %whole, %whole, {};", form.keys);
    line!(t, "min.u32 %whole, %whole, %total; ld.param.f32 %power, [p_power];");
    line!(
        t,
        "mov.f32 %most0, {NOTHING}; mov.f32 %most1, {NOTHING}; mov.f32 %sum0, 0f00000000; mov.f32 %sum1, 0f00000000;"
    );
    line!(t, "setp.ne.u32 %never, %t, %t; setp.eq.u32 %always, %t, %t; setp.ne.u32 %goes, %t, %t;");
    for at in 0..form.dim / 2 {
        line!(t, "mov.f32 %o{at}, 0f00000000;");
    }
    // The last of the warpgroups lets the first begin.
    line!(t, "setp.eq.u32 %p, %wg, {}; @%p bar.arrive 1, 256;", form.groups - 1);
    line!(t, "mov.u32 %at, 0;");
    wait(t, "QUERIES", "%bar", "0");
    barriers(t, "%at", 0);
    wait(t, "KEYS", "%r6", "%r7");
    line!(t, "wgmma.fence.sync.aligned;");
    scores(t, ty, form);
    line!(t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
    line!(t, "@%one mbarrier.arrive.release.cta.shared::cta.b64 _, [%r6+8];");
    line!(t, "setp.ne.u32 %p, %whole, 0; @%p bra SEEN;");
    hide(t, form);
    line!(t, "SEEN:");
    weights(t, form);
    pack(t, ty, form);
    line!(t, "mov.u32 %at, 1;\nWHOLE: setp.ge.u32 %p, %at, %whole; @%p bra PARTS;");
    step(t, ty, form, false);
    line!(t, "bra WHOLE;\nPARTS: setp.ge.u32 %p, %at, %total; @%p bra LAST;");
    step(t, ty, form, true);
    line!(t, "bra PARTS;\nLAST: add.u32 %before, %at, -1;");
    barriers(t, "%before", 1);
    wait(t, "VALUES_LAST", "%r6", "%r7");
    line!(t, "wgmma.fence.sync.aligned;");
    add(t, ty, form);
    line!(t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
    store(t, ty, form);
}

/// Scores of one block while the one before is added to the results.
fn step(t: &mut String, ty: &DataType, form: Form, hidden: bool) {
    let own = if hidden { "PARTS" } else { "WHOLE" };
    barriers(t, "%at", 0);
    wait(t, &format!("KEYS_{own}"), "%r6", "%r7");
    line!(t, "mov.u32 %r11, %r6;");
    // Its turn; then the next one's.
    line!(t, "add.u32 %r12, %wg, 1; bar.sync %r12, 256;\nwgmma.fence.sync.aligned;");
    scores(t, ty, form);
    line!(t, "wgmma.commit_group.sync.aligned;\nadd.u32 %before, %at, -1;");
    barriers(t, "%before", 1);
    wait(t, &format!("VALUES_{own}"), "%r6", "%r7");
    add(t, ty, form);
    line!(t, "wgmma.commit_group.sync.aligned;");
    line!(
        t,
        "add.u32 %r12, %wg, 2; setp.gt.u32 %p, %r12, {0}; selp.b32 %r12, 1, %r12, %p; bar.arrive %r12, 256;",
        form.groups
    );
    line!(t, "wgmma.wait_group.sync.aligned 1;\n@%one mbarrier.arrive.release.cta.shared::cta.b64 _, [%r11+8];");
    if hidden {
        hide(t, form);
    }
    weights(t, form);
    line!(t, "wgmma.wait_group.sync.aligned 0;\n@%one mbarrier.arrive.release.cta.shared::cta.b64 _, [%r6+8];");
    line!(t, "setp.eq.u32 %goes, %t, %t;");
    for at in 0..form.dim / 2 {
        line!(t, "mul.f32 %o{at}, %o{at}, %shrink{};", at / 2 % 2);
    }
    pack(t, ty, form);
    line!(t, "add.u32 %at, %at, 1;");
}

/// Queries times keys.
fn scores(t: &mut String, ty: &DataType, form: Form) {
    let (keys, name) = (form.keys, name(ty));
    let all = registers("s", 0..keys / 2);
    line!(
        t,
        "and.b32 %r13, %at, {}; mul.wide.u32 %d3, %r13, {}; add.s64 %d3, %d3, %d1;",
        STAGES - 1,
        form.bytes()[1] >> 4
    );
    for k in 0..form.dim / 16 {
        let (part, within) = (k / 4, k % 4 * 32);
        line!(
            t,
            "add.s64 %d4, %d0, {}; add.s64 %d5, %d3, {};",
            (part * form.rows() * 128 + within) >> 4,
            (part * keys * 128 + within) >> 4
        );
        let goes_on = if k == 0 { "%never" } else { "%always" };
        line!(
            t,
            "wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.{name}.{name} {{{all}}}, %d4, %d5, {goes_on}, 1, 1, 0, 0;"
        );
    }
}

/// Weights times values, to the results.
fn add(t: &mut String, ty: &DataType, form: Form) {
    let (dim, name) = (form.dim, name(ty));
    let all = registers("o", 0..dim / 2);
    line!(
        t,
        "and.b32 %r13, %before, {}; mul.wide.u32 %d3, %r13, {}; add.s64 %d3, %d3, %d2;",
        STAGES - 1,
        form.bytes()[1] >> 4
    );
    for k in 0..form.keys / 16 {
        let own = registers("w", 4 * k..4 * k + 4);
        let goes_on = if k == 0 { "%goes" } else { "%always" };
        line!(t, "add.s64 %d5, %d3, {};", k * (2048 >> 4));
        line!(
            t,
            "wgmma.mma_async.sync.aligned.m64n{dim}k16.f32.{name}.{name} {{{all}}}, {{{own}}}, %d5, {goes_on}, 1, 1, 1;"
        );
    }
}

/// Scores of keys that a row does not look at, or that are not there.
fn hide(t: &mut String, form: Form) {
    line!(t, "mul.lo.u32 %r14, %at, {}; sub.s32 %r15, %see0, %r14; sub.s32 %r16, %see1, %r14;", form.keys);
    for at in 0..form.keys / 2 {
        let (key, seen) = (at / 4 * 8 + at % 2, if at / 2 % 2 == 0 { "%r15" } else { "%r16" });
        line!(t, "setp.gt.s32 %p, {seen}, {key}; selp.f32 %s{at}, %s{at}, {NOTHING}, %p;");
    }
}

/// Weights are powers of two, so that the scale takes part in the product that they need anyway.
fn weights(t: &mut String, form: Form) {
    for row in 0..2 {
        let own: Vec<usize> = (0..form.keys / 2).filter(|at| at / 2 % 2 == row).collect();
        // Four chains, which don't wait for each other.
        for (at, own) in own.iter().enumerate() {
            match at {
                0..4 => line!(t, "mov.f32 %f{at}, %s{own};"),
                _ => line!(t, "max.f32 %f{0}, %f{0}, %s{own};", at % 4),
            }
        }
        line!(t, "max.f32 %f0, %f0, %f1; max.f32 %f2, %f2, %f3; max.f32 %f0, %f0, %f2;");
        for distance in [1, 2] {
            line!(t, "shfl.sync.bfly.b32 %f1, %f0, {distance}, 31, 0xffffffff; max.f32 %f0, %f0, %f1;");
        }
        line!(t, "max.f32 %f0, %f0, %most{row}; sub.f32 %f1, %most{row}, %f0; mul.f32 %f1, %f1, %power;");
        line!(t, "ex2.approx.ftz.f32 %shrink{row}, %f1; mov.f32 %most{row}, %f0; mul.f32 %base{row}, %f0, %power;");
        line!(t, "neg.f32 %base{row}, %base{row};");
        for (at, own) in own.iter().enumerate() {
            line!(t, "fma.rn.f32 %s{own}, %s{own}, %power, %base{row}; ex2.approx.ftz.f32 %s{own}, %s{own};");
            match at {
                0..4 => line!(t, "mov.f32 %f{at}, %s{own};"),
                _ => line!(t, "add.f32 %f{0}, %f{0}, %s{own};", at % 4),
            }
        }
        line!(t, "add.f32 %f0, %f0, %f1; add.f32 %f2, %f2, %f3; add.f32 %f0, %f0, %f2;");
        line!(t, "fma.rn.f32 %sum{row}, %sum{row}, %shrink{row}, %f0;");
    }
}

/// Weights as the left factor of the next product.
fn pack(t: &mut String, ty: &DataType, form: Form) {
    for at in 0..form.keys / 4 {
        line!(t, "cvt.rn.{}x2.f32 %w{at}, %s{}, %s{};", name(ty), 2 * at + 1, 2 * at);
    }
}

/// Results by `1 / divisor`; four lanes exchange, so that each stores eight columns side by side.
fn store(t: &mut String, ty: &DataType, form: Form) {
    for row in 0..2 {
        for distance in [1, 2] {
            line!(
                t,
                "shfl.sync.bfly.b32 %f0, %sum{row}, {distance}, 31, 0xffffffff; add.f32 %sum{row}, %sum{row}, %f0;"
            );
        }
        line!(t, "rcp.rn.f32 %shrink{row}, %sum{row};");
    }
    for at in 0..form.dim / 4 {
        let row = at % 2;
        line!(t, "mul.f32 %f0, %o{}, %shrink{row}; mul.f32 %f1, %o{}, %shrink{row};", 2 * at, 2 * at + 1);
        line!(t, "cvt.rn.{}x2.f32 %r33, %f1, %f0; mov.b32 %o{at}, %r33;", name(ty));
    }
    line!(t, "ld.param.u64 %d6, [p_out]; cvta.to.global.u64 %d6, %d6; mul.wide.u32 %d7, %bat, %m;");
    line!(
        t,
        "cvt.u64.u32 %d8, %r2; add.s64 %d7, %d7, %d8; mul.lo.s64 %d7, %d7, {}; add.s64 %d6, %d6, %d7;",
        form.dim * 2
    );
    line!(t, "and.b32 %r3, %t, 3; mul.wide.u32 %d7, %r3, 16; add.s64 %d6, %d6, %d7;");
    line!(t, "and.b32 %r4, %r3, 1; setp.ne.u32 %odd, %r4, 0; and.b32 %r4, %r3, 2; setp.ne.u32 %upper, %r4, 0;");
    for row in 0..2 {
        line!(t, "add.u32 %r4, %r2, {}; setp.lt.u32 %q, %r4, %m;", 8 * row);
        for group in 0..form.dim / 32 {
            for at in 0..4 {
                line!(t, "mov.b32 %r{}, %o{};", 34 + at, 2 * (4 * group + at) + row);
            }
            exchange(t, [34, 35, 36, 37].map(|at| format!("%r{at}")));
            line!(t, "@%q st.global.v4.b32 [%d6+{}], {{%r29, %r30, %r31, %r32}};", row * 8 * form.dim * 2 + 64 * group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assembler_takes_every_form() {
        for dim in [64, 128] {
            for causal in [false, true] {
                let sizes = Sizes { batches: 2, m: 100, n: 300, dim };
                let all = variants(&DataType::F16, sizes, causal, 0.1);
                assert!(!all.is_empty(), "{dim}");
                crate::hopper::assemble("attention", &all);
            }
        }
    }

    #[test]
    fn other_rows_and_types_have_no_variants() {
        let count = |ty, dim| variants(&ty, Sizes { batches: 1, m: 64, n: 64, dim }, false, 0.1).len();
        assert_eq!([count(DataType::F32, 64), count(DataType::F16, 96)], [0, 0]);
    }
}
