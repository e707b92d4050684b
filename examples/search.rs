//! Searches a log file: every place of it is tried at once.
//!
//! `cargo run --example search -- PATTERN [FILE]`; without a file it searches a day of a busy server.

use std::error::Error;
use std::fmt::Write;

const SHOWN: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let pattern = args.next().unwrap_or_else(|| "timed out".to_owned());
    let log = match args.next() {
        Some(file) => std::fs::read(file)?,
        None => busy_day().into_bytes(),
    };
    let words = |bytes: &[u8]| -> Vec<u32> { bytes.iter().map(|byte| u32::from(*byte)).collect() };
    // The pattern is its length and its letters.
    let mut wanted = vec![pattern.len() as u32];
    wanted.extend(words(pattern.as_bytes()));
    let text = words(&log);

    let program = vyre::wgsl(include_str!("kernels/string_search.wgsl"))?;
    let engine = vyre::Engine::open()?;
    // There is a flag for each place of the text.
    let mut config = vyre::DispatchConfig::default();
    config.output_elements.insert("found".to_owned(), text.len() as u64);
    let found = engine.run_with(&program, &[vyre::to_bytes(&wanted), vyre::to_bytes(&text)], &config)?;
    let found: Vec<u32> = vyre::from_bytes(&found[0]);

    let places: Vec<usize> = (0..log.len()).filter(|&at| found[at] != 0).collect();
    let lines = log.iter().filter(|byte| **byte == b'\n').count();
    println!("`{pattern}` stands {} times in {lines} lines ({} bytes)", places.len(), log.len());
    for &at in places.iter().take(SHOWN) {
        let start = log[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = log[start..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        println!("{}", String::from_utf8_lossy(line));
    }
    if places.len() > SHOWN {
        println!("and {} more", places.len() - SHOWN);
    }
    Ok(())
}

/// The same lines every time.
fn busy_day() -> String {
    let mut random = 88_172_645_463_325_252u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let paths = ["/", "/search", "/cart", "/login", "/images/logo.png", "/api/orders"];
    let mut log = String::new();
    for second in 0..30_000u64 {
        let clock = second * 86_400 / 30_000;
        let (path, took) = (paths[next(6) as usize], 2 + next(180));
        let status = match next(400) {
            0 => "504 upstream timed out",
            1..=3 => "500 internal error",
            4..=12 => "404 not found",
            _ => "200 ok",
        };
        let _ = writeln!(
            log,
            "{:02}:{:02}:{:02} GET {path} {status} in {took} ms",
            clock / 3600,
            clock / 60 % 60,
            clock % 60
        );
    }
    log
}
