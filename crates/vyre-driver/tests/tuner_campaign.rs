//! The campaign on a simulated device.

#[path = "decide_support/device.rs"]
mod device;
#[path = "decide_support/random.rs"]
mod random;

use device::{CANDIDATES, Device, Surface};
use vyre_driver::tuner::{Campaign, Outcome, Plan, Step, Verdict};

/// An exhaustive sweep takes so many samples of every candidate.
const EXHAUSTIVE: usize = 20;

fn tune(device: &mut Device) -> Outcome {
    let mut campaign = Campaign::new(CANDIDATES, Plan::default());
    loop {
        match campaign.step() {
            Step::Check(candidate) => campaign.checked(candidate, Ok(())),
            Step::Measure(candidate) => campaign.observe(candidate, device.run(candidate)),
            Step::Done => return campaign.outcome().unwrap(),
        }
    }
}

#[test]
fn a_quarter_of_the_samples_finds_the_best() {
    for surface in [Surface::Shaped, Surface::Rugged] {
        let (mut near, mut most, mut winners) = (0, 0, 0);
        let mut worst = 0.0f64;
        for seed in 0..100 {
            let mut device = Device::new(surface, seed, 1);
            let outcome = tune(&mut device);
            let regret = device.costs[outcome.chosen] / device.best() - 1.0;
            near += usize::from(regret <= 0.02);
            worst = worst.max(regret);
            most = most.max(outcome.samples);
            winners += usize::from(outcome.verdict == Verdict::Winner);
        }
        println!("{surface:?}: {near} of 100 within 2%, worst {worst:.3}, at most {most} samples, {winners} winners");
        assert!(near >= 95, "{surface:?}: {near}");
        assert!(most * 4 <= EXHAUSTIVE * CANDIDATES, "{surface:?}: {most} samples");
    }
}
