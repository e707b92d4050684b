//! Ops on this processor beside plain Rust with rayon and the libraries that people take for the same, in turn in one process.
//!
//! `cargo run --release -p vyre-op-board --features libraries` prints a table and writes `op-board.json`; `-- --docs NAME` also puts the table
//! under that name into `docs/benchmarks/ops.md`, and `-- sum sort` takes only these works.

mod limits;
#[path = "../../../crates/vyre-ops/benches/board/peers.rs"]
#[allow(dead_code, reason = "the board of the crate itself has more")]
mod plain;
mod works;

use std::fmt::Write;
use std::time::Instant;

use serde_json::json;

use limits::Limits;

const ROUNDS: usize = 11;
/// A side of a round takes so many milliseconds at least.
const LONG_ENOUGH: f64 = 8.0;

/// What is measured: the least that it has to move and compute, the op, and what others have for it.
struct Work<'a> {
    name: &'static str,
    bytes: f64,
    operations: f64,
    ours: Box<dyn FnMut() + 'a>,
    peers: Vec<(&'static str, Box<dyn FnMut() + 'a>)>,
}

struct Row {
    name: &'static str,
    ours_ms: f64,
    peers: Vec<Peer>,
    gb_per_s: f64,
    gflops: f64,
    of_limit: f64,
}

struct Peer {
    name: &'static str,
    ms: f64,
    /// Its time over ours: a quarter of the rounds had less, half of them, three quarters.
    ratio: [f64; 3],
}

fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Milliseconds of a run, as the mean of several.
fn timed(run: &mut dyn FnMut(), runs: u32) -> f64 {
    let started = Instant::now();
    (0..runs).for_each(|_| run());
    started.elapsed().as_secs_f64() * 1e3 / f64::from(runs)
}

fn measure(work: &mut Work<'_>, limits: &Limits) -> Row {
    let mut sides: Vec<&mut Box<dyn FnMut() + '_>> = vec![&mut work.ours];
    sides.extend(work.peers.iter_mut().map(|(_, run)| run));
    // The first run compiles and touches memory.
    let runs: Vec<u32> = sides
        .iter_mut()
        .map(|run| {
            timed(&mut ***run, 1);
            (LONG_ENOUGH / timed(&mut ***run, 1)).clamp(1.0, 64.0) as u32
        })
        .collect();
    let mut times = vec![Vec::new(); sides.len()];
    for round in 0..ROUNDS {
        // Whoever is first has other caches and clocks, so they take turns.
        for step in 0..sides.len() {
            let side = (round + step) % sides.len();
            times[side].push(timed(&mut **sides[side], runs[side]));
        }
    }
    let ours = times.remove(0);
    let peer = |(name, mut times): (&'static str, Vec<f64>)| {
        let mut ratios: Vec<f64> = times.iter().zip(&ours).map(|(peer, own)| peer / own).collect();
        Peer { name, ms: quartiles(&mut times)[1], ratio: quartiles(&mut ratios) }
    };
    let names = work.peers.iter().map(|(name, _)| *name);
    let mut peers: Vec<Peer> = names.zip(times).map(peer).collect();
    peers.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    let ours_ms = quartiles(&mut ours.clone())[1];
    let (gb_per_s, gflops) = (work.bytes / ours_ms * 1e-6, work.operations / ours_ms * 1e-6);
    let of_limit = (gb_per_s / limits.gb_per_s).max(gflops / limits.gflops);
    Row { name: work.name, ours_ms, peers, gb_per_s, gflops, of_limit }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let docs = args.iter().position(|arg| arg == "--docs").and_then(|at| args.get(at + 1)).cloned();
    let is_name = |arg: &&String| !arg.starts_with("--") && Some(*arg) != docs.as_ref();
    let only: Vec<&String> = args.iter().filter(is_name).collect();
    let limits = Limits::measured();
    let data = works::Data::new();
    let mut rows = Vec::new();
    for work in &mut works::all(&data) {
        if only.is_empty() || only.iter().any(|name| work.name.starts_with(name.as_str())) {
            rows.push(measure(work, &limits));
            eprintln!("{}: {:.3} ms", work.name, rows[rows.len() - 1].ours_ms);
        }
    }
    let text = table(&rows, &limits);
    print!("{text}");
    let row = |row: &Row| {
        let peer = |peer: &Peer| json!({ "name": peer.name, "ms": peer.ms, "ratio": peer.ratio });
        let peers: Vec<_> = row.peers.iter().map(peer).collect();
        json!({ "work": row.name, "ms": row.ours_ms, "peers": peers, "gb_per_s": row.gb_per_s, "gflops": row.gflops, "of_limit": row.of_limit })
    };
    let report = json!({
        "threads": limits.threads, "copy_gb_per_s": limits.gb_per_s, "peak_gflops": limits.gflops,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    });
    std::fs::write("op-board.json", format!("{report:#}\n")).expect("the report can be written");
    if let Some(name) = docs {
        renew(&name, &text);
    }
}

fn table(rows: &[Row], limits: &Limits) -> String {
    let mut text = format!(
        "{} threads; a copy moves {:.1} GB/s, fused products of f32 reach {:.0} GFLOP/s.\n\n\
         | work | vyre, ms | best peer, ms | peer / vyre [quartiles] | other peers, peer / vyre | GB/s | GFLOP/s | of the limit |\n|---|---|---|---|---|---|---|---|\n",
        limits.threads, limits.gb_per_s, limits.gflops
    );
    for row in rows {
        let (best, ratio) = row.peers.first().map_or(("–".to_owned(), "–".to_owned()), |peer| {
            let [low, middle, high] = peer.ratio;
            (format!("{} {:.3}", peer.name, peer.ms), format!("{middle:.2} [{low:.2}, {high:.2}]"))
        });
        let others: Vec<String> =
            row.peers.iter().skip(1).map(|peer| format!("{} {:.2}", peer.name, peer.ratio[1])).collect();
        let _ = writeln!(
            text,
            "| {} | {:.3} | {best} | {ratio} | {} | {:.1} | {:.1} | {:.2} |",
            row.name,
            row.ours_ms,
            others.join(", "),
            row.gb_per_s,
            row.gflops,
            row.of_limit
        );
    }
    text
}

/// Puts the table between the marks of its name in the page.
fn renew(name: &str, table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/ops.md");
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let mut page = std::fs::read_to_string(path).expect("the page is there");
    if !page.contains(&begin) {
        let _ = write!(page, "\n## Beside Rust libraries: {name}\n\n{begin}{end}\n");
    }
    let (Some(from), Some(to)) = (page.find(&begin), page.find(&end)) else {
        panic!("the page has one mark for {name} without the other")
    };
    let page = format!("{}{begin}{table}{}", &page[..from], &page[to..]);
    std::fs::write(path, page).expect("the page can be written");
}
