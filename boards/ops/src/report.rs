//! The table of a run, its JSON, and its place in the docs.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::limits::Limits;
use crate::measure::{Peer, Row};

pub(crate) fn table(rows: &[Row], limits: Option<&Limits>) -> String {
    let mut text = limits.map_or_else(String::new, |limits| {
        format!(
            "{} threads; a copy moves {:.1} GB/s, fused products of f32 reach {:.0} GFLOP/s.\n\n",
            limits.threads, limits.gb_per_s, limits.gflops
        )
    });
    text.push_str(
        "| work | vyre, ms | best peer, ms | peer / vyre [quartiles] | other peers, peer / vyre | GB/s | GFLOP/s | of the limit |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let (best, ratio) = row.peers.first().map_or(("–".to_owned(), "–".to_owned()), |peer| {
            let [low, middle, high] = peer.ratio;
            (format!("{} {:.3}", peer.name, peer.ms), format!("{middle:.2} [{low:.2}, {high:.2}]"))
        });
        let others: Vec<String> =
            row.peers.iter().skip(1).map(|peer| format!("{} {:.2}", peer.name, peer.ratio[1])).collect();
        let of_limit = row.of_limit.map_or_else(|| "–".to_owned(), |of_limit| format!("{of_limit:.2}"));
        let _ = writeln!(
            text,
            "| {} | {:.3} | {best} | {ratio} | {} | {:.1} | {:.1} | {of_limit} |",
            row.name,
            row.ours_ms,
            others.join(", "),
            row.gb_per_s,
            row.gflops,
        );
    }
    text
}

pub(crate) fn json(rows: &[Row], limits: Option<&Limits>, backend: &str, device: Option<&str>) -> Value {
    let row = |row: &Row| {
        let peer = |peer: &Peer| json!({ "name": peer.name, "ms": peer.ms, "ratio": peer.ratio });
        let peers: Vec<_> = row.peers.iter().map(peer).collect();
        json!({ "work": row.name, "ms": row.ours_ms, "peers": peers, "gb_per_s": row.gb_per_s, "gflops": row.gflops, "of_limit": row.of_limit })
    };
    let limits = limits.map(
        |limits| json!({ "threads": limits.threads, "copy_gb_per_s": limits.gb_per_s, "peak_gflops": limits.gflops }),
    );
    json!({ "backend": backend, "device": device, "limits": limits, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

/// Puts the table between the marks of its name in the page.
pub(crate) fn renew(name: &str, table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/ops.md");
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let mut page = std::fs::read_to_string(path).expect("the page is there");
    if !page.contains(&begin) {
        let _ = write!(page, "\n## Measured: {name}\n\n{begin}{end}\n");
    }
    let (Some(from), Some(to)) = (page.find(&begin), page.find(&end)) else {
        panic!("the page has one mark for {name} without the other")
    };
    let page = format!("{}{begin}{table}{}", &page[..from], &page[to..]);
    std::fs::write(path, page).expect("the page can be written");
}
