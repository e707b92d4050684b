//! `vyre route`: measure a kernel on every backend over sizes, and remember which is fastest where.

use serde_json::json;
use vyre::routing::Explanation;
use vyre::{Diagnostic, Engine, codes};

use crate::args::{Inputs, Route};
use crate::job::Job;
use crate::plot::{self, Series};
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::route_folder::route_folder;

/// What was measured at one size.
struct Row {
    size: u64,
    n: u64,
    /// Backend and median, in the order of preference.
    medians: Vec<(String, f64)>,
}

pub(crate) fn route(args: &Route, output: &Output) -> Result<(), Failure> {
    if args.kernel.kernel.is_dir() {
        return route_folder(args, output);
    }
    if args.inputs.backend != "auto" {
        return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, "`vyre route` measures every backend")
            .with_fix("Leave `--backend` out, or use `vyre bench` to time one backend.")
            .into());
    }
    let sizes = sizes(&args.sizes)?;
    let engine = Engine::open()?;
    let backends = engine.backend_ids().len() as u64;
    let progress = Progress::new("measuring", Some(sizes.len() as u64 * backends * u64::from(args.rounds + 1)));
    let mut rows = Vec::new();
    let mut out: Vec<(String, String)> = Vec::new();
    let mut routes: Option<Explanation> = None;
    for (at, &size) in sizes.iter().enumerate() {
        let job = Job::new(&args.kernel, &at_size(&args.inputs, size)?)?;
        let mut runs = 0;
        let certified = engine.certify(&job.source.program, &job.inputs(), &job.config, args.rounds, &mut || {
            runs += 1;
            progress.step();
        })?;
        // Backends that are absent did not run; the bar should know.
        progress.set((at + 1) * runs, sizes.len() * runs);
        let mut medians = Vec::new();
        for racer in certified.racers {
            match racer.times {
                Ok(times) => {
                    let mut times: Vec<f64> = times.into_iter().map(|ns| ns as f64).collect();
                    let [median] = quantiles(&mut times, [0.5]);
                    medians.push((racer.backend, median));
                }
                Err(why) if out.iter().all(|(known, _)| *known != racer.backend) => out.push((racer.backend, why)),
                Err(_) => {}
            }
        }
        rows.push(Row { size, n: certified.n, medians });
        routes = Some(certified.routes);
    }
    drop(progress);
    engine.flush()?;
    output.problems(&engine.take_notices());
    let crossovers = routes.map(|routes| routes.crossovers).unwrap_or_default();
    if output.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                let times: serde_json::Map<_, _> =
                    row.medians.iter().map(|(backend, ns)| (backend.clone(), json!(ns))).collect();
                json!({ "size": row.size, "invocations": row.n, "median_ns": times })
            })
            .collect();
        let out: Vec<_> = out.iter().map(|(backend, why)| json!({ "backend": backend, "why": why })).collect();
        return output.print_json(&json!({ "sizes": rows, "crossovers": crossovers, "absent": out }));
    }
    let mut names: Vec<String> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.medians) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let columns: String = names.iter().map(|name| format!(" {name:>12}")).collect();
    let mut text = vec![format!("{:>12} {:>12}{columns}  fastest", "N", "invocations")];
    for row in &rows {
        let of = |name: &String| row.medians.iter().find(|(known, _)| known == name).map(|(_, ns)| *ns);
        let cells: String =
            names.iter().map(|name| format!(" {:>12}", of(name).map_or("-".to_owned(), time))).collect();
        let fastest = row.medians.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or("-", |(name, _)| name.as_str());
        text.push(format!("{:>12} {:>12}{cells}  {fastest}", row.size, row.n));
    }
    let series: Vec<Series> = names
        .iter()
        .map(|name| {
            let points = rows.iter().filter_map(|row| {
                let found = row.medians.iter().find(|(known, _)| known == name);
                found.map(|(_, ns)| (row.n as f64, *ns))
            });
            Series { name: name.clone(), points: points.collect() }
        })
        .collect();
    let marks: Vec<f64> = crossovers.iter().map(|crossover| crossover.n as f64).collect();
    text.push(String::new());
    text.extend(plot::curves(&series, &marks));
    for crossover in &crossovers {
        let [low, high] = crossover.unsure;
        text.push(format!(
            "{} is faster than {} above {} invocations (unsure from {low} to {high})",
            crossover.above, crossover.below, crossover.n
        ));
    }
    for (backend, why) in &out {
        text.push(format!("{backend} is out: {why}"));
    }
    text.push(match names.len() {
        0 => "Nothing could run it; the reference interpreter will.".to_owned(),
        1 => format!("Only {} can run it here. The times are remembered.", names[0]),
        _ => "Remembered: from now on `vyre run` goes by these times where no backend is named.".to_owned(),
    });
    output.print(&text.join("\n"))
}

