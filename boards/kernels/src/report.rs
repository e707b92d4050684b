//! Medians with their spread, ratios, and the two forms in which they are told.

use serde_json::{Value, json};

/// Times of one variant, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// `exact`, `fast`, `g++ -O3`, `nvcc -O3`, ….
    pub(crate) name: String,
    pub(crate) seconds: Vec<f64>,
    /// Registers and bytes of local memory of an invocation, where they are known.
    pub(crate) registers: Option<[i32; 2]>,
}

impl Times {
    pub(crate) fn new(name: &str) -> Times {
        Times { name: name.to_owned(), seconds: Vec::new(), registers: None }
    }

    fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(((sorted.len() as f64 - 1.0) * part).round() as usize).copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// The order in which variants take their turns in a round: over as many rounds as there are of them, twice as many where that is odd, each
/// comes after each other one equally often. What one leaves behind, threads that still look for work or what is in the caches, is so borne by all.
pub(crate) fn order(round: usize, variants: usize) -> Vec<usize> {
    // 0, 1, the last, 2, the last but one, …: no two steps are alike.
    let place = |turn: usize| if turn % 2 == 1 { turn.div_ceil(2) } else { variants - turn / 2 };
    let mut order: Vec<usize> = (0..variants).map(|turn| (place(turn) + round) % variants).collect();
    if variants % 2 == 1 && round % 2 == 1 {
        order.reverse();
    }
    order
}

/// One kernel on one machine.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) kernel: &'static str,
    pub(crate) machine: String,
    /// Fewest bytes that the work moves.
    pub(crate) bytes: u64,
    pub(crate) times: Vec<Times>,
    /// The results of ours and of the twin are near.
    pub(crate) agrees: bool,
}

/// Which of ours is held against which peer: the peers of exact arithmetic don't contract.
fn pairs(row: &Row) -> Vec<(&Times, &Times)> {
    let find = |name: &str| row.times.iter().find(|times| times.name == name);
    let mut found = Vec::new();
    for ours in ["exact", "fast"] {
        for peer in row.times.iter().filter(|times| times.name != "exact" && times.name != "fast") {
            found.extend(find(ours).map(|ours| (ours, peer)));
        }
    }
    found
}

/// Time of the peer over ours: above one, ours is faster.
fn ratio(ours: &Times, peer: &Times) -> f64 {
    peer.median() / ours.median()
}

fn micros(seconds: f64) -> String {
    format!("{:.1}", seconds * 1e6)
}

/// One row as text, with the machine before the first of its rows.
pub(crate) fn print_row(row: &Row, is_first: bool) {
    if is_first {
        println!(
            "\n{}: median time in µs (10% to 90%); registers/bytes of local memory; GB/s by the fewest bytes",
            row.machine
        );
    }
    println!("{}{}", row.kernel, if row.agrees { "" } else { "  RESULTS DIFFER" });
    for times in &row.times {
        let registers = times.registers.map_or_else(String::new, |[r, l]| format!("  {r} registers/{l} bytes"));
        println!(
            "    {:<28} {:>12} ({} to {})  {:>8.1} GB/s{registers}",
            times.name,
            micros(times.median()),
            micros(times.quantile(0.1)),
            micros(times.quantile(0.9)),
            row.bytes as f64 / times.median() / 1e9,
        );
    }
    let ratios = pairs(row).into_iter();
    let ratios = ratios.map(|(ours, peer)| format!("  {} / {}: {:.2}", ours.name, peer.name, ratio(ours, peer)));
    println!("   {}", ratios.collect::<String>());
}

/// Means over the kernels of each machine.
pub(crate) fn print_means(rows: &[Row]) {
    let mut machines: Vec<&str> = rows.iter().map(|row| row.machine.as_str()).collect();
    machines.dedup();
    for machine in machines {
        let mut means: Vec<(String, Vec<f64>)> = Vec::new();
        for row in rows.iter().filter(|row| row.machine == machine) {
            for (ours, peer) in pairs(row) {
                let what = format!("{} / {}", ours.name, peer.name);
                match means.iter_mut().find(|(name, _)| *name == what) {
                    Some((_, all)) => all.push(ratio(ours, peer)),
                    None => means.push((what, vec![ratio(ours, peer)])),
                }
            }
        }
        println!("\n{machine}: time of the peer over ours (above 1 ours is faster): geometric mean, least");
        for (what, all) in &means {
            let mean = (all.iter().map(|ratio| ratio.ln()).sum::<f64>() / all.len() as f64).exp();
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            println!("    {what:<40} {mean:.2}  {least:.2}  ({} kernels)", all.len());
        }
    }
}

pub(crate) fn json(rows: &[Row]) -> Value {
    let row = |row: &Row| {
        let times = row.times.iter().map(|times| {
            json!({
                "variant": times.name, "median_s": times.median(), "p10_s": times.quantile(0.1), "p90_s": times.quantile(0.9),
                "runs": times.seconds.len(), "registers": times.registers.map(|r| r[0]), "local_bytes": times.registers.map(|r| r[1]),
                "gb_per_s": row.bytes as f64 / times.median() / 1e9,
            })
        });
        let ratios = pairs(row)
            .into_iter()
            .map(|(ours, peer)| (format!("{} / {}", ours.name, peer.name), json!(ratio(ours, peer))));
        json!({
            "kernel": row.kernel, "machine": row.machine, "agrees": row.agrees, "bytes": row.bytes,
            "times": times.collect::<Vec<_>>(), "ratios": ratios.collect::<serde_json::Map<_, _>>(),
        })
    };
    json!({ "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn each_variant_comes_after_each_other_one_equally_often() {
        for (variants, rounds, often) in [(4, 4, 1), (5, 10, 2), (2, 2, 1), (3, 6, 2), (6, 6, 1)] {
            let mut after = vec![vec![0; variants]; variants];
            for round in 0..rounds {
                let order = order(round, variants);
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..variants).collect::<Vec<_>>());
                order.windows(2).for_each(|pair| after[pair[0]][pair[1]] += 1);
            }
            for (before, counts) in after.iter().enumerate() {
                let expected: Vec<_> = (0..variants).map(|variant| if variant == before { 0 } else { often }).collect();
                assert_eq!(*counts, expected, "{variants} variants");
            }
        }
    }
}
