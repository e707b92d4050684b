//! Products of f32 matrices in PTX for `sm_90a`, as variants of the portable tiles: they have more products for each element that comes from
//! shared memory, and what is fetched goes there by itself, some stages ahead.
//!
//! The portable form has 8 by 8 sums for each invocation, because what it fetches has to wait in registers, and of these two workgroups need all.
//! Each sum is the same chain of `fma` over ascending `k`, so results are the same bits.
#![allow(unsafe_code, reason = "the promise about a kernel that is not checked as programs are")]

use std::fmt::Write;

use vyre::DataType;
use vyre::variant::{Blocks, Param, Ptx, Variant};

use super::Transposed;
use super::epilogue::{Activation, SCALE, Steps};
use super::wgmma::Product;
use crate::hopper::line;

/// How a kernel is cut.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Rows and columns of a block's tile.
    rows: usize,
    columns: usize,
    /// Steps of `k` in a stage.
    depth: usize,
    stages: usize,
    /// Rows of tiles that are worked on together, so that what they share stays in the cache.
    together: usize,
}

/// Rows and columns of a thread.
const DOWN: usize = 8;
const ACROSS: usize = 16;
/// Threads of a warp, down and across its tile.
const WARP: [usize; 2] = [4, 8];
/// Steps of `k` that neighbouring threads fetch of a row: what memory gives at once.
const SIDE: usize = 8;
/// Sides of matrices up to which places fit into instructions.
const MOST_SIDE: usize = 1 << 16;
/// Registers of two blocks of 128 threads on a multiprocessor, or of one of 256.
const REGISTERS: usize = 255;

impl Form {
    fn threads(self) -> usize {
        self.rows / DOWN * (self.columns / ACROSS)
    }

    /// Bytes of a step of `k` of each factor in a stage. Four more elements keep single ones that come side by side on different banks.
    fn steps(self, transposed: Transposed) -> [usize; 2] {
        let padded = |size: usize, scattered: bool| (size + if scattered { 4 } else { 0 }) * 4;
        [padded(self.rows, !transposed.a), padded(self.columns, transposed.b)]
    }

    /// Bytes of a stage.
    fn stage(self, transposed: Transposed) -> usize {
        self.steps(transposed).iter().sum::<usize>() * self.depth
    }
}

/// The variants for a product of f32 matrices, whose program binds `a`, `b`, the sizes, the result and the bias. None where tiles don't fill
/// them, nor for the one function that is not the same bits here.
pub(super) fn variants(ty: &DataType, product: Product) -> Vec<Variant> {
    let [m, n, k] = product.sizes;
    if product.steps.activation == Activation::Gelu {
        return Vec::new();
    }
    if *ty != DataType::F32 || m.max(n).max(k) > MOST_SIDE || product.batches > MOST_SIDE - 1 {
        return Vec::new();
    }
    let forms = [
        Form { rows: 128, columns: 256, depth: 8, stages: 4, together: 8 },
        Form { rows: 128, columns: 128, depth: 8, stages: 4, together: 8 },
    ];
    let fits =
        |form: &Form| m.is_multiple_of(form.rows) && n.is_multiple_of(form.columns) && k.is_multiple_of(form.depth);
    forms.into_iter().filter(fits).map(|form| variant(product, form)).collect()
}

/// The names of a kernel's parameters, and the buffers of the program that they are.
fn places(steps: Steps) -> impl Iterator<Item = (&'static str, usize)> {
    let more = [("p_sizes", 2, steps.scaled), ("p_bias", 4, steps.bias)];
    let more = more.into_iter().filter(|(.., is_needed)| *is_needed).map(|(name, at, _)| (name, at));
    [("p_a", 0), ("p_b", 1), ("p_out", 3)].into_iter().chain(more)
}

fn variant(product: Product, form: Form) -> Variant {
    let [m, n, _] = product.sizes;
    let ptx = Ptx {
        target: "sm_90a".to_owned(),
        entry: "matmul".to_owned(),
        text: text(product, form),
        block: [form.threads() as u32, 1, 1],
        blocks: Blocks::Fixed([(m / form.rows * (n / form.columns)) as u32, product.batches as u32, 1]),
        shared: (form.stage(product.transposed) * form.stages) as u32,
        tensor_maps: Vec::new(),
        params: places(product.steps).map(|(_, at)| Param::Buffer(at)).collect(),
    };
    // SAFETY: tiles fill the matrices, whose extents are those of the buffers, which the op has made or checked; what is fetched behind the last
    // step of `k` is not. Stages are read between the barriers that stand behind what was fetched to them and before what is fetched next.
    unsafe { Variant::ptx(format!("ffma {}x{}", form.rows, form.columns), ptx) }
}

