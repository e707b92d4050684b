//! Random numbers that are the same on every backend: Philox4x32-10 (Salmon et al., 2011).

use std::fmt::Write;

use vyre::{Array, DataType, Engine, Error, Shape};

use crate::launch::{MOST, misfit, room};
use crate::output::Output;

/// A sequence of random numbers. Two with the same seed give the same, everywhere, as long as they are asked for the same.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let mut random = vyre_ops::Random::new(&engine, 7);
/// let table = random.normal([100, 3])?;
/// assert_eq!(table.shape(), [100, 3]);
/// assert_eq!(vyre_ops::Random::new(&engine, 7).normal([100, 3])?.to_vec()?, table.to_vec()?);
/// # Ok(())
/// # }
/// ```
pub struct Random {
    engine: Engine,
    seed: u64,
    /// Each array has numbers of its own.
    arrays: u64,
}

impl Random {
    /// The sequence of a seed.
    pub fn new(engine: &Engine, seed: u64) -> Random {
        Random { engine: engine.clone(), seed, arrays: 0 }
    }

    /// Words of 32 random bits.
    pub fn words(&mut self, shape: impl Into<Shape>) -> Result<Array<u32>, Error> {
        self.make(&shape.into(), &DataType::U32, &["w0", "w1", "w2", "w3"])?.typed()
    }

    /// Multiples of 2⁻²⁴ from 0 on, below 1.
    pub fn uniform(&mut self, shape: impl Into<Shape>) -> Result<Array<f32>, Error> {
        let part = |word: &str| format!("cast<f32>({word} >> 8) * f32#33800000");
        let parts = ["w0", "w1", "w2", "w3"].map(part);
        self.make(&shape.into(), &DataType::F32, &parts.each_ref().map(String::as_str))?.typed()
    }

    /// Numbers of the normal distribution with mean 0 and variance 1.
    pub fn normal(&mut self, shape: impl Into<Shape>) -> Result<Array<f32>, Error> {
        // Box and Muller: the logarithm is of something above 0, the angle below a whole turn.
        let radius = |word: &str| format!("sqrt(-2.0 * log((cast<f32>({word} >> 8) + 1.0) * f32#33800000))");
        let angle = |word: &str| format!("cast<f32>({word} >> 8) * f32#34c90fdb");
        let pair = |a: &str, b: &str| {
            [format!("{} * cos({})", radius(a), angle(b)), format!("{} * sin({})", radius(a), angle(b))]
        };
        let [first, second] = pair("w0", "w1");
        let [third, fourth] = pair("w2", "w3");
        self.make(&shape.into(), &DataType::F32, &[&first, &second, &third, &fourth])?.typed()
    }

    fn make(&mut self, shape: &Shape, ty: &DataType, parts: &[&str; 4]) -> Result<Output, Error> {
        let elements = shape.elements()?;
        if elements > MOST {
            return Err(misfit(format!("{elements} random numbers are more than are made at once, which is {MOST}")));
        }
        let mut out = room(&self.engine, ty, elements);
        let array = self.arrays;
        self.arrays += 1;
        if elements > 0 {
            let kernel = self.engine.kernel_of_text(&source(ty, parts))?;
            let sizes = [self.seed as u32, (self.seed >> 32) as u32, array as u32, (array >> 32) as u32];
            let groups = elements.div_ceil(4).div_ceil(64);
            let call = kernel.value("sizes", &sizes).bind("out", &mut out);
            call.grid(crate::launch::grid(groups)).overwrites().launch()?;
        }
        Ok(Output { buffer: out, ty: ty.clone(), shape: shape.extents().to_vec() })
    }
}

fn source(ty: &DataType, parts: &[&str; 4]) -> String {
    let mut text = format!(
        "read sizes: u32 @0;\noutput out: {ty} @1;\nworkgroup_size [64, 1, 1];\nentry random {{\n{}let i = group * 64 + local_index;\n\
         var w0: u32 = i;\nvar w1: u32 = 0;\nvar w2: u32 = sizes[2];\nvar w3: u32 = sizes[3];\n",
        crate::launch::GROUP
    );
    let (mut k0, mut k1) = (0u32, 0u32);
    for round in 0..10 {
        let _ = write!(
            text,
            "let high{round} = mul_high(w0, 3528531795);\nlet low{round} = w0 * 3528531795;\n\
             let upper{round} = mul_high(w2, 3449720151);\nlet lower{round} = w2 * 3449720151;\n\
             w0 = upper{round} ^ w1 ^ (sizes[0] + {k0});\nw1 = lower{round};\nw2 = high{round} ^ w3 ^ (sizes[1] + {k1});\nw3 = low{round};\n"
        );
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    for (at, part) in parts.iter().enumerate() {
        // What is behind the end is not stored.
        let _ = writeln!(text, "out[i * 4 + {at}] = {part};");
    }
    text.push_str("}\n");
    text
}
