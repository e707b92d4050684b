//! Products of f16 and bf16 matrices in PTX for `sm_90a`, as variants of the portable programs: bulk tensor copies into swizzled shared
//! memory, and `wgmma` from there.
//!
//! A block of 384 threads makes tiles of 128 rows. Its first warpgroup fetches, with one thread: it waits until a stage is free, and the copies
//! themselves say when it is full. The other two multiply, 64 rows each, with the sums in registers. Blocks take one tile after another, so
//! that the next tile's first stages are on their way while a tile is stored. Clusters that share what they fetch were slower.
#![allow(unsafe_code, reason = "the promise about a kernel that is not checked as programs are")]

use std::fmt::Write;

use vyre::DataType;
use vyre::variant::{Blocks, Param, Ptx, TensorMap, Tolerance, Variant};

use super::Transposed;
use super::epilogue::Steps;
use crate::hopper::{COPY, descriptor, exchange, line, name, registers, wait};

/// Rows of a tile, and steps of `k` in a stage: 128 bytes, which is what is swizzled.
const ROWS: usize = 128;
const DEPTH: usize = 64;

/// Blocks that are at work at once, one on each multiprocessor of an H100 or H200.
const BLOCKS: usize = 132;

/// How a kernel is cut.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Columns of a tile.
    columns: usize,
    stages: usize,
    /// Rows of tiles that are worked on together, so that what they share stays in the cache.
    together: usize,
}

/// One product: `[batches, m, k]` by `[batches, k, n]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) sizes: [usize; 3],
    pub(super) batches: usize,
    pub(super) transposed: Transposed,
    pub(super) steps: Steps,
}

/// Where a program binds its result, and of an epilogue the scale, with the bytes before it, and the bias.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) out: usize,
    pub(super) scale: (usize, usize),
    pub(super) bias: usize,
}

/// The variants for a product of matrices of this type, whose program binds `a` and `b` first. None where rows don't start at multiples of 16
/// bytes.
pub(super) fn variants(ty: &DataType, product: Product, places: Places) -> Vec<Variant> {
    let [m, n, k] = product.sizes;
    let Transposed { a, b } = product.transposed;
    let rows_fit = [n, if a { m } else { k }, if b { k } else { n }].iter().all(|size| size.is_multiple_of(8));
    if !rows_fit || !matches!(ty, DataType::F16 | DataType::BF16) {
        return Vec::new();
    }
    let forms = [Form { columns: 256, stages: 4, together: 8 }, Form { columns: 128, stages: 6, together: 8 }];
    // Tiles that are mostly outside only waste time.
    let fits = |form: &Form| form.columns <= n.next_multiple_of(128);
    forms.into_iter().filter(fits).map(|form| variant(ty, product, places, form)).collect()
}

fn variant(ty: &DataType, product: Product, places: Places, form: Form) -> Variant {
    let Product { sizes: [m, n, k], batches, transposed, steps } = product;
    let map = |buffer: usize, rows: usize, columns: usize, tile: [usize; 2]| TensorMap {
        buffer,
        element: ty.clone(),
        extents: [columns, rows, batches].map(|size| size as u64).to_vec(),
        strides: [columns * 2, rows * columns * 2].map(|size| size as u64).to_vec(),
        tile: [tile[0], tile[1], 1].map(|size| size as u32).to_vec(),
        swizzle: 128,
    };
    let a = match transposed.a {
        true => map(0, k, m, [DEPTH, DEPTH]),
        false => map(0, m, k, [DEPTH, ROWS]),
    };
    let b = match transposed.b {
        true => map(1, n, k, [DEPTH, form.columns]),
        false => map(1, k, n, [DEPTH, DEPTH]),
    };
    let tiles = m.div_ceil(ROWS) * n.div_ceil(form.columns) * batches;
    let ptx = Ptx {
        target: "sm_90a".to_owned(),
        entry: "matmul".to_owned(),
        text: text(ty, transposed, form, steps, places.scale.1),
        block: [384, 1, 1],
        blocks: Blocks::Fixed([tiles.min(BLOCKS) as u32, 1, 1]),
        shared: shared(form) as u32,
        tensor_maps: vec![a, b],
        params: [Param::Buffer(places.out)]
            .into_iter()
            .chain([m, n, k, batches].map(|size| Param::U32(size as u32)))
            .chain(steps.scaled.then_some(Param::Buffer(places.scale.0)))
            .chain(steps.bias.then_some(Param::Buffer(places.bias)))
            .collect(),
    };
    let name = format!("wgmma {ROWS}x{}", form.columns);
    // SAFETY: the copies are of arrays whose extents are those of the buffers, which the op has made or checked, and fill with zeros what is
    // outside of them; what is stored is compared with the extents of the result. Every wait is for work that was begun before.
    let variant = unsafe { Variant::ptx(name, ptx) };
    // The sums are of the same products in another order, and rounded once more.
    variant.within(Tolerance { ulps: 1, of_largest: 1.0 / 16384.0 })
}

