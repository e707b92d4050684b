//! Convolutions of images: the windows of an image are the columns of a matrix, which a product of matrices weighs. On devices with many
//! invocations f32 is multiplied without writing that matrix to memory.
//!
//! **Order.** That of products of matrices: `fma` over channels, then rows, then columns of the window, from 0.

mod tiles;

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::ir::Literal;
use vyre::{Buffer, DataType, Error};

use crate::launch::{
    MOST, Traits, as_a_whole, count, extents, grid, is_float, magnitude, misfit, misfit_with, mistyped, room,
};
use crate::layout::permute;
use crate::matrix::{Epilogue, Transposed, matmul};
use crate::output::Output;

/// The most zeros around an image.
const MOST_PADDING: usize = 1 << 20;

/// What is convolved with what.
#[derive(Debug)]
struct Sizes {
    images: usize,
    channels: usize,
    /// Rows and columns of an image, of a window, and of a result.
    image: [usize; 2],
    kernel: [usize; 2],
    result: [usize; 2],
    outputs: usize,
    stride: usize,
    padding: usize,
}

impl Sizes {
    fn window(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn places(&self) -> usize {
        self.images * self.result[0] * self.result[1]
    }
}

/// `x` is `[n, channels, h, w]` or `[h, w]`, weights are `[outputs, channels, kh, kw]` or `[kh, kw]`. Windows step by `stride`, with so many zeros
/// around the image; they are not mirrored, as everywhere in this field.
pub(crate) fn convolve(x: &Term, weights: &Term, stride: usize, padding: usize) -> Result<Output, Error> {
    let op = || format!("convolution of 2^{} by {stride}", magnitude(count(&[weights])));
    as_a_whole(op, &[x, weights], count(&[x]), || convolve_here(x, weights, stride, padding))
}

fn convolve_here(x: &Term, weights: &Term, stride: usize, padding: usize) -> Result<Output, Error> {
    let ty = x.data_type().clone();
    if !is_float(&ty) || *weights.data_type() != ty {
        return Err(mistyped(format!(
            "images and weights are of one type of floats, not of {ty} and {}",
            weights.data_type()
        )));
    }
    let (own, window) = (extents(x)?, extents(weights)?);
    let (images, window) = match (&own[..], &window[..]) {
        (&[h, w], &[kh, kw]) => ([1, 1, h, w], [1, 1, kh, kw]),
        (&[n, c, h, w], &[o, channels, kh, kw]) if c == channels => ([n, c, h, w], [o, c, kh, kw]),
        _ => {
            let message = format!(
                "an image of {own:?} and weights of {window:?} don't fit: they are [h, w] and [kh, kw], or [n, c, h, w] and [o, c, kh, kw]"
            );
            return Err(misfit(message));
        }
    };
    let ([n, c, h, w], [o, _, kh, kw]) = (images, window);
    if stride == 0 || kh * kw == 0 || padding > MOST_PADDING {
        return Err(misfit_with(
            format!("a window of {kh} x {kw} can't step by {stride} with {padding} around the image"),
            format!("Windows have one element at least and step by 1 or more; padding is up to {MOST_PADDING}."),
        ));
    }
    let steps = |side: usize, window: usize| (side + 2 * padding).checked_sub(window).map(|room| room / stride + 1);
    let (Some(down), Some(across)) = (steps(h, kh), steps(w, kw)) else {
        return Err(misfit_with(
            format!("a window of {kh} x {kw} is larger than an image of {h} x {w} with {padding} around it"),
            "Give a smaller window, or more padding.",
        ));
    };
    let shape = if own.len() == 2 { vec![down, across] } else { vec![n, o, down, across] };
    let (depth, places) = (c * kh * kw, n * down * across);
    let columns = depth.checked_mul(places).filter(|all| *all <= MOST);
    let Some(columns) = columns else {
        return Err(misfit(format!(
            "windows of {depth} elements at {places} places are more than are taken at once, which is {MOST}"
        )));
    };
    let fused = Fused::new(&[x])?;
    let engine = fused.engine().clone();
    if columns == 0 || o == 0 || fused.elements() == 0 {
        return Ok(Output { buffer: room(&engine, &ty, shape.iter().product()), ty, shape });
    }
    let sizes = Sizes {
        images: n,
        channels: c,
        image: [h, w],
        kernel: [kh, kw],
        result: [down, across],
        outputs: o,
        stride,
        padding,
    };
    let traits = Traits::of(&engine);
    if ty == DataType::F32 && traits.is_gpu && o * places <= MOST && tiles::suits(&sizes, traits.memory) {
        return Ok(Output { buffer: in_tiles(&fused, weights, &sizes)?, ty, shape });
    }
    let mut made = room(&engine, &ty, columns);
    let (lines, values) = fused.lines("place", "");
    // Numbers that everything is divided by are part of the kernel.
    let key = format!(
        "windows {ty} {images:?} {window:?} {stride} {padding}\n{}{}{lines}{values:?}",
        fused.declarations(0, None),
        fused.uniform_lines()
    );
    let kernel = engine.kernel_from(&key, || {
        let at = fused.bindings();
        let zero = vyre::expression::literal_text(&Literal::zero(&ty).unwrap_or(Literal::U32(0)));
        let mut text = fused.declarations(0, None);
        let _ = write!(
            text,
            "output out: {ty} @{at};\nworkgroup_size [256, 1, 1];\ndomain [len(out), 1, 1];\nentry windows {{\nlet i = global_id.x;\n\
             if i < len(out) {{\n{}let k = i / {places};\nlet p = i % {places};\nlet ky = k / {kw} % {kh};\nlet kx = k % {kw};\n\
             let channel = k / {};\nlet image = p / {};\nlet y = p % {} / {across} * {stride} + ky - {padding};\n\
             let x = p % {across} * {stride} + kx - {padding};\nlet place = ((image * {c} + channel) * {h} + y) * {w} + x;\n{lines}\
             out[i] = select((y < {h}) & (x < {w}), {}, {zero});\n}}\n}}\n",
            fused.uniform_lines(),
            kh * kw,
            down * across,
            down * across,
            values[0]
        );
        crate::launch::parsed(&text)
    })?;
    let call = fused.bind(kernel.call(), 0..fused.elements()).bind("out", &mut made);
    call.overwrites().launch()?;
    let weights = Term::array(weights.evaluate()?, ty.clone(), (&[o, depth][..]).into());
    let columns = Term::array(made, ty.clone(), (&[depth, places][..]).into());
    let product = matmul(&weights, &columns, Transposed::default(), &Epilogue::default())?;
    if n == 1 {
        return Ok(Output { buffer: product.buffer, ty, shape });
    }
    let apart = Term::array(product.buffer, ty.clone(), (&[o, n, down * across][..]).into());
    Ok(Output { buffer: permute(&apart, &[1, 0, 2])?.buffer, ty, shape })
}

/// The product without its right factor in memory.
fn in_tiles(fused: &Fused, weights: &Term, sizes: &Sizes) -> Result<Buffer, Error> {
    let (engine, weights) = (fused.engine(), weights.evaluate()?);
    let mut out = room(engine, &DataType::F32, sizes.outputs * sizes.places());
    let (lines, values) = fused.lines("place", "");
    let key =
        format!("convolution {sizes:?}\n{}{}{lines}{values:?}", fused.declarations(0, None), fused.uniform_lines());
    let kernel = engine.kernel_from(&key, || crate::launch::parsed(&tiles::source(sizes, fused)))?;
    let call = fused.bind(kernel.call(), 0..fused.elements()).bind("weights", &weights).bind("out", &mut out);
    call.grid(grid(tiles::groups(sizes))).overwrites().launch()?;
    Ok(out)
}
