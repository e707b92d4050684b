//! What the way from WGSL text to the kernel form costs: import, validation, fingerprint, lowering with every pass.
//!
//! `cargo bench -p vyre --bench language` prints a row for each example kernel, the longest last, then one for a kernel of two hundred lines.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use vyre::{ImportOptions, Program, kernel};

const ROUNDS: usize = 31;

/// Median microseconds of some work.
fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed().as_nanos() as f64 / 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn row(name: &str, source: &str) {
    let import = || vyre::import_wgsl(source, &ImportOptions::default()).expect("the kernel imports");
    let import_us = median(|| drop(import()));
    // Validation and fingerprint are kept by a program, so each round takes a new one.
    let mut programs: Vec<Program> = (0..3 * ROUNDS).map(|_| import()).collect();
    let validate_us = median(|| drop(programs.pop().expect("one for each round").validate().expect("it is valid")));
    let fingerprint_us = median(|| drop(programs.pop().expect("one for each round").fingerprint().to_vec()));
    let valid = import().validate().expect("it is valid");
    valid.fingerprint();
    let again_us = median(|| {
        std::hint::black_box(valid.fingerprint());
    });
    let options = kernel::Options { expand_math: true, ..kernel::Options::default() };
    let lower_us = median(|| drop(kernel::lower(&valid, &options).expect("it lowers")));
    println!(
        "{name:<22} {:>6} {import_us:>10.0} {validate_us:>10.0} {fingerprint_us:>12.1} {again_us:>8.3} {lower_us:>10.0} {:>10.0}",
        source.lines().count(),
        import_us + validate_us + lower_us
    );
}

/// Forty stages of different arithmetic, loops and branches.
fn long_kernel() -> String {
    let mut text = String::from(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;\n@group(0) @binding(1) var<storage, read_write> out: array<f32>;\n\
         @compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {\n\
         if id.x >= arrayLength(&a) { return; }\nvar x = a[id.x];\nvar n = id.x;\n",
    );
    for stage in 0..32 {
        _ = writeln!(text, "n = n * {}u + {stage}u;", 2 * stage + 3);
        _ = writeln!(text, "if (n & {}u) != 0u {{", stage + 1);
        _ = writeln!(text, "    x = x * 1.{stage:02} + f32(n % 17u);");
        _ = writeln!(text, "}} else {{ x = sqrt(abs(x)) + {stage}.5; }}");
        _ = writeln!(text, "for (var i = 0u; i < {}u; i++) {{ x += a[(n + i) % arrayLength(&a)]; }}", stage % 5 + 6);
        _ = writeln!(text, "x = exp(-abs(x)) + x * 0.5;");
    }
    text + "out[id.x] = x;\n}\n"
}

fn main() {
    println!(
        "{:<22} {:>6} {:>10} {:>10} {:>12} {:>8} {:>10} {:>10}",
        "kernel, µs", "lines", "import", "validate", "fingerprint", "again", "lower", "sum"
    );
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels"));
    let mut kernels: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("the examples are there")
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_stem()?.to_str()?.to_owned(), std::fs::read_to_string(&path).ok()?))
        })
        .collect();
    kernels.sort_by_key(|(name, source)| (source.lines().count(), name.clone()));
    for (name, source) in &kernels {
        row(name, source);
    }
    row("two hundred lines", &long_kernel());
}
