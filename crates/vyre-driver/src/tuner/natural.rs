use std::fmt;

use super::TuningMeasurement;

/// 1.0 as a Q16.16 fixed-point number.
pub const Q16_ONE: u32 = 1 << 16;

/// The n×n identity, row by row: a preconditioner that changes nothing.
pub fn identity_fisher_q16(n: usize) -> Vec<u32> {
    let mut out = Vec::new();
    identity_fisher_q16_into(n, &mut out);
    out
}

/// As [`identity_fisher_q16`], into a vector that is cleared first.
pub fn identity_fisher_q16_into(n: usize, out: &mut Vec<u32>) {
    out.clear();
    out.resize(n * n, 0);
    out.iter_mut().step_by(n + 1).for_each(|cell| *cell = Q16_ONE);
}

/// Chooses the next launch to try from what was measured: a softmax over the times, preconditioned by a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NaturalGradientPolicy {
    /// How much slower a launch must be to weigh e times less. More explores more.
    pub temperature_ns: u64,
}

impl Default for NaturalGradientPolicy {
    fn default() -> Self {
        NaturalGradientPolicy { temperature_ns: 10_000 }
    }
}

/// What one step of the policy found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaturalGradientTuningStep {
    /// The launch with the largest preconditioned weight, the earliest on a tie.
    pub selected_workgroup_size: [u32; 3],
    /// The launch with the smallest time, the earliest on a tie.
    pub best_measured_workgroup_size: [u32; 3],
    /// The smallest time.
    pub best_measured_elapsed_ns: u64,
    /// The softmax of −(elapsed − best)/temperature; sums to exactly [`Q16_ONE`].
    pub policy_weights_q16: Vec<u32>,
    /// The weights times the matrix.
    pub natural_gradient_q16: Vec<u32>,
}

/// Why a step of the policy was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NaturalGradientTuningError {
    /// There is nothing to choose from.
    EmptyMeasurements,
    /// The matrix is not n×n.
    FisherMatrixShape {
        /// How many measurements there are: n.
        measurements: usize,
        /// How many cells the matrix has.
        cells: usize,
    },
    /// A temperature of zero weighs everything by infinity.
    ZeroTemperature,
}

impl fmt::Display for NaturalGradientTuningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyMeasurements => {
                f.write_str("no launch was measured. Fix: measure at least one candidate before asking the policy.")
            }
            Self::FisherMatrixShape { measurements, cells } => write!(
                f,
                "the Fisher matrix has {cells} cells for {measurements} measurements. Fix: pass n\u{d7}n cells, row by row, for n measurements."
            ),
            Self::ZeroTemperature => {
                f.write_str("the policy's temperature is zero. Fix: use a temperature of at least one nanosecond.")
            }
        }
    }
}

impl std::error::Error for NaturalGradientTuningError {}

impl NaturalGradientPolicy {
    /// Weighs the measurements, preconditions the weights by the row-major n×n Q16.16 matrix, and selects.
    pub fn suggest(
        &self,
        measurements: &[TuningMeasurement],
        fisher_inv_sqrt_q16: &[u32],
    ) -> Result<NaturalGradientTuningStep, NaturalGradientTuningError> {
        let n = measurements.len();
        // `min_by_key` keeps the first of equals.
        let Some(best) = measurements.iter().min_by_key(|measurement| measurement.elapsed_ns) else {
            return Err(NaturalGradientTuningError::EmptyMeasurements);
        };
        if self.temperature_ns == 0 {
            return Err(NaturalGradientTuningError::ZeroTemperature);
        }
        if n.checked_mul(n) != Some(fisher_inv_sqrt_q16.len()) {
            return Err(NaturalGradientTuningError::FisherMatrixShape {
                measurements: n,
                cells: fisher_inv_sqrt_q16.len(),
            });
        }
        let elapsed: Vec<u64> = measurements.iter().map(|measurement| measurement.elapsed_ns).collect();
        let weights = softmax_q16(&elapsed, best.elapsed_ns, self.temperature_ns);
        let gradient: Vec<u32> = fisher_inv_sqrt_q16.chunks_exact(n).map(|row| dot_q16(row, &weights)).collect();
        let mut selected = 0;
        for (index, value) in gradient.iter().enumerate() {
            if *value > gradient[selected] {
                selected = index;
            }
        }
        Ok(NaturalGradientTuningStep {
            selected_workgroup_size: measurements[selected].workgroup_size,
            best_measured_workgroup_size: best.workgroup_size,
            best_measured_elapsed_ns: best.elapsed_ns,
            policy_weights_q16: weights,
            natural_gradient_q16: gradient,
        })
    }
}

/// Weights are rounded down, and what is missing to one is given out singly, fastest first: every weight is within one unit
/// of the exact softmax, and a faster candidate never weighs less than a slower one.
fn softmax_q16(elapsed: &[u64], best: u64, temperature: u64) -> Vec<u32> {
    let exact: Vec<f64> = elapsed.iter().map(|&ns| (-((ns - best) as f64) / temperature as f64).exp()).collect();
    let scale = f64::from(Q16_ONE) / exact.iter().sum::<f64>();
    let mut weights: Vec<u32> = exact.iter().map(|weight| (weight * scale) as u32).collect();
    let mut missing = Q16_ONE.saturating_sub(weights.iter().sum());
    if missing > 0 {
        let mut order: Vec<usize> = (0..elapsed.len()).collect();
        order.sort_by_key(|&index| (elapsed[index], index));
        for &index in order.iter().cycle() {
            weights[index] += 1;
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    weights
}

fn dot_q16(row: &[u32], weights: &[u32]) -> u32 {
    let sum: u128 = row.iter().zip(weights).map(|(&cell, &weight)| u128::from(cell) * u128::from(weight)).sum();
    u32::try_from(sum >> 16).unwrap_or(u32::MAX)
}
