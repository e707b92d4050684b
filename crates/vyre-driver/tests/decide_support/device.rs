//! A simulated device: a known cost for each of 48 launches, noise, stalls and drift.

use super::random::Random;

pub(crate) const CANDIDATES: usize = 48;

/// How a surface is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Workgroup sizes, tiles and unrolling each have a best value and cost more the further away, and every launch has a
    /// quirk of its own.
    Shaped,
    /// Every launch has a cost that says nothing about the others.
    Rugged,
}

pub(crate) struct Device {
    /// True time of each candidate at no drift.
    pub(crate) costs: Vec<f64>,
    random: Random,
    clock: f64,
    phase: f64,
    period: f64,
}

/// Where a candidate stands: workgroup size, tile and unrolling. The default, which is number 0, stands at `[1, 0, 0]`.
pub(crate) fn place(candidate: usize) -> Vec<u32> {
    let at = (candidate + 8) % CANDIDATES;
    vec![(at / 8) as u32, (at / 2 % 4) as u32, (at % 2) as u32]
}

impl Device {
    pub(crate) fn new(surface: Surface, seed: u64, noise_seed: u64) -> Device {
        let mut random = Random(seed);
        let best = [1.0 + 3.0 * random.unit(), 3.0 * random.unit(), random.unit()];
        let steep = [0.04 + 0.06 * random.unit(), 0.03 + 0.05 * random.unit(), 0.1 * random.unit()];
        let mut costs: Vec<f64> = Vec::new();
        for candidate in 0..CANDIDATES {
            let place = place(candidate);
            let cost = match surface {
                Surface::Shaped => {
                    let far: f64 = (0..3).map(|axis| steep[axis] * (f64::from(place[axis]) - best[axis]).powi(2)).sum();
                    (far + 0.03 * random.normal()).exp()
                }
                Surface::Rugged => 1.0 + 1.5 * random.unit(),
            };
            costs.push(50_000.0 * cost);
        }
        let mut random = Random(noise_seed.wrapping_mul(0x1234_5678_9abc_def1) ^ seed);
        let (phase, period) = (random.unit() * std::f64::consts::TAU, 100.0 + 900.0 * random.unit());
        Device { costs, random, clock: 0.0, phase, period }
    }

    /// Runs a launch: 2% noise, 3% stalls, ±5% drift.
    pub(crate) fn run(&mut self, candidate: usize) -> u64 {
        self.clock += 1.0;
        let drift = 1.0 + 0.05 * (self.phase + std::f64::consts::TAU * self.clock / self.period).sin();
        let noise = 1.0 + 0.02 * self.random.normal();
        let stall = if self.random.unit() < 0.03 { 1.5 + 3.5 * self.random.unit() } else { 1.0 };
        (self.costs[candidate] * drift * noise * stall) as u64
    }

    pub(crate) fn best(&self) -> f64 {
        self.costs.iter().copied().fold(f64::INFINITY, f64::min)
    }
}
