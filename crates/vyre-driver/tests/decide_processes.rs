//! Decisions of many processes: they agree, none is lost, and none is torn when a process is killed.

#[path = "decide_support/device.rs"]
mod device;
#[path = "decide_support/process.rs"]
mod process;
#[path = "decide_support/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use device::{CANDIDATES, Device, Surface, place};
use process::{all_succeed, child, role};
use random::Random;
use vyre_driver::routing::{BackendLatency, PgoTable, RouteDecision};
use vyre_driver::tuner::{
    Campaign, Candidate, Candidates, Decision, Measured, Mode, Plan, StaticProgramShape, Step, Subject, Tuner,
    TunerCache, TunerProgramKey,
};
use vyre_foundation::ir::Program;

const SURFACES: u64 = 12;

/// In memory where there is such a folder: thousands of synchronised saves say nothing more on a slow disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// One tuned program per surface, each under its own key.
fn key(surface: u64) -> TunerProgramKey {
    TunerProgramKey::from_program(&Program::empty(), StaticProgramShape::new(&Program::empty(), None, surface))
}

fn candidates() -> Candidates {
    let candidate = |index: usize| Candidate::of_shape([index as u32 + 1, 1, 1]);
    let places = (0..CANDIDATES).map(place).collect();
    Candidates { list: (0..CANDIDATES).map(candidate).collect(), places, first: None, prior: None }
}

fn simulated(surface: u64, noise_seed: u64) -> Device {
    let kind = if surface.is_multiple_of(2) { Surface::Shaped } else { Surface::Rugged };
    let mut device = Device::new(kind, surface, noise_seed);
    if surface.is_multiple_of(3) {
        // Two launches that are exactly alike and faster than all others, and one more that is only a little slower.
        let best = device.best();
        device.costs[7] = 0.8 * best;
        device.costs[31] = 0.8 * best;
        device.costs[40] = 0.81 * best;
    }
    device
}

fn tune(surface: u64, noise_seed: u64) -> Decision {
    let mut device = simulated(surface, noise_seed);
    let mut campaign = Campaign::new(CANDIDATES, Plan::default());
    loop {
        match campaign.step() {
            Step::Check(candidate) => campaign.checked(candidate, Ok(())),
            Step::Measure(candidate) => campaign.observe(candidate, device.run(candidate)),
            Step::Done => break,
        }
    }
    Decision::new(Subject::default(), &candidates(), &campaign.outcome().unwrap(), Measured::default())
}

#[test]
fn sixty_fresh_processes_agree() {
    let name = "sixty_fresh_processes_agree";
    if let Some(role) = role() {
        let mut tuner = Tuner::at(&role[0], Mode::On);
        for surface in 0..SURFACES {
            tuner.record(key(surface), tune(surface, role[1].parse().unwrap()));
        }
        tuner.save().unwrap();
        return;
    }
    let folder = folder();
    let path = |process: usize| folder.path().join(format!("{process}.toml")).to_str().unwrap().to_owned();
    for batch in 0..15 {
        let processes = (4 * batch..4 * batch + 4).map(|process| child(name, &[&path(process), &process.to_string()]));
        all_succeed(processes.map(|mut command| command.spawn().unwrap()).collect());
    }
    let mut answers: BTreeMap<u64, BTreeMap<u32, usize>> = BTreeMap::new();
    for process in 0..60 {
        let cache = TunerCache::load(path(process)).unwrap();
        assert_eq!(cache.entries.len() as u64, SURFACES);
        for surface in 0..SURFACES {
            let size = cache.get_key(&key(surface)).unwrap();
            *answers.entry(surface).or_default().entry(size[0]).or_default() += 1;
        }
    }
    let mut agreeing = 0;
    let mut worst = 0.0f64;
    for (surface, answers) in &answers {
        let cost = |answer: u32| simulated(*surface, 0).costs[answer as usize - 1];
        let (&common, &most) = answers.iter().max_by_key(|(_, count)| **count).unwrap();
        agreeing += usize::from(most >= 58);
        for &answer in answers.keys() {
            worst = worst.max((cost(answer) / cost(common) - 1.0).abs());
        }
    }
    println!("{agreeing} of {SURFACES} programs have one answer in 58 of 60 processes; {answers:?}; worst {worst:.4}");
    assert!(worst <= 0.03, "answers differ by {worst:.4}: {answers:?}");
    assert!(agreeing >= 6, "{agreeing}: {answers:?}");
}

