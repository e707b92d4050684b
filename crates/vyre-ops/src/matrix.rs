//! Products of matrices, batched, with transposes.
//!
//! **Order.** Each element is a chain of `fma(a, b, sum)` from 0 over ascending `k`, whatever the kernel's form, so it is the same everywhere.
//! f16 and bf16 are added up in f32 and rounded once; on matrix fragments in the order of the fragments, which may differ in the last bit.
//! An [`Epilogue`] is computed of the sums before that.

mod epilogue;
mod ffma;
mod fragments;
#[cfg(target_arch = "x86_64")]
mod host;
mod panels;
mod tiles;
mod wgmma;

use half::bf16;
use vyre::expression::Term;
use vyre::variant::{Blocks, Variant};
use vyre::{Array, Buffer, DataType, Engine, Error};

use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, engine, extents, grid, is_float, misfit, misfit_with, mistyped, room, runnable,
    valid, with_function, with_variants,
};
use crate::layout::transpose;
use crate::output::Output;
use crate::tuning::{Axis, Contents, Sample};
use epilogue::Steps;
pub use epilogue::{Activation, Epilogue};

/// Which factors are given transposed: `[.., k, m]` instead of `[.., m, k]`, and `[.., n, k]` instead of `[.., k, n]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transposed {
    /// The left factor.
    pub a: bool,
    /// The right factor.
    pub b: bool,
}

/// What may be tuned, see [`panels`], [`tiles`], [`ffma`] and [`wgmma`].
pub(crate) const SPACE: &[Axis] = &[
    Axis {
        name: "columns x rows of an invocation",
        on: "processors",
        values: &["32 x 10", "32 x 6", "32 x 8", "32 x 12", "64 x 4", "64 x 5", "64 x 6", "16 x 12"],
    },
    Axis { name: "tile x depth", on: "GPUs", values: &["128 x 8", "128 x 16", "64 x 16"] },
    Axis { name: "variant of f32", on: "sm_90a", values: &["tiles", "ffma 128x256", "ffma 128x128"] },
    Axis {
        name: "variant of f16 and bf16",
        on: "sm_90a",
        values: &["fragments or tiles", "wgmma 128x256", "wgmma 128x128"],
    },
];

/// Squares, and factors that are long one way.
pub(crate) fn samples() -> Vec<Sample> {
    let of = |ty: DataType, [m, n, k]: [usize; 3]| {
        let factors = [(ty.clone(), vec![m, k]), (ty, vec![k, n])];
        Sample::of(factors.map(|(ty, shape)| (ty, shape, Contents::Random)).into())
    };
    let shapes = [[256; 3], [512; 3], [1024; 3], [2048; 3], [4096, 256, 256], [256, 256, 4096]];
    let mut samples: Vec<Sample> = shapes.into_iter().map(|sizes| of(DataType::F32, sizes)).collect();
    samples.extend([[512; 3], [2048; 3]].into_iter().map(|sizes| of(DataType::F16, sizes)));
    samples.push(of(DataType::F64, [512; 3]));
    samples
}

/// The same with a bias.
pub(crate) fn samples_with_bias() -> Vec<Sample> {
    let mut samples = samples();
    for sample in &mut samples {
        let (ty, shape, _) = &sample.inputs[1];
        let bias = (ty.clone(), vec![shape[1]], Contents::Random);
        sample.inputs.push(bias);
    }
    samples
}

/// Products of so many products are worth a kernel of their own for their sizes.
const DIRECT: usize = 1 << 24;

/// The product of matrices of bf16, `[.., m, k]` by `[.., k, n]`, or transposed; added up in f32 and rounded once.
pub fn matmul_bf16(a: &Array<bf16>, b: &Array<bf16>, transposed: Transposed) -> Result<Array<bf16>, Error> {
    matmul_bf16_with(a, b, transposed, &Epilogue::default())
}

/// [`matmul_bf16`] with an epilogue, which is computed in f32.
pub fn matmul_bf16_with(
    a: &Array<bf16>,
    b: &Array<bf16>,
    transposed: Transposed,
    epilogue: &Epilogue,
) -> Result<Array<bf16>, Error> {
    matmul(a.lazy().term(), b.lazy().term(), transposed, epilogue)?.typed()
}

/// The type that a term has in memory, where that is a float of its own.
pub(crate) fn stored_type(term: &Term) -> DataType {
    match term.stored() {
        Some((_, DataType::BF16)) => DataType::BF16,
        _ => term.data_type().clone(),
    }
}

