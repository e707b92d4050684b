//! Attention: `softmax(q·kᵀ / sqrt(dim))·v` in one kernel, without the table of scores in memory.
//!
//! **Order.** Keys are taken in blocks of 64. A score is a chain of `fma` over ascending positions of its rows, from 0, times the scale. Each
//! block makes the largest score so far; sums are shrunk by `exp(before - now)`, and the block's weights `exp(score - now)` are added: to
//! the divisor runs of 4 from first to last and the 16 runs by halves, to the results by `fma` over ascending keys. At the end the results
//! are multiplied by `1 / divisor`. f16 is widened to f32 and rounded at the end; on matrix fragments the order is the device's, and weights are
//! rounded to f16.

mod fragments;
mod lanes;
mod tiles;

use vyre::expression::Term;
use vyre::{DataType, Error};

use crate::launch::{MOST, Traits, engine, extents, grid, misfit, mistyped, room};
use crate::output::Output;

/// Keys that are taken at a time.
const KEYS: usize = 64;
/// The longest rows.
const MOST_DIM: usize = 128;

/// `q` is `[.., m, dim]`, `k` and `v` are `[.., n, dim]`. Causal: query `i` looks at the keys up to `i`.
pub(crate) fn attention(q: &Term, k: &Term, v: &Term, causal: bool) -> Result<Output, Error> {
    let ty = q.data_type().clone();
    if !matches!(ty, DataType::F32 | DataType::F16) || [k, v].iter().any(|other| *other.data_type() != ty) {
        return Err(mistyped(format!(
            "attention is of f32 or of f16, not of {ty}, {} and {}",
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
    let (q, k, v) = (q.evaluate()?, k.evaluate()?, v.evaluate()?);
    let form = Form::of(&Traits::of(&engine), &ty, *dim);
    let key = format!("attention {ty} {dim} {causal} {form:?}");
    let kernel = engine.kernel_from(&key, || {
        crate::launch::parsed(&match form {
            Form::Lanes(lanes) => lanes::source(&ty, *dim, causal, lanes),
            Form::Tiles => tiles::source(&ty, *dim, causal),
            Form::Fragments => fragments::source(*dim, causal),
        })
    })?;
    let groups = batches * m.div_ceil(form.rows(*dim));
    let scale = (1.0 / (*dim as f64).sqrt()) as f32;
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
    Tiles,
    /// Subgroups multiply matrix fragments.
    Fragments,
}

impl Form {
    fn of(traits: &Traits, ty: &DataType, dim: usize) -> Form {
        if traits.subgroups_on_gpu() {
            if *ty == DataType::F16
                && traits.fragments
                && fragments::suits(dim)
                && traits.memory >= fragments::bytes(dim)
            {
                return Form::Fragments;
            }
            if tiles::suits(dim) && traits.memory >= tiles::bytes(dim) {
                return Form::Tiles;
            }
        }
        let lanes = [32, 16, 8, 4].into_iter().find(|lanes| lanes::bytes(dim, *lanes) <= traits.memory);
        Form::Lanes(lanes.unwrap_or(1))
    }

    /// Queries of a workgroup.
    fn rows(self, dim: usize) -> usize {
        match self {
            Form::Lanes(lanes) => lanes,
            Form::Tiles => tiles::rows(dim),
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