#[test]
fn sixteen_processes_lose_no_decision() {
    let name = "sixteen_processes_lose_no_decision";
    if let Some(role) = role() {
        let (folder, me) = (Path::new(&role[0]), &role[1]);
        for decision in 0..200u32 {
            let mut cache = TunerCache::default();
            cache.set(format!("process {me} decision {decision}"), [decision + 1, 1, 1]);
            cache.save(folder.join("tuner.toml")).unwrap();
        }
        let mut table = PgoTable::default();
        for decision in 0..10 {
            let observations = vec![BackendLatency { backend: me.clone(), latency_ns: decision }];
            table.routes.insert(format!("{me} {decision}"), RouteDecision { backend: me.clone(), observations });
            table.save(folder.join("pgo.toml")).unwrap();
        }
        return;
    }
    let folder = folder();
    let processes = (0..16).map(|me| child(name, &[folder.path().to_str().unwrap(), &me.to_string()]).spawn().unwrap());
    all_succeed(processes.collect());
    let cache = TunerCache::load(folder.path().join("tuner.toml")).unwrap();
    assert_eq!(cache.entries.len(), 16 * 200);
    for me in 0..16 {
        for decision in 0..200u32 {
            let key = format!("process {me} decision {decision}");
            assert_eq!(cache.get(&key), Some([decision + 1, 1, 1]), "{key}");
        }
    }
    assert_eq!(PgoTable::load(folder.path().join("pgo.toml")).unwrap().routes.len(), 16 * 10);
}

#[test]
fn killing_a_process_tears_nothing_and_loses_nothing_saved() {
    let name = "killing_a_process_tears_nothing_and_loses_nothing_saved";
    if let Some(role) = role() {
        let first: u32 = role[1].parse().unwrap();
        for decision in first.. {
            let mut cache = TunerCache::default();
            cache.set(format!("decision {decision}"), [decision + 1, 1, 1]);
            cache.save(&role[0]).unwrap();
            eprintln!("{decision}");
            std::io::stderr().flush().unwrap();
        }
        return;
    }
    let folder = folder();
    let path = folder.path().join("tuner.toml");
    let mut random = Random(2026);
    let mut saved = 0u32;
    let mut kills = 0;
    while saved < 1_000 {
        let mut command = child(name, &[path.to_str().unwrap(), &saved.to_string()]);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let before = saved;
        let (saving, started) = std::sync::mpsc::channel();
        let micros = random.word() % 30_000;
        let killer = std::thread::spawn(move || {
            // From the first save on, or from the end of a child that could not save.
            let _ = started.recv();
            std::thread::sleep(Duration::from_micros(micros));
            // `kill` is SIGKILL on Unix.
            process.kill().unwrap();
            process.wait().unwrap();
        });
        for line in lines {
            let line = line.unwrap();
            let decision: u32 = line.trim().parse().unwrap_or_else(|_| panic!("the child failed: {line}"));
            saved = decision + 1;
            // Lines are still there to be read when the child and the killer are gone.
            let _ = saving.send(());
        }
        drop(saving);
        assert!(saved > before, "the child saved nothing");
        killer.join().unwrap();
        kills += 1;
        let cache = TunerCache::load(&path).unwrap_or_default();
        for decision in 0..saved {
            assert_eq!(cache.get(&format!("decision {decision}")), Some([decision + 1, 1, 1]), "after {kills} kills");
        }
        assert!(cache.entries.len() as u32 <= saved + 1);
    }
    println!("{saved} saves survived {kills} kills");
    // What the killed ones left behind is in nobody's way.
    TunerCache::default().save(&path).unwrap();
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the table and its lock: {left:?}");
}