/// One factor: how it is fetched.
struct Factor {
    name: &'static str,
    /// Elements of a tile beside each other in a step of `k`.
    size: usize,
    /// `k` goes along its rows in memory, so single elements are fetched to where they belong.
    scattered: bool,
    /// Elements of a row in memory.
    pitch: usize,
    /// Where it begins in a stage, and bytes from one step of `k` to the next.
    base: usize,
    step: usize,
}

impl Factor {
    /// Where a thread's fetches begin, in memory and in a stage.
    fn begin(&self, t: &mut String) {
        let Factor { name, pitch, base, step, .. } = self;
        // `%r1` and `%r2`: its place along the rows in memory, and its row.
        if self.scattered {
            line!(t, "and.b32 %r1, %t, {}; shr.u32 %r2, %t, {};", SIDE - 1, SIDE.ilog2());
            line!(t, "mad.lo.u32 %to_{name}, %r1, {step}, {base}; mad.lo.u32 %to_{name}, %r2, 4, %to_{name};");
            line!(t, "add.u32 %r2, %r2, %first_{name};");
        } else {
            let chunks = self.size / 4;
            line!(t, "rem.u32 %r1, %t, {chunks}; div.u32 %r2, %t, {chunks}; shl.b32 %r1, %r1, 2;");
            line!(t, "mad.lo.u32 %to_{name}, %r2, {step}, {base}; mad.lo.u32 %to_{name}, %r1, 4, %to_{name};");
            line!(t, "add.u32 %r1, %r1, %first_{name};");
        }
        line!(t, "mad.wide.u32 %from_{name}, %r2, {}, %from_{name};", pitch * 4);
        line!(t, "mad.wide.u32 %from_{name}, %r1, 4, %from_{name}; add.u32 %to_{name}, %to_{name}, %shm;");
    }

    /// A thread's copies of a stage to `%into`, if there are more.
    fn fetch(&self, t: &mut String, form: Form) {
        let Factor { name, size, pitch, step, .. } = self;
        let mut copy = |how: &str, to: usize, from: usize, bytes: usize| {
            line!(t, "@%more cp.async.{how}.shared.global [%into_{name}+{to}], [%from_{name}+{from}], {bytes};");
        };
        if self.scattered {
            let rows = form.threads() / SIDE;
            for part in 0..form.depth / SIDE {
                for i in 0..size / rows {
                    copy("ca", part * SIDE * step + i * rows * 4, part * SIDE * 4 + i * rows * pitch * 4, 4);
                }
            }
        } else {
            let steps = form.threads() / (size / 4);
            for i in 0..form.depth / steps {
                copy("cg", i * steps * step, i * steps * pitch * 4, 16);
            }
        }
        let bytes = form.depth * 4 * if self.scattered { 1 } else { *pitch };
        line!(t, "add.s64 %from_{name}, %from_{name}, {bytes};");
    }

    /// A thread's elements of a step, in parts of four, to one half of its registers.
    fn load(&self, t: &mut String, d: usize, half: usize, own: usize, apart: usize) {
        let Factor { name, step, .. } = self;
        for part in 0..own / 4 {
            let at = half * own + part * 4;
            line!(
                t,
                "ld.shared.v4.f32 {{%{name}{at}, %{name}{}, %{name}{}, %{name}{}}}, [%read_{name}+{}];",
                at + 1,
                at + 2,
                at + 3,
                d * step + part * apart * 16
            );
        }
    }
}

