//! Learning from real dispatches, on a simulated device.

#[path = "decide_support/device.rs"]
mod device;
#[path = "decide_support/random.rs"]
mod random;

use device::{CANDIDATES, Device, Surface, place};
use vyre_driver::tuner::{OnlineTuner, Turn, Verdict};

const DISPATCHES: usize = 1_000;

fn places() -> Vec<Vec<u32>> {
    (0..CANDIDATES).map(place).collect()
}

/// The true time of 1,000 dispatches. Candidates are proven to be right, so that a check is one more dispatch of the default.
fn run(device: &mut Device, tuner: &mut OnlineTuner) -> f64 {
    let mut total = 0.0;
    for _ in 0..DISPATCHES {
        match tuner.turn() {
            Turn::Run(candidate) => {
                total += device.costs[candidate];
                tuner.observe(candidate, device.run(candidate));
            }
            Turn::Check(candidate) => {
                total += device.costs[0];
                tuner.observe(0, device.run(0));
                tuner.checked(candidate, Ok(()));
            }
            Turn::Use(candidate) => total += device.costs[candidate],
        }
    }
    total
}

/// What the mode adds to the time of always using the best, for each of 100 devices.
fn added(surface: Surface) -> Vec<f64> {
    let mut added = Vec::new();
    for seed in 0..100 {
        let mut device = Device::new(surface, seed, 1);
        let mut tuner = OnlineTuner::new(&places(), seed);
        let total = run(&mut device, &mut tuner);
        added.push(total / (DISPATCHES as f64 * device.best()) - 1.0);
        let outcome = tuner.outcome().expect("1,000 dispatches are enough to decide");
        assert!(
            device.costs[outcome.chosen] < 1.02 * device.costs[0],
            "seed {seed}: decided for a candidate that is slower than the default"
        );
        assert!(outcome.interval[0] <= outcome.difference && outcome.difference <= outcome.interval[1]);
    }
    added.sort_by(f64::total_cmp);
    let mean = added.iter().sum::<f64>() / added.len() as f64;
    let below = added.iter().filter(|added| **added <= 0.01).count();
    println!(
        "{surface:?}: adds {:.2}% on average, {:.2}% at the median, {:.2}% at worst; under 1% on {below} of 100 devices",
        100.0 * mean,
        100.0 * added[50],
        100.0 * added[99]
    );
    added
}

#[test]
fn exploration_adds_about_a_percent() {
    let added = added(Surface::Shaped);
    let mean = added.iter().sum::<f64>() / added.len() as f64;
    assert!(mean <= 0.011, "{mean} on average");
    assert!(added[98] <= 0.04, "{} on the worst but one", added[98]);
}

#[test]
fn where_neighbours_tell_nothing_exploration_stays_bounded() {
    // Forty-eight unrelated times have to be tried one by one, which alone costs more than three percent.
    let added = added(Surface::Rugged);
    let mean = added.iter().sum::<f64>() / added.len() as f64;
    assert!(mean <= 0.05, "{mean} on average");
    assert!(added[94] <= 0.1, "{} on the 95th device", added[94]);
}

/// A launch in two dimensions: 16 candidates of which any may be the author's own.
fn picture(seed: u64) -> (Vec<Vec<u32>>, Vec<f64>) {
    let mut random = random::Random(seed ^ 0x5555);
    let mut places: Vec<Vec<u32>> = (3..7).flat_map(|x| (0..4).map(move |y| vec![x, y, 0])).collect();
    let own = (random.unit() * 16.0) as usize;
    places.swap(0, own);
    let best = [3.0 + 5.0 * random.unit(), 3.0 * random.unit()];
    let steep = [0.03 + 0.08 * random.unit(), 0.02 + 0.08 * random.unit()];
    let cost = |place: &Vec<u32>| {
        let far = |axis: usize| steep[axis] * (f64::from(place[axis]) - best[axis]).powi(2);
        50_000.0 * (far(0) + far(1) + 0.03 * random.normal()).exp().min(8.0)
    };
    let costs = places.iter().map(cost).collect();
    (places, costs)
}

#[test]
fn sixteen_candidates_are_settled_within_sixty_dispatches() {
    let mut sum = 0.0;
    for seed in 0..300 {
        let (places, costs) = picture(seed);
        let mut device = Device::new(Surface::Shaped, seed, 3);
        device.costs[..16].copy_from_slice(&costs);
        let mut tuner = OnlineTuner::new(&places, seed);
        sum += run(&mut device, &mut tuner) / (DISPATCHES as f64 * costs.iter().copied().fold(f64::INFINITY, f64::min))
            - 1.0;
        assert!(tuner.samples() <= 60, "seed {seed}: {} dispatches", tuner.samples());
        let chosen = tuner.outcome().unwrap().chosen;
        assert!(costs[chosen] <= 1.02 * costs[0], "seed {seed}: slower than the author's own");
    }
    println!("16 candidates: adds {:.2}% on average", sum / 3.0);
    assert!(sum / 300.0 <= 0.0125, "{}", sum / 300.0);
}

