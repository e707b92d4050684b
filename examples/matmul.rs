//! Multiplies two matrices, first as the kernel is written, then with the launch and the constant that the tuner finds.
//!
//! `cargo run --example matmul -- 512`

use std::error::Error;
use std::time::Instant;

use vyre::tuner::Space;
use vyre::{DispatchConfig, Engine, to_bytes};

fn main() -> Result<(), Box<dyn Error>> {
    let n: u32 = std::env::args().nth(1).map_or(Ok(512), |text| text.parse())?;
    let matrix = |factor: u32| -> Vec<f32> { (0..n * n).map(|at| (at * factor % 17) as f32 - 8.0).collect() };
    let (a, b) = (matrix(5), matrix(3));
    let inputs = [to_bytes(&a), to_bytes(&b)];

    let program = vyre::wgsl(include_str!("matmul.wgsl"))?;
    let engine = Engine::open()?;
    let mut config = DispatchConfig::default();
    config.specialization.insert("n", n);

    // The kernel may use any of these workgroups and numbers of rows.
    let space = Space::new().with_shapes_up_to(1, 256).with_constant("rows", [1u32, 2, 4]);
    let decision = engine.tune("cpu", &program, &inputs, &config, Some(&space))?;
    let evidence = &decision.evidence;
    let work = 2.0 * f64::from(n).powi(3);
    let speed = |ns: u64| work / ns as f64;
    println!("{n} x {n}, {} launches compared on {}", evidence.candidates, evidence.device);
    println!("as written: {:7.1} GFLOP/s", speed(evidence.default_ns));
    let chosen = &decision.candidate;
    let rows = chosen.specialization.get("rows").map_or(1.0, |rows| rows.as_pipeline_f64());
    let speed = speed(evidence.chosen_ns);
    println!("tuned:      {speed:7.1} GFLOP/s with {rows} rows and workgroups of {}", chosen.workgroup_size[0]);

    // Every later run, in this process and in others, uses what was found.
    let started = Instant::now();
    let c: Vec<f32> = vyre::from_bytes(&engine.run_on("cpu", &program, &inputs, &config)?[0]);
    println!("one run on host data: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    // These numbers are small and whole, so that the sum is exact in any order.
    for (row, column) in [(0, 0), (n / 3, n / 2), (n - 1, n - 1)] {
        let exact: f32 = (0..n).map(|k| a[(row * n + k) as usize] * b[(k * n + column) as usize]).sum();
        assert_eq!(c[(row * n + column) as usize], exact, "at {row}, {column}");
    }
    println!("the product is right");
    Ok(())
}
