//! Attention: `softmax(q·kᵀ / sqrt(dim))·v` in one kernel, without the table of scores in memory.
//!
//! **Order.** Keys are taken in blocks of 64. A score is a chain of `fma` over ascending positions of its rows, from 0, times the scale. Each
//! block makes the largest score so far; sums are shrunk by `exp(before - now)`, and the block's weights `exp(score - now)` are added: to
//! the divisor runs of 4 from first to last and the 16 runs by halves, to the results by `fma` over ascending keys. At the end the results
//! are multiplied by `1 / divisor`. f16 is widened to f32 and rounded at the end; on matrix fragments and with `wgmma` the order is the device's,
//! and weights are rounded to f16.

mod fragments;
mod lanes;
mod tiles;
mod wgmma;

use half::bf16;
use vyre::expression::Term;
use vyre::{Array, DataType, Error};

use crate::launch::{
    MOST, Traits, as_a_whole, count, engine, extents, grid, misfit, mistyped, room, runnable, with_variants,
};
use crate::matrix::{elements, stored_type};
use crate::output::Output;

/// Keys that are taken at a time.
const KEYS: usize = 64;
/// The longest rows.
const MOST_DIM: usize = 128;
/// Tables of so many scores are worth a kernel of their own for their sizes.
const DIRECT: usize = 1 << 20;

/// [`Ops::attention`](crate::Ops::attention) of bf16: computed in f32 and rounded once; on matrix fragments weights are rounded, too.
pub fn attention_bf16(q: &Array<bf16>, k: &Array<bf16>, v: &Array<bf16>, causal: bool) -> Result<Array<bf16>, Error> {
    attention(q.lazy().term(), k.lazy().term(), v.lazy().term(), causal)?.typed()
}

/// `q` is `[.., m, dim]`, `k` and `v` are `[.., n, dim]`. Causal: query `i` looks at the keys up to `i`.
pub(crate) fn attention(q: &Term, k: &Term, v: &Term, causal: bool) -> Result<Output, Error> {
    let steps = |term: &Term| term.shape().map_or(1, |shape| shape.extents().iter().rev().nth(1).copied().unwrap_or(1));
    let op = || format!("attention {causal}");
    // A multiplication takes a fraction of an item's time.
    let items = count(&[q]).saturating_mul(steps(k)) / 32;
    as_a_whole(op, &[q, k, v], items, || attention_here(q, k, v, causal))
}

fn attention_here(q: &Term, k: &Term, v: &Term, causal: bool) -> Result<Output, Error> {
    let mut ty = stored_type(q);
    if [k, v].iter().any(|other| stored_type(other) != ty) {
        ty = q.data_type().clone();
    }
    let fits = |other: &&Term| stored_type(other) == ty || *other.data_type() == ty;
    if !matches!(ty, DataType::F32 | DataType::F16 | DataType::BF16) || ![k, v].iter().all(fits) {
        return Err(mistyped(format!(
            "attention is of f32, of f16 or of bf16, not of {ty}, {} and {}",
            k.data_type(),
            v.data_type()
        )));
    }
    let (shape, keys, values) = (extents(q)?, extents(k)?, extents(v)?);
    let ([batch @ .., m, dim], [batch_k @ .., n, dim_k]) = (&shape[..], &keys[..]) else {
        return Err(misfit("attention is of arrays with two axes at least"));
    };
    if batch != batch_k || dim != dim_k || keys != values {
        return Err(misfit(format!("queries of {shape:?}, keys of {keys:?} and values of {values:?} don't fit")));
    }
    if *dim > MOST_DIM {
        return Err(misfit(format!("rows of {dim} are longer than attention takes, which is {MOST_DIM}")));
    }
    let batches: usize = batch.iter().product();
    let most = batches * (*m).max(*n) * dim;
    if most > MOST {
        return Err(misfit(format!("{most} elements are more than are taken at once, which is {MOST}")));
    }
    let engine = engine(q)?;
    let mut out = room(&engine, &ty, batches * m * dim);
    if batches * m * dim == 0 || *n == 0 {
        return Ok(Output { buffer: out, ty, shape });
    }
    let (q, k, v) = (elements(q, &ty)?, elements(k, &ty)?, elements(v, &ty)?);
    let form = Form::of(&Traits::of(&engine), &ty, *dim, batches * m);
    let program = || {
        crate::launch::parsed(&match form {
            Form::Lanes(lanes) => lanes::source(&ty, *dim, causal, lanes),
            Form::Tiles(tile) => tiles::source(&ty, *dim, causal, tile),
            Form::Fragments => fragments::source(&ty, *dim, causal),
        })
    };
    let scale = (1.0 / (*dim as f64).sqrt()) as f32;
    let key = format!("attention {ty} {dim} {causal} {form:?}");
    let kernel = match matches!(form, Form::Fragments) && batches * m * n >= DIRECT {
        true => engine.kernel_from_with(&format!("{key} {batches} {m} {n}"), || {
            let sizes = wgmma::Sizes { batches, m: *m, n: *n, dim: *dim };
            let variants = runnable(&engine, wgmma::variants(&ty, sizes, causal, scale));
            Ok((program()?, with_variants(variants)))
        })?,
        false => engine.kernel_from(&key, program)?,
    };
    let groups = batches * m.div_ceil(form.rows());
    let sizes = [*m as u32, *n as u32, scale.to_bits(), groups as u32];
    let call = kernel.bind("q", &q).bind("k", &k).bind("v", &v).value("sizes", &sizes).bind("out", &mut out);
    call.grid(grid(groups)).overwrites().launch()?;
    Ok(Output { buffer: out, ty, shape: shape.clone() })
}

/// How the kernel is written.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// An invocation has a query; so many of them are a workgroup.
    Lanes(usize),
    /// A workgroup multiplies tiles.
    Tiles(tiles::Tile),
    /// Subgroups multiply matrix fragments.
    Fragments,
}

impl Form {
    /// For so many queries of all batches.
    fn of(traits: &Traits, ty: &DataType, dim: usize, queries: usize) -> Form {
        if traits.subgroups_on_gpu() {
            if matches!(ty, DataType::F16 | DataType::BF16)
                && traits.fragments
                && fragments::suits(dim)
                && traits.memory >= fragments::bytes(dim)
            {
                return Form::Fragments;
            }
            if *ty != DataType::BF16
                && let Some(tile) = tiles::Tile::of(dim, queries, traits.memory)
            {
                return Form::Tiles(tile);
            }
        }
        let lanes = [32, 16, 8, 4].into_iter().find(|lanes| lanes::bytes(dim, *lanes) <= traits.memory);
        Form::Lanes(lanes.unwrap_or(1))
    }

    /// Queries of a workgroup.
    fn rows(self) -> usize {
        match self {
            Form::Lanes(lanes) => lanes,
            Form::Tiles(tile) => tile.rows,
            Form::Fragments => fragments::ROWS,
        }
    }
}

/// Where a workgroup of so many queries is, and how far it has to look.
fn begin(rows: usize, dim: usize, causal: bool) -> String {
    format!(
        "{}let l = local_index;\nlet m = sizes[0];\nlet n = sizes[1];\nlet scale = bitcast<f32>(sizes[2]);\nif group < sizes[3] {{\n\
         let tiles = (m + {}) / {rows};\nlet batch = group / tiles;\nlet first_row = group % tiles * {rows};\nlet row_start = batch * m;\n\
         let key_start = batch * n * {dim};\nlet end = {};\n",
        crate::launch::GROUP,
        rows - 1,
        if causal { format!("min(n, first_row + {rows})") } else { "n".to_owned() }
    )
}