/// `1e3,1e4` or `1e3..1e6`, which is doubled twice for each step.
pub(crate) fn sizes(text: &str) -> Result<Vec<u64>, Diagnostic> {
    const MOST: f64 = 4.0e9;
    let wrong = |why: String| {
        Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("`--sizes {text}`: {why}"))
            .with_fix("Write sizes as in --sizes 1e3,1e4,1e5 or --sizes 1e3..1e6.")
    };
    let size = |text: &str| match text.trim().parse::<f64>() {
        Ok(size) if (1.0..=MOST).contains(&size) && size.fract() == 0.0 => Ok(size as u64),
        _ => Err(wrong(format!("`{text}` is not a size from 1 to 4e9"))),
    };
    let mut sizes = Vec::new();
    match text.split_once("..") {
        Some((first, last)) => {
            let (first, last) = (size(first)?, size(last)?);
            if first > last {
                return Err(wrong("the first is larger than the last".to_owned()));
            }
            let mut next = first;
            while next < last {
                sizes.push(next);
                next = next.saturating_mul(4);
            }
            sizes.push(last);
        }
        None => {
            for item in text.split(',') {
                sizes.push(size(item)?);
            }
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// The inputs with every `N` in generators and shapes replaced.
fn at_size(inputs: &Inputs, size: u64) -> Result<Inputs, Diagnostic> {
    let mut found = false;
    let mut replace = |text: &String| {
        let Some((name, value)) = text.split_once('=') else { return text.clone() };
        let parts: Vec<String> = value
            .split(':')
            .map(|part| {
                let axes: Vec<String> = part
                    .split('x')
                    .map(|axis| {
                        if axis == "N" {
                            found = true;
                            size.to_string()
                        } else {
                            axis.to_owned()
                        }
                    })
                    .collect();
                axes.join("x")
            })
            .collect();
        format!("{name}={}", parts.join(":"))
    };
    let made = Inputs {
        inputs: inputs.inputs.iter().map(&mut replace).collect(),
        shapes: inputs.shapes.iter().map(&mut replace).collect(),
        ..inputs.clone()
    };
    if found {
        return Ok(made);
    }
    Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, "no input and no shape has the size `N`")
        .with_fix("Write N where the size goes, as in --in a=random:f32:N or --shape out=NxN."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_or_ranges() {
        assert_eq!(sizes("1e3,10,10").unwrap(), [10, 1000]);
        assert_eq!(sizes("100..1e4").unwrap(), [100, 400, 1600, 6400, 10_000]);
        for wrong in ["NaN", "-1", "0", "1.5", "inf", "5..2", "", "1e300"] {
            assert_eq!(sizes(wrong).unwrap_err().code.id, codes::command::BAD_ARGUMENT.id, "{wrong}");
        }
    }

    #[test]
    fn n_is_replaced_where_it_stands_alone() {
        let inputs = Inputs {
            inputs: vec!["N=random:f32:N:seed=1".to_owned(), "b=N.npy".to_owned()],
            shapes: vec!["out=NxNx3".to_owned()],
            backend: "auto".to_owned(),
            timeout: None,
            cast: false,
        };
        let made = at_size(&inputs, 64).unwrap();
        assert_eq!(made.inputs, ["N=random:f32:64:seed=1", "b=N.npy"]);
        assert_eq!(made.shapes, ["out=64x64x3"]);
        let none = Inputs { inputs: vec!["a=iota:8".to_owned()], shapes: Vec::new(), ..inputs };
        assert!(at_size(&none, 64).is_err());
    }
}
