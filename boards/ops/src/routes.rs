//! Where an engine with every device of this machine runs ops, over sizes, beside an engine with each device alone.

use std::hint::black_box;
use std::time::Instant;

use vyre::{Array, BackendId, Engine, Error};
use vyre_ops::Ops;

use crate::data::words;

/// Powers of two that ops are tried with: elements of a work.
const POWERS: std::ops::RangeInclusive<u32> = 4..=28;
/// From one to the next.
const STEP: usize = 4;
/// Bytes that come from the host and go back to it in each run are not more than these, in elements.
const MOST_FROM_HOST: u32 = 24;
/// Products of larger matrices take processors long.
const MOST_OF_A_PRODUCT: u32 = 24;

/// An op on an array of so many elements.
struct Op {
    name: &'static str,
    run: fn(&Array<f32>) -> Result<Array<f32>, Error>,
    /// Extents of an array of 2 to this power elements.
    shape: fn(u32) -> Vec<usize>,
}

fn line(power: u32) -> Vec<usize> {
    vec![1 << power]
}

fn square(power: u32) -> Vec<usize> {
    vec![1 << power.div_ceil(2), 1 << (power / 2)]
}

const OPS: [Op; 7] = [
    Op { name: "map a*a+1", run: |x| (x * x + 1.0).eval(), shape: line },
    Op { name: "sum", run: |x| x.sum(), shape: line },
    Op { name: "cumsum", run: |x| x.cumsum(), shape: line },
    Op { name: "sort", run: |x| x.sort(), shape: line },
    Op { name: "softmax of rows", run: |x| x.softmax(), shape: square },
    Op { name: "matmul", run: |x| x.matmul(x), shape: square },
    Op { name: "fft", run: |x| x.fft(), shape: |power| vec![1 << (power / 2 - 1), 1 << power.div_ceil(2), 2] },
];

/// The engines that are compared.
struct Engines {
    ids: Vec<String>,
    all: Engine,
    /// With one device each, in the order of the ids.
    alone: Vec<Engine>,
    /// For each engine, at each op and size.
    seconds: f64,
}

/// Prints a line for each op and size, and keeps what was learnt in a folder, where one is named.
pub(crate) fn print(seconds: f64, only: &[&String], learnt: Option<&str>) {
    let builder = match learnt {
        Some(folder) => Engine::builder().cache_at(folder),
        None => Engine::builder().without_disk(),
    };
    let all = builder.open().expect("the engine opens");
    let alone = |id: BackendId| {
        let backend = all.backend(id.as_str()).ok().filter(|_| id.as_str() != "reference")?;
        let engine = Engine::builder().without_disk().without_default_backends().with_backend(backend, 1).open();
        Some((id.to_string(), engine.expect("the engine opens")))
    };
    let (ids, alone) = all.backend_ids().into_iter().filter_map(alone).unzip();
    let engines = Engines { ids, alone, all, seconds };
    let values: Vec<f32> = words(1 << POWERS.end()).iter().map(|word| (word >> 8) as f32 / (1 << 23) as f32).collect();
    let names: Vec<String> = engines.ids.iter().map(|id| format!("{id}, µs")).collect();
    println!("| op | elements | data | {} | the router takes | µs | over the fastest |", names.join(" | "));
    println!("|---|---|---|{}---|---|---|", "---|".repeat(names.len()));
    for op in OPS.iter().filter(|op| only.is_empty() || only.iter().any(|name| op.name.starts_with(name.as_str()))) {
        for power in POWERS.step_by(STEP).filter(|power| op.name != "matmul" || *power <= MOST_OF_A_PRODUCT) {
            engines.row(op, power, &values[..1 << power], false);
            if power <= MOST_FROM_HOST {
                engines.row(op, power, &values[..1 << power], true);
            }
        }
    }
    engines.all.flush().expect("what was learnt can be kept");
}

impl Engines {
    fn row<'a>(&'a self, op: &'a Op, power: u32, values: &'a [f32], from_host: bool) {
        let runs = |engine: &'a Engine| Runs::new(engine, op, power, values, from_host);
        let alone = |(engine, id): (&'a Engine, &String)| {
            let time = runs(engine).median(self.seconds);
            time.inspect_err(|error| eprintln!("{} of 2^{power} on {id}: {error}", op.name)).ok()
        };
        let alone: Vec<Option<f64>> = self.alone.iter().zip(&self.ids).map(alone).collect();
        let mut routed = runs(&self.all);
        // It learns first.
        let took =
            routed.median(3.0 * self.seconds).and_then(|_| routed.median(self.seconds)).expect("a device has room");
        let place = self.place(&mut routed).expect("a device has room");
        let least = alone.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        // A device that has no room for it has no time.
        let shown: Vec<String> =
            alone.iter().map(|time| time.map_or("–".to_owned(), |time| format!("{time:.1}"))).collect();
        let (name, data) = (op.name, if from_host { "host" } else { "stays" });
        println!("| {name} | 2^{power} | {data} | {} | {place} | {took:.1} | {:.2} |", shown.join(" | "), took / least);
    }

    /// The device that has more in its memory after a run than before: the result.
    fn place(&self, runs: &mut Runs<'_>) -> Result<String, Error> {
        let used = || self.all.memory().into_iter().map(|device| (device.device, device.used)).collect::<Vec<_>>();
        let before = used();
        let result = (runs.run)()?;
        let more = used().into_iter().filter(|now| before.iter().all(|then| then.0 != now.0 || then.1 < now.1));
        let found: Vec<String> = more.map(|(device, _)| device).collect();
        result.wait()?;
        // What the processor makes is in the host's memory.
        Ok(self.ids.iter().find(|id| found.contains(id)).cloned().unwrap_or_else(|| "cpu".to_owned()))
    }
}

/// Runs of an op on an array that stays where it is, or on values of the host, to which the results come back.
struct Runs<'a> {
    run: Box<dyn FnMut() -> Result<Array<f32>, Error> + 'a>,
    from_host: bool,
}

impl<'a> Runs<'a> {
    fn new(engine: &'a Engine, op: &'a Op, power: u32, values: &'a [f32], from_host: bool) -> Runs<'a> {
        let shape = (op.shape)(power);
        let array = move || engine.from_shape(&shape[..], values);
        if from_host {
            return Runs { run: Box::new(move || (op.run)(&array()?)), from_host };
        }
        let array = array();
        Runs { run: Box::new(move || (op.run)(array.as_ref().map_err(Clone::clone)?)), from_host }
    }

    /// Microseconds of a run, as many as there is time for.
    fn median(&mut self, seconds: f64) -> Result<f64, Error> {
        let (mut times, begun) = (Vec::new(), Instant::now());
        while times.len() < 3 || times.len() < 2000 && begun.elapsed().as_secs_f64() < seconds {
            let started = Instant::now();
            let result = (self.run)()?;
            match self.from_host {
                true => drop(black_box(result.to_vec()?)),
                false => result.wait()?,
            }
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}