/// The elements of a factor as they are stored.
pub(crate) fn elements(term: &Term, ty: &DataType) -> Result<Buffer, Error> {
    match term.stored() {
        Some((buffer, stored)) if stored == ty => Ok(buffer.clone()),
        _ => term.evaluate(),
    }
}

pub(crate) fn matmul(a: &Term, b: &Term, transposed: Transposed, epilogue: &Epilogue) -> Result<Output, Error> {
    let (mut ty, other) = (stored_type(a), stored_type(b));
    if ty != other {
        ty = a.data_type().clone();
    }
    if (ty != other && ty != *b.data_type()) || !(is_float(&ty) || ty == DataType::BF16) {
        return Err(mistyped(format!(
            "products of matrices are of floats of one type, not of {ty} and {}",
            b.data_type()
        )));
    }
    let (left, right) = (extents(a)?, extents(b)?);
    let ([batch_a @ .., a0, a1], [batch_b @ .., b0, b1]) = (&left[..], &right[..]) else {
        return Err(misfit("matrices have two axes at least"));
    };
    let (m, k) = if transposed.a { (*a1, *a0) } else { (*a0, *a1) };
    let (depth, n) = if transposed.b { (*b1, *b0) } else { (*b0, *b1) };
    let batches: usize = batch_a.iter().product();
    if k != depth || batch_a != batch_b {
        let message = format!("a product of {left:?} and {right:?} does not fit");
        return Err(misfit_with(message, "Give [.., m, k] and [.., k, n], with the same axes in front."));
    }
    let mut shape = batch_a.to_vec();
    shape.extend([m, n]);
    let engine = engine(a)?;
    let most = [batches * m * k, batches * k * n, batches * m * n].into_iter().max().unwrap_or(0);
    if most > MOST {
        return Err(misfit(format!("a matrix of {most} elements is more than are taken at once, which is {MOST}")));
    }
    let bias = epilogue.bias_of(&ty, n)?;
    let steps = epilogue.steps();
    if batches * m * n == 0 || k == 0 && steps.is_none() {
        return Ok(Output { buffer: room(&engine, &ty, batches * m * n), ty, shape });
    }
    if k == 0 {
        // Sums of nothing are zeros, as those of one product of zeros are.
        let zeros = |rows: usize, columns: usize| {
            let shape = [batch_a, &[rows, columns]].concat();
            Term::array(room(&engine, &ty, batches * rows * columns), ty.clone(), (&shape[..]).into())
        };
        return matmul(&zeros(m, 1), &zeros(1, n), Transposed::default(), epilogue);
    }
    let product = wgmma::Product { sizes: [m, n, k], batches, transposed, steps };
    // A multiplication takes a fraction of an item's time.
    let items = batches.saturating_mul(m * n).saturating_mul(k) / 64;
    let terms: Vec<&Term> = [a, b].into_iter().chain(&epilogue.bias).collect();
    let buffer = as_a_whole(
        || format!("matmul {}", if steps.is_none() { String::new() } else { format!("{steps:?}") }),
        &terms,
        items,
        || match is_done_after(&engine, &ty, product) {
            true => {
                let without = wgmma::Product { steps: Steps::default(), ..product };
                let sums = multiplied(&engine, [a, b], &ty, without, Told::default())?;
                epilogue.applied(&Term::array(sums, ty.clone(), (&shape[..]).into())).evaluate()
            }
            false => {
                let told = Told { scale: epilogue.scale_words(&ty), bias: bias.as_ref() };
                multiplied(&engine, [a, b], &ty, product, told)
            }
        },
    )?;
    Ok(Output { buffer, ty, shape })
}

/// An epilogue costs less as a pass of its own, which gives the same bits, where what is fastest for the product has none: the function of
/// processors, and the variants of f32 on GPUs, which have no `tanh`.
fn is_done_after(engine: &Engine, ty: &DataType, product: wgmma::Product) -> bool {
    let wgmma::Product { sizes: [m, n, k], batches, transposed, steps } = product;
    let has_function = || panels::is_worth([m, n, k], batches) && panels::function(ty, transposed).is_some();
    let is_long = steps.activation == Activation::Gelu && m * n * k * batches >= DIRECT;
    !steps.is_none() && *ty == DataType::F32 && if Traits::of(engine).is_gpu { is_long } else { has_function() }
}