/// The whole module.
fn text(product: Product, form: Form) -> String {
    let Product { sizes: [m, n, k], transposed, steps: epilogue, .. } = product;
    let Form { rows, columns, depth, stages, .. } = form;
    let [a_step, b_step] = form.steps(transposed);
    let a = Factor {
        name: "a",
        size: rows,
        scattered: !transposed.a,
        pitch: if transposed.a { m } else { k },
        base: 0,
        step: a_step,
    };
    let b = Factor {
        name: "b",
        size: columns,
        scattered: transposed.b,
        pitch: if transposed.b { k } else { n },
        base: a_step * depth,
        step: b_step,
    };
    let (stage, steps) = (form.stage(transposed), k / depth);
    let mut t = String::new();
    line!(t, ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 shm[];");
    let params: Vec<String> = places(epilogue).map(|(name, _)| format!(".param .u64 {name}")).collect();
    line!(t, ".visible .entry matmul({})", params.join(", "));
    line!(t, ".reqntid {}, 1, 1\n.maxnreg {REGISTERS}\n{{", form.threads());
    line!(t, ".reg .pred %p, %more; .reg .b32 %r<8>; .reg .b64 %d<2>; .reg .b32 %t, %shm, %first_a, %first_b;");
    line!(t, ".reg .b64 %from_a, %from_b, %out; .reg .b32 %to_a, %to_b, %into_a, %into_b, %read_a, %read_b;");
    line!(t, ".reg .b32 %down, %across, %own_a, %own_b, %write, %read, %step, %fetched;");
    line!(t, ".reg .f32 %scale; .reg .b64 %bias;");
    line!(t, ".reg .f32 %c<{}>; .reg .f32 %a<{}>; .reg .f32 %b<{}>;", DOWN * ACROSS, 2 * DOWN, 2 * ACROSS);
    begin(&mut t, product, form);
    line!(
        t,
        "mad.lo.u32 %own_a, %down, 4, %shm; mad.lo.u32 %own_b, %across, 4, %shm; add.u32 %own_b, %own_b, {};",
        b.base
    );
    a.begin(&mut t);
    b.begin(&mut t);
    for at in 0..DOWN * ACROSS {
        line!(t, "mov.f32 %c{at}, 0f00000000;");
    }
    for s in 0..stages - 1 {
        line!(t, "setp.lt.u32 %more, {s}, {steps};");
        line!(t, "add.u32 %into_a, %to_a, {0}; add.u32 %into_b, %to_b, {0};", s * stage);
        a.fetch(&mut t, form);
        b.fetch(&mut t, form);
        line!(t, "cp.async.commit_group;");
    }
    line!(t, "mov.u32 %write, {}; mov.u32 %read, 0; mov.u32 %step, 0;", (stages - 1) * stage);
    line!(t, "mov.u32 %read_a, %own_a; mov.u32 %read_b, %own_b; cp.async.wait_group {}; bar.sync 0;", stages - 2);
    let load = |t: &mut String, d: usize, half: usize| {
        a.load(t, d, half, DOWN, WARP[0]);
        b.load(t, d, half, ACROSS, WARP[1]);
    };
    load(&mut t, 0, 0);
    line!(t, "LOOP: add.u32 %fetched, %step, {}; setp.lt.u32 %more, %fetched, {steps};", stages - 1);
    line!(t, "add.u32 %into_a, %to_a, %write; add.u32 %into_b, %to_b, %write;");
    for d in 0..depth {
        let half = d % 2;
        if d + 1 == depth {
            // The next stage is there, and everybody has read the last of this one.
            line!(t, "add.u32 %step, %step, 1; mov.u32 %write, %read; add.u32 %read, %read, {stage};");
            line!(t, "setp.eq.u32 %p, %read, {}; @%p mov.u32 %read, 0;", stages * stage);
            line!(t, "add.u32 %read_a, %own_a, %read; add.u32 %read_b, %own_b, %read;");
            line!(t, "cp.async.wait_group {}; bar.sync 0;", stages - 2);
        }
        load(&mut t, (d + 1) % depth, 1 - half);
        if d == 0 {
            a.fetch(&mut t, form);
            b.fetch(&mut t, form);
            line!(t, "cp.async.commit_group;");
        }
        multiply(&mut t, half);
    }
    line!(t, "setp.lt.u32 %p, %step, {steps}; @%p bra LOOP;");
    finish(&mut t, epilogue);
    for (i, j) in (0..DOWN).flat_map(|i| (0..ACROSS).step_by(4).map(move |j| (i, j))) {
        let c = i * ACROSS + j;
        let place = (i / 4 * WARP[0] * 4 + i % 4) * n * 4 + j / 4 * WARP[1] * 16;
        line!(t, "st.global.v4.f32 [%out+{place}], {{%c{c}, %c{}, %c{}, %c{}}};", c + 1, c + 2, c + 3);
    }
    line!(t, "cp.async.wait_all; ret;\n}}");
    t
}

/// The block's tile, and the thread's place in it and in the result.
fn begin(t: &mut String, product: Product, form: Form) {
    let Product { sizes: [m, n, k], .. } = product;
    let Form { rows, columns, together, .. } = form;
    let (tiles_down, tiles_across) = (m / rows, n / columns);
    line!(t, "mov.u32 %t, %tid.x; mov.u32 %shm, shm;");
    // Tiles of some rows go down first.
    let group = together.min(tiles_down);
    line!(t, "mov.u32 %r1, %ctaid.x; div.u32 %r2, %r1, {0}; rem.u32 %r1, %r1, {0};", group * tiles_across);
    line!(t, "mul.lo.u32 %r2, %r2, {group}; sub.u32 %r3, {tiles_down}, %r2; min.u32 %r3, %r3, {group};");
    line!(t, "rem.u32 %r4, %r1, %r3; add.u32 %r2, %r2, %r4; div.u32 %r1, %r1, %r3;");
    line!(t, "mul.lo.u32 %first_a, %r2, {rows}; mul.lo.u32 %first_b, %r1, {columns};");
    line!(t, "mov.u32 %r1, %ctaid.y; cvt.u64.u32 %d1, %r1;");
    for (param, name, elements) in [("p_a", "from_a", m * k), ("p_b", "from_b", k * n), ("p_out", "out", m * n)] {
        line!(t, "ld.param.u64 %{name}, [{param}]; cvta.to.global.u64 %{name}, %{name};");
        line!(t, "mad.lo.s64 %{name}, %d1, {}, %{name};", elements * 4);
    }
    // A warp is 4 down and 8 across, with one bit of both among the lowest two of its lanes: shared memory gives 16 bytes each to 16 lanes at
    // once where every second one, or every second pair, wants the same.
    line!(t, "shr.u32 %r1, %t, 5; rem.u32 %r2, %r1, {0}; div.u32 %r1, %r1, {0};", columns / (WARP[1] * ACROSS));
    line!(t, "and.b32 %across, %t, 1; bfe.u32 %r3, %t, 2, 2; mad.lo.u32 %across, %r3, 2, %across;");
    line!(t, "bfe.u32 %down, %t, 1, 1; bfe.u32 %r3, %t, 4, 1; mad.lo.u32 %down, %r3, 2, %down;");
    line!(t, "mul.lo.u32 %r1, %r1, {}; mad.lo.u32 %down, %down, 4, %r1;", WARP[0] * DOWN);
    line!(t, "mul.lo.u32 %r2, %r2, {}; mad.lo.u32 %across, %across, 4, %r2;", WARP[1] * ACROSS);
    line!(t, "add.u32 %r1, %first_a, %down; add.u32 %r2, %first_b, %across;");
    line!(t, "mad.wide.u32 %out, %r1, {}, %out; mad.wide.u32 %out, %r2, 4, %out;", n * 4);
    if product.steps.bias {
        line!(t, "ld.param.u64 %bias, [p_bias]; cvta.to.global.u64 %bias, %bias; mad.wide.u32 %bias, %r2, 4, %bias;");
    }
}

/// What becomes of the sums before they are stored, when nothing else needs registers.
fn finish(t: &mut String, steps: Steps) {
    if steps.scaled {
        line!(
            t,
            "ld.param.u64 %d0, [p_sizes]; cvta.to.global.u64 %d0, %d0; ld.global.f32 %scale, [%d0+{}];",
            SCALE * 4
        );
    }
    for j in 0..ACROSS {
        if steps.bias {
            let place = (j / 4 * WARP[1] * 4 + j % 4) * 4;
            line!(t, "ld.global.f32 %b{j}, [%bias+{place}];");
        }
        for i in 0..DOWN {
            steps.instructions(t, &format!("%c{}", i * ACROSS + j), &format!("%b{j}"));
        }
    }
}

/// One step of `k`: rows back and forth, so that the next product has a factor of this one.
fn multiply(t: &mut String, half: usize) {
    for i in 0..DOWN {
        for j in 0..ACROSS {
            let j = if i % 2 == 0 { j } else { ACROSS - 1 - j };
            let c = i * ACROSS + j;
            line!(t, "fma.rn.f32 %c{c}, %a{}, %b{}, %c{c};", half * DOWN + i, half * ACROSS + j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assembler_takes_every_form() {
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            for (scaled, bias, activation) in
                [(false, false, Activation::None), (true, true, Activation::Relu), (false, true, Activation::None)]
            {
                let steps = Steps { scaled, bias, activation };
                let product = Product { sizes: [256, 512, 64], batches: 2, transposed: Transposed { a, b }, steps };
                let variants = variants(&DataType::F32, product);
                assert_eq!(variants.len(), 2);
                crate::hopper::assemble("ffma", &variants);
            }
        }
    }

    #[test]
    fn tiles_fill_the_matrices() {
        let of = |sizes| Product { sizes, batches: 1, transposed: Transposed::default(), steps: Steps::default() };
        let count = |sizes| variants(&DataType::F32, of(sizes)).len();
        assert_eq!(count([128, 128, 8]), 1);
        assert_eq!(count([256, 256, 16]), 2);
        assert_eq!(count([128, 256, 12]), 0);
        assert_eq!(count([130, 256, 16]), 0);
        assert_eq!(count([128, 64, 16]), 0);
        assert_eq!(variants(&DataType::F64, of([256; 3])).len(), 0);
        let steps = Steps { activation: Activation::Gelu, ..Steps::default() };
        assert_eq!(variants(&DataType::F32, Product { steps, ..of([256; 3]) }).len(), 0);
    }
}