#[test]
fn the_first_dispatches_run_on_the_default() {
    let mut tuner = OnlineTuner::new(&places(), 3);
    for ns in [1_000, 1_010] {
        assert_eq!(tuner.turn(), Turn::Run(0));
        tuner.observe(0, ns);
    }
    let mut tuner = OnlineTuner::new(&places(), 3);
    for ns in [3_000, 1_000, 1_010] {
        assert_eq!(tuner.turn(), Turn::Run(0), "two timings that differ are not enough");
        tuner.observe(0, ns);
    }
    assert!(matches!(tuner.turn(), Turn::Run(candidate) if candidate != 0));
}

#[test]
fn the_policy_is_a_distribution_that_leaves_slow_candidates() {
    let mut device = Device::new(Surface::Shaped, 9, 1);
    let mut tuner = OnlineTuner::new(&places(), 9);
    let mut seen = 0;
    while let Turn::Run(candidate) = tuner.turn() {
        tuner.observe(candidate, device.run(candidate));
        let policy = tuner.policy();
        assert!((policy.iter().sum::<f64>() - 1.0).abs() < 1e-9 && policy.iter().all(|weight| *weight >= 0.0));
        seen += 1;
        assert!(seen < 1_000, "it ends");
    }
    let policy = tuner.policy();
    let slowest = (0..CANDIDATES).max_by(|&a, &b| device.costs[a].total_cmp(&device.costs[b])).unwrap();
    assert!(policy[slowest] < 1e-4, "{}", policy[slowest]);
}

#[test]
fn equal_seeds_and_timings_give_equal_choices() {
    let run = || {
        let mut device = Device::new(Surface::Shaped, 4, 4);
        let mut tuner = OnlineTuner::new(&places(), 11);
        let mut turns = Vec::new();
        while let Turn::Run(candidate) = tuner.turn() {
            turns.push(candidate);
            tuner.observe(candidate, device.run(candidate));
        }
        turns
    };
    assert_eq!(run(), run());
}

#[test]
fn a_candidate_with_other_results_cannot_win() {
    let mut device = Device::new(Surface::Shaped, 5, 1);
    let mut tuner = OnlineTuner::new(&places(), 5);
    let mut wrong = None;
    let chosen = loop {
        match tuner.turn() {
            Turn::Run(candidate) => {
                assert_ne!(wrong, Some(candidate), "it is not tried again");
                tuner.observe(candidate, device.run(candidate));
            }
            Turn::Check(candidate) => {
                tuner.observe(0, device.run(0));
                tuner.observe(candidate, device.run(candidate));
                let first = wrong.is_none();
                wrong = wrong.or(Some(candidate));
                tuner.checked(candidate, if first { Err("its result differs".to_owned()) } else { Ok(()) });
            }
            Turn::Use(candidate) => break candidate,
        }
    };
    let outcome = tuner.outcome().unwrap();
    assert_ne!(Some(chosen), wrong);
    assert_eq!(outcome.rejected, [(wrong.unwrap(), "its result differs".to_owned())]);
    assert!(device.costs[chosen] < 1.1 * device.best());
}

#[test]
fn a_warm_start_is_tried_first_and_dropped_when_it_is_slow_now() {
    let times = |fast: usize| move |candidate: usize| if candidate == fast { 500 } else { 1_000 + candidate as u64 };
    let learn = |times: &dyn Fn(usize) -> u64| {
        let mut tuner = OnlineTuner::warm(&places(), 1, 17);
        let mut order = Vec::new();
        loop {
            match tuner.turn() {
                Turn::Run(candidate) => {
                    order.push(candidate);
                    tuner.observe(candidate, times(candidate));
                }
                Turn::Check(candidate) => {
                    tuner.observe(0, times(0));
                    tuner.observe(candidate, times(candidate));
                    tuner.checked(candidate, Ok(()));
                }
                Turn::Use(candidate) => return (order, candidate, tuner.outcome().unwrap()),
            }
        }
    };
    let (order, chosen, outcome) = learn(&times(17));
    assert_eq!((order[2], chosen), (17, 17));
    assert!(outcome.interval[1] < -0.4, "{:?}", outcome.interval);
    let (_, chosen, outcome) = learn(&times(0));
    assert_eq!((chosen, outcome.difference), (0, 0.0));
}

#[test]
fn a_single_candidate_needs_no_learning() {
    let mut tuner = OnlineTuner::new(&[vec![1]], 1);
    let mut turns = 0;
    while let Turn::Run(candidate) = tuner.turn() {
        tuner.observe(candidate, 1_000);
        turns += 1;
        assert!(turns < 20);
    }
    assert_eq!(tuner.turn(), Turn::Use(0));
    assert_eq!(tuner.outcome().unwrap().verdict, Verdict::Tie);
}