/// What a launch is told of an epilogue.
#[derive(Clone, Copy, Default)]
struct Told<'a> {
    scale: [u32; 2],
    bias: Option<&'a Buffer>,
}

fn multiplied(
    engine: &Engine,
    [a, b]: [&Term; 2],
    ty: &DataType,
    product: wgmma::Product,
    told: Told<'_>,
) -> Result<Buffer, Error> {
    let wgmma::Product { sizes: [m, n, k], batches, transposed, steps } = product;
    let mut out = room(engine, ty, batches * m * n);
    let traits = Traits::of(engine);
    let fits =
        m.is_multiple_of(fragments::BLOCK) && n.is_multiple_of(fragments::BLOCK) && k.is_multiple_of(fragments::DEPTH);
    let is_half = matches!(ty, DataType::F16 | DataType::BF16);
    // Where a device takes one of these, nothing has to be transposed first.
    let as_fragments = Transposed { a: false, b: true };
    let key = format!("{ty} {:?} {batches} {steps:?}", product.sizes);
    let mut direct = None;
    if is_half && traits.is_gpu && transposed != as_fragments && m * n * k >= DIRECT {
        let kernel = engine.kernel_from_with(&format!("matmul wgmma {key} {transposed:?}"), || {
            let cut = tiles::Cut::of(ty, [m, n, k], transposed);
            let places = wgmma::Places { out: 3, scale: (2, epilogue::SCALE * 4), bias: 4 };
            let variants = runnable(engine, wgmma::variants(ty, product, places));
            Ok((tiles::program(ty, transposed, cut, steps)?, with_variants(variants)))
        })?;
        direct = Some(kernel).filter(|kernel| kernel.has_variants());
    }
    let movable = *ty == DataType::F16 || transposed == as_fragments;
    if direct.is_none() && is_half && movable && traits.is_gpu && traits.fragments && fits && batches <= 65_535 {
        // Fragments want both factors with `k` along their rows.
        let a = if transposed.a { transpose(a)?.buffer } else { elements(a, ty)? };
        let b = if transposed.b { elements(b, ty)? } else { transpose(b)?.buffer };
        let sizes = [m, n, k].map(|size| size as u32);
        let kernel = engine.kernel_from_with(&format!("matmul fragments {key}"), || {
            let product = wgmma::Product { transposed: as_fragments, ..product };
            let places = wgmma::Places { out: 2, scale: (3, 0), bias: 4 };
            let variants = runnable(engine, wgmma::variants(ty, product, places));
            Ok((fragments::program(ty, sizes, steps), with_variants(variants)))
        })?;
        let blocks = m / fragments::BLOCK * (n / fragments::BLOCK);
        let mut call =
            kernel.bind("a", &a).bind("b", &b).bind("out", &mut out).grid([blocks as u32, batches as u32, 1]);
        if !steps.is_none() {
            call = call.value("told", &told.scale[0]);
        }
        if let Some(bias) = told.bias {
            call = call.bind("bias", bias);
        }
        call.overwrites().launch()?;
        return Ok(out);
    }
    let (a, mut b) = (elements(a, ty)?, elements(b, ty)?);
    // Tiles of rows that processors take before they go on to the next columns.
    let mut near = 0;
    let (kernel, groups) = if traits.is_gpu {
        let cut = tiles::Cut::of(ty, [m, n, k], transposed);
        let groups = |cut: tiles::Cut| batches * m.div_ceil(cut.tile) * n.div_ceil(cut.tile);
        let others = tiles::Cut::others(ty, [m, n, k], transposed);
        let kernel = match direct {
            Some(kernel) => kernel,
            None if m * n * k * batches < DIRECT || others.is_empty() => {
                tiles::kernel(engine, ty, transposed, cut, steps)?
            }
            None => engine.kernel_from_with(&format!("matmul tiles {key} {transposed:?}"), || {
                let mut forms = Vec::new();
                for other in others {
                    let program = valid(&tiles::program(ty, transposed, other, steps)?)?;
                    let blocks = Blocks::Fixed(grid(groups(other)));
                    forms.push(Variant::program(format!("{} x {}", other.tile, other.depth), &program, blocks));
                }
                forms.extend(runnable(engine, ffma::variants(ty, product)));
                Ok((tiles::program(ty, transposed, cut, steps)?, with_variants(forms)))
            })?,
        };
        (kernel, groups(cut))
    } else {
        let in_panels = panels::is_worth([m, n, k], batches);
        if in_panels {
            b = panels::packed(engine, &b, ty, [n, k], batches, transposed)?;
        }
        let known = Some([m, n, k, batches]).filter(|_| m * n * k * batches >= DIRECT);
        let program = |form: (usize, usize)| panels::program(ty, transposed, form, in_panels, known, steps);
        let own = panels::default_form(in_panels);
        let function = || panels::function(ty, transposed).filter(|_| in_panels && steps.is_none());
        near = panels::tiles_near(ty, k, own.1);
        let kernel = match known.is_some() {
            true => engine.kernel_from_with(&format!("matmul lanes {key} {transposed:?} {in_panels}"), || {
                let mut others = with_function(engine, function()).variants;
                // Where there is a function, no time goes to other forms of the kernel.
                let has_function = !others.is_empty();
                for form in panels::forms(in_panels).filter(|form| **form != own && !has_function) {
                    let blocks = Blocks::Fixed(grid(panels::groups([m, n], batches, *form)));
                    let name = format!("{} x {}", form.0, form.1);
                    others.push(Variant::program(name, &valid(&program(*form)?)?, blocks));
                }
                Ok((program(own)?, with_variants(others)))
            })?,
            false => engine
                .kernel_from_with(&format!("matmul lanes {ty} {transposed:?} {in_panels} {steps:?}"), || {
                    Ok((program(own)?, with_function(engine, function())))
                })?,
        };
        (kernel, panels::groups([m, n], batches, own))
    };
    let [m, n, k, batches, near] = [m, n, k, batches, near].map(|size| size as u32);
    let sizes = [m, n, k, batches, near, told.scale[0], told.scale[1]];
    let mut call = kernel.bind("a", &a).bind("b", &b).value("sizes", &sizes).bind("out", &mut out);
    if let Some(bias) = told.bias {
        call = call.bind("bias", bias);
    }
    call.grid(grid(groups)).overwrites().launch()?;
    Ok(out)
}

