//! The kernels: their text, their buffers and their launches.

use vyre::ir::Math;
use vyre::{DispatchConfig, Program};

use crate::Outcome;

/// What a buffer holds at the start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    Zero,
    /// f32 from 0 to 1.
    Unit,
    /// f16 from 0 to 1, two to a word.
    Half,
    /// u32 below a number; all of them where it is zero.
    Below(u32),
    /// u32, so much more each.
    Steps(u32),
    /// These words, over and over.
    Words([u32; 4]),
    /// u32, each more than the one before by up to twice as much.
    Ragged(u32),
}

/// A buffer of words of 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) name: &'static str,
    pub(crate) words: usize,
    pub(crate) fill: Fill,
    /// It is compared with the twin's: as floats where that is said, as floats of 16 bits, or as whole numbers.
    pub(crate) result: Option<Compare>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compare {
    /// Relative to the largest magnitude.
    Floats,
    Halves,
    /// All but a few in a thousand, where floats decide.
    Most,
    /// Floats, all but a few in a thousand.
    Mostly,
    /// Floats whose sum is the result: a twin may share out the work otherwise.
    Parts,
    Bits,
}

/// A kernel at any size.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) wgsl: &'static str,
    /// log₂ of the size on the processor and on a GPU.
    pub(crate) bits: [u32; 2],
    /// The constant that is set to the size.
    pub(crate) constant: Option<&'static str>,
    pub(crate) buffers: fn(usize) -> Vec<Buffer>,
    pub(crate) grid: fn(usize) -> [u32; 3],
    /// Fewest bytes moved.
    pub(crate) bytes: fn(usize) -> u64,
}

impl Work {
    pub(crate) fn program(&self, math: Math) -> Outcome<Program> {
        Ok(vyre::wgsl(self.wgsl)?.with_math(math))
    }

    pub(crate) fn config(&self, n: usize) -> DispatchConfig {
        let mut config = DispatchConfig::default();
        config.grid_override = Some((self.grid)(n));
        if let Some(name) = self.constant {
            config.specialization.insert(name, n as u32);
        }
        config
    }
}

impl Buffer {
    pub(crate) fn contents(&self) -> Vec<u32> {
        let mut state = 0x2545_f491_4f6c_dd1du64 ^ self.words as u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        (0..self.words as u32)
            .map(|at| match self.fill {
                Fill::Zero => 0,
                Fill::Unit => ((next() >> 8) as f32 / (1u32 << 24) as f32).to_bits(),
                // From 0.25 to 0.5: all exponents are the same, so that no subnormal number is among them.
                Fill::Half => (next() & 0x03ff_03ff) | 0x3400_3400,
                Fill::Below(0) => next(),
                Fill::Below(limit) => next() % limit,
                Fill::Steps(step) => at * step,
                Fill::Words(words) => words[at as usize % 4],
                Fill::Ragged(step) => at * step + next() % step,
            })
            .collect()
    }
}

pub(crate) fn input(name: &'static str, words: usize, fill: Fill) -> Buffer {
    Buffer { name, words, fill, result: None }
}

pub(crate) fn result(name: &'static str, words: usize, compare: Compare) -> Buffer {
    Buffer { name, words, fill: Fill::Zero, result: Some(compare) }
}

fn line(n: usize) -> [u32; 3] {
    [n.div_ceil(256) as u32, 1, 1]
}

fn square(n: usize, x: usize, y: usize) -> [u32; 3] {
    [n.div_ceil(x) as u32, n.div_ceil(y) as u32, 1]
}

macro_rules! work {
    ($name:literal, $bits:expr, $constant:expr, $buffers:expr, $grid:expr, $bytes:expr) => {
        Work {
            name: $name,
            wgsl: include_str!(concat!("../kernels/", $name, ".wgsl")),
            bits: $bits,
            constant: $constant,
            buffers: $buffers,
            grid: $grid,
            bytes: $bytes,
        }
    };
}