/// Bytes of a stage of each factor.
fn stage(form: Form) -> [usize; 2] {
    [ROWS * DEPTH * 2, form.columns * DEPTH * 2]
}

/// Stages, two barriers for each, and what is lost by starting at a multiple of 1024.
fn shared(form: Form) -> usize {
    form.stages * (stage(form).iter().sum::<usize>() + 16) + 1024
}

/// The whole module.
fn text(ty: &DataType, transposed: Transposed, form: Form, epilogue: Steps, scale_at: usize) -> String {
    let Form { columns, stages, .. } = form;
    let [a_bytes, b_bytes] = stage(form);
    let (bytes, sums) = (a_bytes + b_bytes, columns / 2);
    let mut t = String::new();
    line!(t, ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 shm[];");
    line!(
        t,
        ".visible .entry matmul(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 p_out,"
    );
    let more = [(" .param .u64 p_scale", epilogue.scaled), (" .param .u64 p_bias", epilogue.bias)];
    let more: String = more.iter().filter(|(_, is_needed)| *is_needed).map(|(param, _)| format!(",{param}")).collect();
    line!(t, " .param .u32 p_m, .param .u32 p_n, .param .u32 p_k, .param .u32 p_batches{more})\n.reqntid 384, 1, 1");
    line!(t, ".maxnreg 168\n{{\n.reg .pred %p, %q, %first, %one, %odd, %upper; .reg .b32 %r<64>; .reg .b64 %d<16>;");
    line!(t, ".reg .f32 %acc<{sums}>, %scale, %bias0, %bias1, %g0, %g1; .reg .b16 %h; .reg .b32 %w<{}>;", sums / 2);
    line!(t, ".reg .b32 %t, %wg, %shm, %bar, %m, %n, %k, %steps, %tm, %tn, %tiles, %tile, %stride, %per;");
    line!(t, ".reg .b32 %stage, %phase, %step, %row, %col, %bat, %at, %full, %empty, %c0, %c1, %before;");
    line!(t, "mov.u32 %t, %tid.x; shr.u32 %wg, %t, 7;");
    line!(t, "mov.u32 %shm, shm; add.u32 %shm, %shm, 1023; and.b32 %shm, %shm, 0xfffffc00;");
    line!(t, "add.u32 %bar, %shm, {};", stages * bytes);
    line!(t, "ld.param.u32 %m, [p_m]; ld.param.u32 %n, [p_n]; ld.param.u32 %k, [p_k]; ld.param.u32 %r1, [p_batches];");
    line!(t, "add.u32 %steps, %k, {}; shr.u32 %steps, %steps, 6;", DEPTH - 1);
    line!(t, "add.u32 %tm, %m, {}; div.u32 %tm, %tm, {ROWS};", ROWS - 1);
    line!(t, "add.u32 %tn, %n, {}; div.u32 %tn, %tn, {columns};", columns - 1);
    line!(t, "mul.lo.u32 %per, %tm, %tn; mul.lo.u32 %tiles, %per, %r1;");
    line!(t, "mov.b64 %d0, map_a; cvta.param.u64 %d0, %d0; mov.b64 %d1, map_b; cvta.param.u64 %d1, %d1;");
    line!(t, "setp.ne.u32 %p, %t, 0; @%p bra READY;");
    for at in (0..stages).map(|stage| stage * 16) {
        line!(t, "mbarrier.init.shared::cta.b64 [%bar+{at}], 1;");
        line!(t, "mbarrier.init.shared::cta.b64 [%bar+{}], 2;", at + 8);
    }
    line!(t, "fence.mbarrier_init.release.cluster;\nprefetch.tensormap [%d0]; prefetch.tensormap [%d1];\nREADY:");
    line!(t, "bar.sync 0;\nmov.u32 %tile, %ctaid.x; mov.u32 %stride, %nctaid.x;");
    line!(t, "mov.u32 %stage, 0; mov.u32 %phase, 0;\nsetp.ne.u32 %p, %wg, 0; @%p bra CONSUMER;");
    produce(&mut t, transposed, form);
    consume(&mut t, ty, transposed, form);
    finish(&mut t, ty, form, epilogue, scale_at);
    store(&mut t, ty, form);
    line!(t, "add.u32 %tile, %tile, %stride; bra CONSUME;\nEND: ret;\n}}");
    t
}

/// Row, column and batch of a tile.
fn place(t: &mut String, form: Form) {
    let rows = form.together;
    line!(t, "div.u32 %bat, %tile, %per; rem.u32 %r3, %tile, %per;");
    line!(t, "mul.lo.u32 %r4, %tn, {rows}; div.u32 %r5, %r3, %r4; rem.u32 %r3, %r3, %r4;");
    line!(t, "mul.lo.u32 %r5, %r5, {rows}; sub.u32 %r6, %tm, %r5; min.u32 %r6, %r6, {rows};");
    line!(t, "rem.u32 %row, %r3, %r6; div.u32 %col, %r3, %r6; add.u32 %row, %row, %r5;");
    line!(t, "shl.b32 %row, %row, 7; mul.lo.u32 %col, %col, {};", form.columns);
}

/// The barriers of a stage.
fn barriers(t: &mut String) {
    line!(t, "shl.b32 %full, %stage, 4; add.u32 %full, %full, %bar;");
}

fn next_stage(t: &mut String, form: Form) {
    line!(t, "add.u32 %stage, %stage, 1; setp.eq.u32 %p, %stage, {};", form.stages);
    line!(t, "@%p mov.u32 %stage, 0; @%p xor.b32 %phase, %phase, 1;");
}

/// One thread fetches.
fn produce(t: &mut String, transposed: Transposed, form: Form) {
    let [a_bytes, b_bytes] = stage(form);
    line!(t, "setmaxnreg.dec.sync.aligned.u32 40;\nsetp.ne.u32 %p, %t, 0; @%p bra END;");
    line!(t, "PRODUCE: setp.ge.u32 %p, %tile, %tiles; @%p bra END;");
    place(t, form);
    line!(t, "mov.u32 %step, 0;\nFILL: mad.lo.u32 %at, %stage, {}, %shm; xor.b32 %r7, %phase, 1;", a_bytes + b_bytes);
    barriers(t);
    wait(t, "FREE", "%full+8", "%r7");
    line!(t, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {};\nshl.b32 %c0, %step, 6;", a_bytes + b_bytes);
    if transposed.a {
        for part in 0..ROWS / 64 {
            line!(t, "add.u32 %c1, %row, {}; add.u32 %r8, %at, {};", part * 64, part * 8192);
            line!(t, "{COPY} [%r8], [%d0, {{%c1, %c0, %bat}}], [%full];");
        }
    } else {
        line!(t, "{COPY} [%at], [%d0, {{%c0, %row, %bat}}], [%full];");
    }
    // A column of either layout takes 128 bytes of a stage.
    let parts = if transposed.b { 1 } else { form.columns / 64 };
    for part in 0..parts {
        line!(t, "add.u32 %c1, %col, {}; add.u32 %r8, %at, {};", part * 64, a_bytes + part * 8192);
        let from = if transposed.b { "%c0, %c1" } else { "%c1, %c0" };
        line!(t, "{COPY} [%r8], [%d1, {{{from}, %bat}}], [%full];");
    }
    next_stage(t, form);
    line!(t, "add.u32 %step, %step, 1; setp.lt.u32 %p, %step, %steps; @%p bra FILL;");
    line!(t, "add.u32 %tile, %tile, %stride; bra PRODUCE;");
}

/// Two warpgroups multiply.
fn consume(t: &mut String, ty: &DataType, transposed: Transposed, form: Form) {
    let columns = form.columns;
    let [a_bytes, b_bytes] = stage(form);
    let ((left, left_step), (right, right_step)) = (descriptor(!transposed.a, 8192), descriptor(transposed.b, 8192));
    line!(t, "CONSUMER: setmaxnreg.inc.sync.aligned.u32 232;\nadd.u32 %wg, %wg, -1; and.b32 %r9, %t, 127;");
    // One thread of each says that a stage is free.
    line!(t, "setp.eq.u32 %one, %r9, 0;");
    line!(t, "ld.param.u64 %d2, [p_out]; cvta.to.global.u64 %d2, %d2;");
    line!(t, "CONSUME: setp.ge.u32 %p, %tile, %tiles; @%p bra END;");
    place(t, form);
    line!(
        t,
        "mov.u32 %step, 0; mov.u32 %before, 0xffffffff;\nMULTIPLY: mad.lo.u32 %at, %stage, {}, %shm;",
        a_bytes + b_bytes
    );
    barriers(t);
    wait(t, "FULL", "%full", "%phase");
    line!(t, "shl.b32 %r11, %wg, 13; add.u32 %r11, %r11, %at; and.b32 %r11, %r11, 0x3ffff; shr.u32 %r11, %r11, 4;");
    line!(t, "add.u32 %r12, %at, {a_bytes}; and.b32 %r12, %r12, 0x3ffff; shr.u32 %r12, %r12, 4;");
    line!(t, "cvt.u64.u32 %d3, %r11; or.b64 %d3, %d3, {left}; cvt.u64.u32 %d4, %r12; or.b64 %d4, %d4, {right};");
    line!(t, "setp.ne.u32 %first, %step, 0; setp.eq.u32 %q, %step, %step;\nwgmma.fence.sync.aligned;");
    let (sums, name) = (registers("acc", 0..columns / 2), name(ty));
    for step in 0..DEPTH / 16 {
        if step > 0 {
            line!(t, "add.s64 %d3, %d3, {left_step}; add.s64 %d4, %d4, {right_step};");
        }
        let goes_on = if step == 0 { "%first" } else { "%q" };
        line!(
            t,
            "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{name}.{name} {{{sums}}}, %d3, %d4, {goes_on}, 1, 1, {}, {};",
            u8::from(transposed.a),
            u8::from(!transposed.b)
        );
    }
    // The stage before is over now, while this one is worked on.
    line!(t, "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;");
    line!(t, "setp.ne.u32 %p, %before, 0xffffffff; and.pred %q, %p, %one;");
    release(t);
    line!(t, "mov.u32 %before, %stage;");
    next_stage(t, form);
    line!(t, "add.u32 %step, %step, 1; setp.lt.u32 %p, %step, %steps; @%p bra MULTIPLY;");
    line!(t, "wgmma.wait_group.sync.aligned 0;\nmov.pred %q, %one;");
    release(t);
}

/// Those for whom `%q` holds say that the stage before is free.
fn release(t: &mut String) {
    line!(t, "shl.b32 %empty, %before, 4; add.u32 %empty, %empty, %bar;");
    line!(t, "@%q mbarrier.arrive.release.cta.shared::cta.b64 _, [%empty+8];");
}

/// What becomes of the sums before they are rounded.
fn finish(t: &mut String, ty: &DataType, form: Form, steps: Steps, scale_at: usize) {
    if steps.scaled {
        line!(t, "ld.param.u64 %d5, [p_scale]; cvta.to.global.u64 %d5, %d5; ld.global.f32 %scale, [%d5+{scale_at}];");
    }
    if steps.bias {
        // This lane's first two columns; two of each eight are its own.
        line!(
            t,
            "ld.param.u64 %d5, [p_bias]; cvta.to.global.u64 %d5, %d5; and.b32 %r11, %t, 3; shl.b32 %r11, %r11, 1;"
        );
        line!(t, "add.u32 %r11, %r11, %col; mad.wide.u32 %d5, %r11, 2, %d5;");
    }
    for group in 0..form.columns / 8 {
        if steps.bias {
            line!(t, "add.u32 %r12, %r11, {}; setp.lt.u32 %p, %r12, %n;", 8 * group);
            for at in 0..2 {
                line!(t, "mov.b16 %h, 0; @%p ld.global.b16 %h, [%d5+{}];", 16 * group + 2 * at);
                match ty {
                    DataType::BF16 => {
                        line!(t, "cvt.u32.u16 %r13, %h; shl.b32 %r13, %r13, 16; mov.b32 %bias{at}, %r13;")
                    }
                    _ => line!(t, "cvt.f32.f16 %bias{at}, %h;"),
                }
            }
        }
        for at in 0..4 {
            steps.instructions(t, &format!("%acc{}", 4 * group + at), &format!("%bias{}", at % 2));
        }
    }
}

/// Four lanes exchange their sums, so that each stores eight columns side by side.
fn store(t: &mut String, ty: &DataType, form: Form) {
    let columns = form.columns;
    line!(t, "shr.u32 %r11, %t, 5; and.b32 %r11, %r11, 3; shl.b32 %r11, %r11, 4; and.b32 %r12, %t, 31;");
    line!(t, "shr.u32 %r13, %r12, 2; add.u32 %r11, %r11, %r13; shl.b32 %r13, %wg, 6; add.u32 %r11, %r11, %r13;");
    line!(t, "add.u32 %r11, %r11, %row; and.b32 %r12, %r12, 3;");
    for at in 0..columns / 4 {
        line!(t, "cvt.rn.{}x2.f32 %w{at}, %acc{}, %acc{};", name(ty), 2 * at + 1, 2 * at);
    }
    line!(t, "mul.wide.u32 %d5, %bat, %m; cvt.u64.u32 %d6, %r11; add.s64 %d5, %d5, %d6; cvt.u64.u32 %d6, %n;");
    line!(t, "mul.lo.s64 %d5, %d5, %d6; cvt.u64.u32 %d7, %col; add.s64 %d5, %d5, %d7; shl.b32 %r14, %r12, 3;");
    line!(t, "cvt.u64.u32 %d7, %r14; add.s64 %d5, %d5, %d7; shl.b64 %d5, %d5, 1; add.s64 %d5, %d5, %d2;");
    // Eight rows below; this lane's first column.
    line!(t, "shl.b64 %d6, %d6, 4; add.s64 %d6, %d5, %d6; add.u32 %r14, %r14, %col; add.u32 %r15, %r11, 8;");
    line!(t, "and.b32 %r16, %r12, 1; setp.ne.u32 %odd, %r16, 0; and.b32 %r16, %r12, 2; setp.ne.u32 %upper, %r16, 0;");
    for (half, row, to) in [(0, "%r11", "%d5"), (1, "%r15", "%d6")] {
        line!(t, "setp.lt.u32 %q, {row}, %m;");
        for group in 0..columns / 32 {
            exchange(t, [0, 1, 2, 3].map(|at| format!("%w{}", 2 * (4 * group + at) + half)));
            line!(t, "add.u32 %r17, %r14, {}; setp.lt.and.u32 %p, %r17, %n, %q;", 32 * group);
            line!(t, "@%p st.global.v4.b32 [{to}+{}], {{%r29, %r30, %r31, %r32}};", 64 * group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::epilogue::Activation;

    #[test]
    fn the_assembler_takes_every_form() {
        for ty in [DataType::F16, DataType::BF16] {
            for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
                for steps in STEPS {
                    let product = Product { sizes: [256, 256, 64], batches: 1, transposed: Transposed { a, b }, steps };
                    crate::hopper::assemble("matmul", &variants(&ty, product, PLACES));
                }
            }
        }
    }

    const PLACES: Places = Places { out: 3, scale: (2, 20), bias: 4 };
    const STEPS: [Steps; 3] = [
        Steps { scaled: false, bias: false, activation: Activation::None },
        Steps { scaled: true, bias: true, activation: Activation::Relu },
        Steps { scaled: false, bias: true, activation: Activation::Gelu },
    ];

    #[test]
    fn rows_that_copies_cant_begin_at_have_no_variants() {
        let of = |ty, sizes, transposed| {
            variants(&ty, Product { sizes, batches: 1, transposed, steps: STEPS[0] }, PLACES).len()
        };
        let count = |sizes, transposed| of(DataType::BF16, sizes, transposed);
        assert_eq!(count([100, 512, 72], Transposed::default()), 2);
        assert_eq!(count([100, 512, 70], Transposed::default()), 0);
        assert_eq!(count([100, 512, 72], Transposed { a: true, b: false }), 0);
        assert_eq!(count([100, 120, 72], Transposed::default()), 1);
        assert_eq!(of(DataType::F32, [128; 3], Transposed::default()), 0);
    }
}