fn head(ty: &str) -> String {
    format!("read a: {ty} @0;\nread b: {ty} @1;\nread sizes: u32 @2;\noutput out: {ty} @3;\n")
}

/// Where an element of a factor is, from the start of its matrix.
fn place_a(transposed: Transposed, row: &str, k: &str) -> String {
    if transposed.a { format!("a_start + ({k}) * m + {row}") } else { format!("a_start + ({row}) * depth + {k}") }
}

fn place_b(transposed: Transposed, k: &str, column: &str) -> String {
    if transposed.b { format!("b_start + ({column}) * depth + {k}") } else { format!("b_start + ({k}) * n + {column}") }
}

fn begin(rows: usize, columns: usize) -> String {
    format!(
        "{GROUP}let l = local_index;\nlet m = sizes[0];\nlet n = sizes[1];\nlet depth = sizes[2];\n\
         let tiles_down = (m + {}) / {rows};\nlet tiles_across = (n + {}) / {columns};\n\
         if group < sizes[3] * tiles_down * tiles_across {{\nlet batch = group / (tiles_down * tiles_across);\n\
         let tile = group % (tiles_down * tiles_across);\nlet a_start = batch * m * depth;\nlet b_start = batch * depth * n;\n\
         let out_start = batch * m * n;\n",
        rows - 1,
        columns - 1
    )
}

/// The type that products are added up in.
fn sums_of(ty: &DataType) -> DataType {
    if matches!(ty, DataType::F16 | DataType::BF16) { DataType::F32 } else { ty.clone() }
}

/// An element in the type of the sums.
fn widened(ty: &DataType, element: String) -> String {
    if *ty == DataType::F16 { format!("cast<f32>({element})") } else { element }
}

/// A sum in the type of the elements.
fn narrowed(ty: &DataType, sum: &str) -> String {
    if *ty == DataType::F16 { format!("cast<f16>({sum})") } else { sum.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_says_what_is_tried() {
        let lanes: Vec<String> = panels::FORMS.iter().map(|(columns, rows)| format!("{columns} x {rows}")).collect();
        assert_eq!(SPACE[0].values, lanes);
        let own = tiles::Cut::of(&DataType::F32, [256; 3], Transposed::default());
        let cuts = [vec![own], tiles::Cut::others(&DataType::F32, [256; 3], Transposed::default())].concat();
        let cuts: Vec<String> = cuts.iter().map(|cut| format!("{} x {}", cut.tile, cut.depth)).collect();
        assert_eq!(SPACE[1].values, cuts);
    }
}