pub(crate) fn works() -> Vec<Work> {
    use Compare::{Bits, Floats, Halves, Most, Mostly, Parts};
    use Fill::{Below, Half, Ragged, Steps, Unit, Words, Zero};
    vec![
        work!(
            "sum",
            [24, 28],
            None,
            |n| vec![input("input", n, Unit), result("partial", 1024, Parts)],
            |_| [1024, 1, 1],
            |n| 4 * n as u64
        ),
        work!(
            "transpose",
            [12, 14],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Bits)],
            |n| square(n, 32, 32),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "histogram",
            [24, 28],
            None,
            |n| vec![input("input", n, Below(0)), result("bins", 256, Bits)],
            |_| [1024, 1, 1],
            |n| 4 * n as u64
        ),
        work!(
            "softmax",
            [23, 27],
            None,
            |n| vec![input("input", n, Unit), result("output", n, Floats)],
            |n| [(n / 4096) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "stencil",
            [12, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 32, 8),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "nbody",
            [12, 15],
            None,
            |n| vec![input("bodies", 4 * n, Unit), result("forces", 4 * n, Floats)],
            line,
            |n| 32 * n as u64
        ),
        work!(
            "matmul",
            [10, 12],
            Some("N"),
            |n| vec![input("a", n * n, Unit), input("b", n * n, Unit), result("c", n * n, Floats)],
            |n| square(n, 128, 128),
            |n| 12 * (n * n) as u64
        ),
        work!(
            "black_scholes",
            [20, 26],
            None,
            |n| vec![
                input("price", n, Unit),
                input("strike", n, Unit),
                input("years", n, Unit),
                result("call", n, Floats),
                result("put", n, Floats),
            ],
            line,
            |n| 20 * n as u64
        ),
        work!("mandelbrot", [10, 13], Some("N"), |n| vec![result("image", n * n, Most)], |n| square(n, 16, 16), |n| 4
            * (n * n) as u64),
        work!(
            "gather",
            [22, 26],
            None,
            |n| vec![input("index", n, Below(1 << 22)), input("table", 1 << 22, Unit), result("output", n, Bits)],
            line,
            |n| 12 * n as u64
        ),
        work!("hash", [20, 26], None, |n| vec![input("input", n, Below(0)), result("output", n, Bits)], line, |n| 8
            * n as u64),
        work!(
            "bitonic",
            [20, 26],
            None,
            |n| vec![input("input", n, Below(0)), result("output", n, Bits)],
            |n| [(n / 512) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "fft",
            [19, 25],
            None,
            |n| vec![input("input", 2 * n, Unit), result("output", 2 * n, Floats)],
            |n| [(n / 1024) as u32, 1, 1],
            |n| 16 * n as u64
        ),
        work!(
            "spmv",
            [18, 22],
            None,
            |n| vec![
                input("starts", n + 1, Steps(16)),
                input("columns", 16 * n, Below(1 << 18)),
                input("values", 16 * n, Unit),
                input("x", n.max(1 << 18), Unit),
                result("y", n, Floats),
            ],
            line,
            |n| 8 * n as u64 + 128 * n as u64
        ),
        work!(
            "scan",
            [22, 27],
            None,
            |n| vec![input("input", n, Below(0)), result("output", n, Bits)],
            |n| [(n / 512) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "convolution",
            [11, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), input("weights", 25, Unit), result("output", n * n, Floats)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "fir",
            [21, 26],
            None,
            |n| vec![input("input", n, Unit), input("taps", 31, Unit), result("output", n, Floats)],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "smith_waterman",
            [14, 20],
            None,
            |n| vec![input("queries", 2 * n, Below(0)), input("targets", 4 * n, Below(0)), result("scores", n, Bits)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 28 * n as u64
        ),
        work!(
            "sha256",
            [16, 22],
            None,
            |n| vec![input("input", 16 * n, Below(0)), result("output", n, Bits)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 68 * n as u64
        ),
        work!("raymarch", [9, 12], Some("N"), |n| vec![result("image", n * n, Mostly)], |n| square(n, 16, 16), |n| 4
            * (n * n) as u64),
        work!(
            "kmeans",
            [18, 24],
            None,
            |n| vec![input("points", 4 * n, Unit), input("centres", 128, Unit), result("nearest", n, Most)],
            line,
            |n| 20 * n as u64
        ),
        work!(
            "bilateral",
            [9, 12],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "lu",
            [15, 21],
            None,
            |n| vec![input("input", 36 * n, Unit), result("output", 36 * n, Floats)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 288 * n as u64
        ),
        work!("monte_carlo", [14, 20], None, |n| vec![result("means", n, Mostly)], line, |n| 4 * n as u64),
        work!(
            "string_match",
            [21, 27],
            None,
            |n| vec![input("letters", n, Below(3)), input("pattern", 8, Below(3)), result("found", n, Bits)],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "half_axpy",
            [22, 27],
            None,
            |n| vec![input("x", n, Half), input("y", n, Half), result("z", n, Halves)],
            line,
            |n| 12 * n as u64
        ),
        work!(
            "dot_int8",
            [15, 22],
            None,
            |n| vec![input("rows", 64 * n, Below(0)), input("vector", 64, Below(0)), result("sums", n, Bits)],
            line,
            |n| 260 * n as u64
        ),
        work!(
            "axpy",
            [22, 27],
            None,
            |n| vec![input("x", n, Unit), input("y", n, Unit), result("z", n, Floats)],
            line,
            |n| 12 * n as u64
        ),
        work!("gelu", [21, 26], None, |n| vec![input("x", n, Unit), result("y", n, Floats)], line, |n| 8 * n as u64),
        work!(
            "rmsnorm",
            [22, 27],
            None,
            |n| vec![input("input", n, Unit), result("output", n, Floats)],
            |n| [(n / 1024) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "life",
            [11, 13],
            Some("N"),
            |n| vec![input("cells", n * n, Below(2)), result("next", n * n, Bits)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "matvec",
            [10, 15],
            None,
            |n| vec![input("a", 4096 * n, Unit), input("x", 4096, Unit), result("y", n, Floats)],
            |n| [n as u32, 1, 1],
            |n| 16384 * n as u64
        ),
        work!(
            "dct",
            [10, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 8, 8),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "fdtd",
            [7, 9],
            Some("N"),
            |n| vec![input("input", n * n * n, Unit), input("weights", 5, Unit), result("output", n * n * n, Floats)],
            |n| square(n, 32, 8),
            |n| 8 * (n * n * n) as u64
        ),
        work!(
            "separable",
            [11, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), input("weights", 17, Unit), result("output", n * n, Floats)],
            |n| square(n, 128, 4),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "quasirandom",
            [22, 26],
            None,
            |n| vec![input("directions", 32, Below(0)), result("output", n, Mostly)],
            line,
            |n| 4 * n as u64
        ),
        work!(
            "gamma",
            [20, 24],
            None,
            |n| vec![input("input", 4 * n, Unit), result("output", 4 * n, Floats)],
            line,
            |n| 32 * n as u64
        ),
        work!(
            "sobel",
            [12, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "heat3d",
            [7, 9],
            Some("N"),
            |n| vec![input("input", n * n * n, Unit), result("output", n * n * n, Floats)],
            |n| [n.div_ceil(32) as u32, n.div_ceil(4) as u32, n.div_ceil(2) as u32],
            |n| 8 * (n * n * n) as u64
        ),
        work!(
            "tridiagonal",
            [14, 18],
            Some("N"),
            |n| vec![
                input("lower", 64 * n, Unit),
                input("upper", 64 * n, Unit),
                input("right", 64 * n, Unit),
                input("scratch", 64 * n, Zero),
                result("solution", 64 * n, Floats),
            ],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 9 * 4 * 64 * n as u64
        ),
        work!(
            "box_blur",
            [11, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 256, 256),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "resize",
            [10, 12],
            Some("N"),
            |n| vec![input("input", 4 * (n / 4 * 3) * (n / 4 * 3), Unit), result("output", 4 * n * n, Floats)],
            |n| square(n, 16, 16),
            |n| 25 * (n * n) as u64
        ),
        work!(
            "jacobi",
            [11, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), input("source", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 32, 8),
            |n| 12 * (n * n) as u64
        ),
        work!(
            "any_hit",
            [16, 22],
            None,
            |n| vec![input("rays", 4 * n, Unit), input("boxes", 2048, Unit), result("first", n, Most)],
            line,
            |n| 20 * n as u64
        ),
        work!(
            "lbm",
            [10, 12],
            Some("N"),
            |n| vec![input("before", 9 * n * n, Unit), result("after", 9 * n * n, Floats)],
            |n| square(n, 32, 8),
            |n| 72 * (n * n) as u64
        ),
        work!("clouds", [10, 13], Some("N"), |n| vec![result("image", n * n, Mostly)], |n| square(n, 16, 16), |n| 4
            * (n * n) as u64),
        work!(
            "aes",
            [19, 24],
            None,
            |n| vec![
                input("blocks", 4 * n, Below(0)),
                input("lookup", 256, Below(0)),
                input("keys", 44, Below(0)),
                result("encrypted", 4 * n, Bits),
            ],
            line,
            |n| 32 * n as u64
        ),
        work!(
            "neighbours",
            [15, 20],
            None,
            |n| vec![input("points", 2 * n, Unit), input("places", 2048, Unit), result("nearest", 8 * n, Floats)],
            line,
            |n| 40 * n as u64
        ),
        work!(
            "edit_distance",
            [15, 20],
            None,
            |n| vec![input("left", 8 * n, Below(0)), input("right", 8 * n, Below(0)), result("distances", n, Bits)],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 68 * n as u64
        ),
        work!(
            "argmax",
            [23, 27],
            None,
            |n| vec![input("input", n, Unit), result("places", n / 4096, Bits)],
            |n| [(n / 4096) as u32, 1, 1],
            |n| 4 * n as u64
        ),
        work!(
            "small_products",
            [13, 17],
            None,
            |n| vec![input("a", 256 * n, Unit), input("b", 256 * n, Unit), result("c", 256 * n, Floats)],
            |n| [n as u32, 1, 1],
            |n| 3072 * n as u64
        ),
        work!(
            "blend",
            [22, 26],
            None,
            |n| vec![input("over", n, Below(0)), input("under", n, Below(0)), result("blended", n, Most)],
            line,
            |n| 12 * n as u64
        ),
        work!(
            "split_sort",
            [20, 25],
            None,
            |n| vec![input("input", n, Below(0)), result("output", n, Bits)],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "spheres",
            [10, 12],
            Some("N"),
            |n| vec![input("spheres", 64, Unit), result("image", n * n, Mostly)],
            |n| square(n, 16, 16),
            |n| 4 * (n * n) as u64
        ),
        work!(
            "relax",
            [22, 26],
            None,
            |n| vec![
                input("edges", 2 * n, Below(1 << 18)),
                input("lengths", 1 << 18, Below(1 << 20)),
                result("longest", 1 << 18, Bits),
            ],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "particles",
            [19, 24],
            None,
            |n| vec![input("before", 8 * n, Unit), result("after", 8 * n, Floats)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 64 * n as u64
        ),
        work!(
            "append",
            [22, 26],
            None,
            |n| vec![input("input", n, Below(0)), input("count", 1, Zero), result("list", n, Most)],
            line,
            |n| 5 * n as u64
        ),
        work!(
            "float_add",
            [20, 25],
            None,
            |n| vec![input("places", n, Below(1 << 18)), input("values", n, Unit), result("sums", 1 << 18, Mostly),],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "boids",
            [12, 15],
            None,
            |n| vec![
                input("params", 4, Words([0.04f32, 0.1, 0.025, 0.025].map(f32::to_bits))),
                input("particlesA", 4 * n, Unit),
                result("particlesB", 4 * n, Mostly),
            ],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 32 * n as u64
        ),
        work!(
            "gemm_sizes",
            [10, 11],
            None,
            |n| vec![
                input("sizes", 4, Words([n as u32, n as u32, n as u32, 0])),
                input("a", n * n, Unit),
                input("b", n * n, Unit),
                result("c", n * n, Floats),
            ],
            |n| square(n, 16, 16),
            |n| 12 * (n * n) as u64
        ),
        work!(
            "blur_radius",
            [10, 12],
            None,
            |n| vec![
                input("params", 4, Words([n as u32, n as u32, 3, 0])),
                input("source", n * n, Below(0)),
                result("blurred", n * n, Most),
            ],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "pagerank",
            [18, 22],
            None,
            |n| vec![
                input("starts", n + 1, Ragged(12)),
                input("sources", 12 * n + 12, Below(n as u32)),
                input("pages", 2 * n, Unit),
                result("ranks", n, Floats),
            ],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 64 * n as u64
        ),
        work!(
            "triangles",
            [20, 24],
            None,
            |n| vec![input("corners", 3 * n + 6, Unit), result("normals", 3 * n, Mostly), result("areas", n, Floats),],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 28 * n as u64
        ),
        work!(
            "yuv",
            [20, 24],
            None,
            |n| vec![input("bright", n, Below(0)), input("colour", n, Below(0)), result("rgba", 4 * n, Most)],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 24 * n as u64
        ),
        work!(
            "volume",
            [7, 9],
            Some("N"),
            |n| vec![input("before", n * n * n, Unit), input("weights", 27, Unit), result("after", n * n * n, Floats),],
            |n| [n.div_ceil(8) as u32, n.div_ceil(8) as u32, n.div_ceil(4) as u32],
            |n| 8 * (n * n * n) as u64
        ),
        work!(
            "dither",
            [11, 13],
            Some("N"),
            |n| vec![input("image", n * n, Unit), result("output", n * n, Most)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "labels",
            [11, 13],
            Some("N"),
            |n| vec![input("kind", n * n, Below(3)), input("before", n * n, Below(0)), result("after", n * n, Bits)],
            |n| square(n, 16, 16),
            |n| 12 * (n * n) as u64
        ),
        work!(
            "floyd",
            [11, 11],
            None,
            |_| vec![
                input("step", 4, Words([2048, 77, 0, 0])),
                input("before", 1 << 22, Unit),
                result("after", 1 << 22, Floats),
            ],
            |_| square(2048, 16, 16),
            |_| 8 << 22
        ),
        work!(
            "median",
            [11, 13],
            Some("N"),
            |n| vec![input("input", n * n, Unit), result("output", n * n, Floats)],
            |n| square(n, 8, 8),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "deposit",
            [20, 24],
            None,
            |n| vec![input("particles", 4 * n, Unit), result("charge", 1 << 16, Most)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 16 * n as u64
        ),
        work!(
            "int8_product",
            [9, 12],
            Some("N"),
            |n| vec![
                input("a", n * n / 4, Below(0)),
                input("bt", n * n / 4, Below(0)),
                input("scales", n, Unit),
                result("c", n * n, Floats),
            ],
            |n| square(n, 16, 16),
            |n| 6 * (n * n) as u64
        ),
        work!(
            "layer_norm",
            [12, 16],
            None,
            |n| vec![
                input("input", 1024 * n, Unit),
                input("weight", 1024, Unit),
                input("bias", 1024, Unit),
                result("output", 1024 * n, Floats),
            ],
            |n| [n as u32, 1, 1],
            |n| 8192 * n as u64
        ),
        work!(
            "row_argmax",
            [14, 18],
            None,
            |n| vec![input("rows", 256 * n, Unit), result("found", n, Most)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 1028 * n as u64
        ),
        work!(
            "run_lengths",
            [22, 26],
            None,
            |n| vec![input("input", n, Below(2)), result("lengths", n, Bits)],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "lower_bound",
            [20, 24],
            None,
            |n| vec![
                input("table", 1 << 16, Ragged(1 << 16)),
                input("queries", n, Below(0)),
                result("places", n, Bits),
            ],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "crc",
            [18, 22],
            None,
            |n| vec![input("data", 16 * n, Below(0)), input("table", 256, Below(0)), result("sums", n, Bits)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 68 * n as u64
        ),
        work!(
            "row_sums",
            [16, 20],
            None,
            |n| vec![input("rows", 64 * n, Unit), result("sums", 64 * n, Floats)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 512 * n as u64
        ),
        work!(
            "graph_step",
            [18, 22],
            None,
            |n| vec![
                input("starts", n + 1, Ragged(8)),
                input("neighbours", 8 * n + 16, Below(n as u32)),
                input("before", n, Below(3)),
                result("after", n, Bits),
            ],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 48 * n as u64
        ),
        work!(
            "product_4x4",
            [10, 12],
            Some("N"),
            |n| vec![input("a", n * n, Unit), input("b", n * n, Unit), result("c", n * n, Floats)],
            |n| square(n, 64, 64),
            |n| 12 * (n * n) as u64
        ),
        work!(
            "blelloch",
            [22, 27],
            None,
            |n| vec![input("input", n, Below(0)), result("output", n, Bits)],
            |n| [(n / 1024) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "wavefront",
            [12, 17],
            None,
            |n| vec![input("queries", 64 * n, Below(4)), input("targets", 64 * n, Below(4)), result("scores", n, Bits)],
            |n| [n as u32, 1, 1],
            |n| 516 * n as u64
        ),
        work!(
            "chacha",
            [18, 22],
            None,
            |n| vec![input("key", 8, Below(0)), input("message", 16 * n, Below(0)), result("secret", 16 * n, Bits)],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 128 * n as u64
        ),
        work!("bulb", [8, 11], Some("N"), |n| vec![result("depth", n * n, Mostly)], |n| square(n, 8, 8), |n| 4
            * (n * n) as u64),
        work!(
            "centre_sums",
            [22, 26],
            None,
            |n| vec![input("points", 2 * n, Unit), input("cluster", n, Below(16)), result("sums", 48, Bits)],
            |_| [1056, 1, 1],
            |n| 12 * n as u64
        ),
        work!(
            "cholesky",
            [16, 20],
            None,
            |n| vec![input("matrices", 64 * n, Unit), result("factors", 64 * n, Floats)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 512 * n as u64
        ),
        work!(
            "walks",
            [17, 22],
            None,
            |n| vec![
                input("params", 4, Words([0x3a83_126f, 0x3ccc_cccd, 0x42ca_0000, 1234])),
                result("values", n, Floats),
            ],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 4 * n as u64
        ),
        work!(
            "substring",
            [21, 26],
            None,
            |n| vec![input("text", n, Below(0)), input("pattern", 2, Below(0)), result("counts", n / 256, Bits)],
            line,
            |n| 4 * n as u64
        ),
        work!(
            "half_rows",
            [13, 18],
            None,
            |n| vec![input("matrix", 512 * n, Half), input("vector", 512, Half), result("products", n, Floats)],
            |n| [n as u32, 1, 1],
            |n| 2048 * n as u64
        ),
        work!(
            "filter_tile",
            [11, 13],
            Some("N"),
            |n| vec![
                input("weights", 28, Words([0.1f32, 0.2, -0.05, 0.07].map(f32::to_bits))),
                input("picture", n * n, Unit),
                result("filtered", n * n, Floats),
            ],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "online_softmax",
            [12, 16],
            None,
            |n| vec![input("input", 1024 * n, Unit), result("output", 1024 * n, Floats)],
            |n| [n as u32, 1, 1],
            |n| 8192 * n as u64
        ),
        work!(
            "stockham",
            [20, 25],
            None,
            |n| vec![
                input("pass_", 4, Words([n as u32, 1024, 0, 0])),
                input("before", 2 * n, Unit),
                result("after", 2 * n, Floats),
            ],
            |n| [n.div_ceil(256) as u32, 1, 1],
            |n| 16 * n as u64
        ),
        work!(
            "bitonic_step",
            [22, 26],
            None,
            |n| vec![
                input("step", 4, Words([1 << 20, 1 << 12, 0, 0])),
                Buffer { name: "keys", words: n, fill: Below(0), result: Some(Bits) },
            ],
            line,
            |n| 8 * n as u64
        ),
        work!(
            "ell",
            [17, 21],
            None,
            |n| vec![
                input("columns", 24 * n, Below(n as u32)),
                input("entries", 24 * n, Unit),
                input("x", n, Unit),
                result("y", n, Floats),
            ],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 200 * n as u64
        ),
        work!(
            "reduce_interleaved",
            [22, 25],
            None,
            |n| vec![input("g_idata", n, Unit), result("g_odata", n / 256, Floats)],
            line,
            |n| 4 * n as u64
        ),
        work!(
            "segmented_scan",
            [22, 24],
            None,
            |n| vec![input("values", n, Unit), input("flags", n, Below(10)), result("sums", n, Floats)],
            line,
            |n| 12 * n as u64
        ),
        work!(
            "radix_pass",
            [21, 24],
            None,
            |n| vec![
                input("params", 4, Words([8, 0, 0, 0])),
                input("keys_in", n, Below(0)),
                result("keys_out", n, Bits),
                result("digit_counts", n / 64, Bits),
            ],
            |n| [(n / 1024) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "spmv_group",
            [15, 17],
            None,
            |n| vec![
                input("row_ptr", n + 1, Ragged(64)),
                input("col_idx", 64 * (n + 1), Below(32768)),
                input("vals", 64 * (n + 1), Unit),
                input("x", 32768, Unit),
                result("y", n, Floats),
            ],
            |n| [n as u32, 1, 1],
            |n| 520 * n as u64
        ),
        work!(
            "nqueens",
            [14, 16],
            None,
            |n| vec![result("solutions", n, Bits)],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 4 * n as u64
        ),
        work!(
            "median5",
            [9, 12],
            Some("N"),
            |n| vec![input("src", n * n, Unit), result("dst", n * n, Bits)],
            |n| square(n, 16, 16),
            |n| 8 * (n * n) as u64
        ),
        work!(
            "halo3d",
            [7, 8],
            Some("N"),
            |n| vec![input("u0", n * n * n, Unit), result("u1", n * n * n, Floats)],
            |n| [n.div_ceil(8) as u32, n.div_ceil(8) as u32, n.div_ceil(4) as u32],
            |n| 8 * (n * n * n) as u64
        ),
        work!(
            "heap_sort",
            [14, 19],
            None,
            |n| vec![Buffer { result: Some(Floats), ..input("numbers", 32 * n, Unit) }],
            |n| [n.div_ceil(64) as u32, 1, 1],
            |n| 256 * n as u64
        ),
        work!(
            "scan_padded",
            [22, 24],
            None,
            |n| vec![input("g_idata", n, Unit), result("g_odata", n, Floats)],
            |n| [(n / 512) as u32, 1, 1],
            |n| 8 * n as u64
        ),
        work!(
            "census",
            [10, 12],
            Some("N"),
            |n| vec![input("image", n * n / 4, Below(0)), result("codes", n * n, Bits)],
            |n| square(n, 32, 4),
            |n| 5 * (n * n) as u64
        ),
        work!(
            "frontier",
            [18, 21],
            None,
            |n| vec![
                input("starts", n + 1, Ragged(8)),
                input("edges", 8 * n + 16, Below(n as u32)),
                input("level", n, Below(4)),
                result("seen", n / 32, Bits),
                // In which order is nobody's business.
                input("queue", n + 1, Zero),
            ],
            |n| [n.div_ceil(128) as u32, 1, 1],
            |n| 40 * n as u64
        ),
        work!(
            "attention",
            [9, 10],
            None,
            |n| vec![
                input("q", 64 * n, Unit),
                input("k", 16384 * n, Unit),
                input("v", 16384 * n, Unit),
                result("o", 64 * n, Floats),
            ],
            |n| [n as u32, 1, 1],
            |n| 131_072 * n as u64
        ),
    ]
}

/// Whether two results are near enough to be of the same work.
pub(crate) fn near(compare: Compare, ours: &[u32], theirs: &[u32]) -> bool {
    let floats = |words: &[u32]| words.iter().map(|&word| f64::from(f32::from_bits(word))).collect::<Vec<_>>();
    match compare {
        Compare::Bits => ours == theirs,
        Compare::Most => ours.iter().zip(theirs).filter(|(a, b)| a != b).count() * 200 <= ours.len(),
        Compare::Floats => close(&floats(ours), &floats(theirs), 1e-3),
        Compare::Parts => {
            let whole = |words: &[u32]| vec![floats(words).iter().sum::<f64>()];
            close(&whole(ours), &whole(theirs), 1e-5)
        }
        Compare::Mostly => {
            let pairs = floats(ours).into_iter().zip(floats(theirs));
            pairs.filter(|(a, b)| (a - b).abs() > 1e-2 * (a.abs() + 1.0)).count() * 200 <= ours.len()
        }
        Compare::Halves => {
            let halves = |words: &[u32]| {
                words.iter().flat_map(|&word| [half(word as u16), half((word >> 16) as u16)]).collect::<Vec<_>>()
            };
            close(&halves(ours), &halves(theirs), 2e-2)
        }
    }
}

fn close(a: &[f64], b: &[f64], part: f64) -> bool {
    let largest = a.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= part * (a.abs() + 0.1 * largest))
}

/// The value of a normal f16.
fn half(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 31) - 15;
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    if exponent == -15 { 0.0 } else { sign * (1.0 + f64::from(bits & 0x3ff) / 1024.0) * 2f64.powi(exponent) }
}
