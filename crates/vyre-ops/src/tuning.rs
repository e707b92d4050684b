//! What may be tuned about each op, and the arrays that it is tuned with.

use vyre::expression::Term;
use vyre::{DataType, Engine, Error};

use crate::registry::{Op, Parameters};
use crate::{bodies, histogram, layout, matrix, reduce, rows, sort};

/// One thing that may be tuned about an op, on the devices that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it is.
    pub name: &'static str,
    /// Where it is.
    pub on: &'static str,
    /// What it may be, the default first.
    pub values: &'static [&'static str],
}

/// Arrays and parameters that an op is tuned with.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Types, shapes and contents of the arrays.
    pub inputs: Vec<(DataType, Vec<usize>, Contents)>,
    /// What the op is told besides.
    pub parameters: Parameters,
}

/// What an array of a sample holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Floats from -1 to 1, whole numbers of all bits.
    Random,
    /// Whole numbers below this one.
    Below(u32),
    /// Multiples of this number, from 0 on.
    Ascending(u32),
}

/// Launches whose workgroups the tuner chooses by itself, with what the compiler can do about them.
const WORKGROUPS: &[Axis] = &[Axis { name: "workgroup", on: "all", values: &["64", "32", "128", "256", "…"] }];

impl Op {
    /// What may be tuned about it; the first value of each is the default. Nothing where no form but one was written.
    pub fn space(&self) -> &'static [Axis] {
        match self.id {
            "sum" | "product" | "min" | "max" | "mean" | "variance" | "argmin" | "argmax" | "any" | "all" | "dot"
            | "matvec" => reduce::SPACE,
            "softmax" | "log_softmax" | "layer_norm" | "rms_norm" => rows::SPACE,
            "sort" | "sort_descending" => sort::SPACE,
            "histogram" => histogram::SPACE,
            "transpose" => layout::SPACE,
            "gather" | "scatter_add" | "lower_bound" | "upper_bound" | "merge" => WORKGROUPS,
            "matmul" | "linear" | "convolution" => matrix::SPACE,
            "accelerations" => bodies::SPACE,
            _ => &[],
        }
    }

    /// What it is tuned with: none where nothing may be tuned.
    pub fn samples(&self) -> Vec<Sample> {
        use Contents::{Ascending, Below, Random};
        use DataType::{F32, F64, U32};
        let of = |ty: DataType, shape: Vec<usize>| Sample::of(vec![(ty, shape, Random)]);
        let million = 1 << 20;
        match self.id {
            "sum" => [1 << 16, million, 1 << 24].map(|count| of(F32, vec![count])).into(),
            "product" | "min" | "max" | "mean" | "variance" | "argmin" | "argmax" | "any" | "all" => {
                vec![of(F32, vec![1 << 22])]
            }
            "dot" => vec![Sample::of(vec![(F32, vec![1 << 22], Random), (F32, vec![1 << 22], Random)])],
            "matvec" => vec![Sample::of(vec![(F32, vec![2048, 2048], Random), (F32, vec![2048], Random)])],
            "softmax" | "layer_norm" => vec![of(F32, vec![2048, 2048]), of(F32, vec![4096, 256])],
            "log_softmax" | "rms_norm" => vec![of(F32, vec![2048, 2048])],
            "sort" => vec![of(U32, vec![1 << 18]), of(U32, vec![1 << 22]), of(F64, vec![million])],
            "sort_descending" => vec![of(U32, vec![1 << 22])],
            "histogram" => [256, 4096]
                .map(|count| Sample {
                    inputs: vec![(U32, vec![1 << 22], Below(count))],
                    parameters: Parameters { count: Some(count as usize), ..Parameters::default() },
                })
                .into(),
            "transpose" => vec![of(F32, vec![2048, 2048]), of(F32, vec![512, 512]), of(F64, vec![1024, 1024])],
            "gather" => {
                vec![Sample::of(vec![(F32, vec![1 << 22], Random), (U32, vec![million], Below(1 << 22))])]
            }
            "scatter_add" => vec![Sample::of(vec![
                (U32, vec![million], Random),
                (U32, vec![million], Below(million as u32)),
                (U32, vec![million], Random),
            ])],
            "lower_bound" | "upper_bound" => {
                vec![Sample::of(vec![(U32, vec![million], Ascending(4000)), (U32, vec![million], Random)])]
            }
            "merge" => vec![Sample::of(vec![(U32, vec![million], Ascending(4)), (U32, vec![million], Ascending(3))])],
            "matmul" => matrix::samples(),
            "linear" => matrix::samples_with_bias(),
            "convolution" => {
                vec![Sample::of(vec![(F32, vec![2, 16, 56, 56], Random), (F32, vec![16, 16, 3, 3], Random)])]
            }
            "accelerations" => [1024, 4096].map(|count| of(F32, vec![count, 4])).into(),
            _ => Vec::new(),
        }
    }
}

impl Sample {
    /// Of arrays alone.
    pub(crate) fn of(inputs: Vec<(DataType, Vec<usize>, Contents)>) -> Sample {
        Sample { inputs, parameters: Parameters::default() }
    }

    /// Types and shapes, for people.
    pub fn describe(&self) -> String {
        let one = |(ty, shape, _): &(DataType, Vec<usize>, Contents)| {
            let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
            format!("{ty} {}", extents.join("x"))
        };
        self.inputs.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The arrays, the same in every process.
    pub fn terms(&self, engine: &Engine) -> Result<Vec<Term>, Error> {
        let term = |(at, (ty, shape, contents)): (usize, &(DataType, Vec<usize>, Contents))| {
            let mut bytes = Vec::new();
            let mut state = at as u64 + 1;
            for place in 0..shape.iter().product::<usize>() as u64 {
                // SplitMix64.
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut random = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                random = (random ^ (random >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                random ^= random >> 31;
                let whole = match contents {
                    Contents::Random => random,
                    Contents::Below(end) => random % u64::from((*end).max(1)),
                    Contents::Ascending(step) => place * u64::from(*step),
                };
                let unit = (random >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
                match ty {
                    DataType::F64 => bytes.extend(f64::from(unit).to_le_bytes()),
                    DataType::F32 => bytes.extend(unit.to_le_bytes()),
                    DataType::F16 => bytes.extend(half::f16::from_f32(unit).to_le_bytes()),
                    _ => bytes.extend_from_slice(&whole.to_le_bytes()[..crate::launch::size_of(ty) as usize]),
                }
            }
            Ok(Term::array(engine.buffer_of(&bytes)?, ty.clone(), (&shape[..]).into()))
        };
        self.inputs.iter().enumerate().map(term).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::ops;

    #[test]
    fn what_may_be_tuned_has_samples_that_fit() {
        for op in ops() {
            assert_eq!(op.space().is_empty(), op.samples().is_empty(), "{}", op.id);
            for sample in op.samples() {
                assert_eq!(sample.inputs.len(), op.inputs.len(), "{}", op.id);
            }
            for axis in op.space() {
                assert!(axis.values.len() > 1, "{} {}", op.id, axis.name);
            }
        }
    }
}
