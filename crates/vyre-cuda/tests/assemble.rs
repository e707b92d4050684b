//! The PTX of the conformance suite and of random programs goes through the real assembler, for every generation of devices.
//! `VYRE_RANDOM` sets how many random programs, `VYRE_PTXAS` where the assembler is; without one the tests are skipped.
//!
//! `pip install --target target/ptxas nvidia-cuda-nvcc-cu12` puts one where it is found.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use vyre_conform::{Case, Expectation, GenOptions, Rules, Subgroups, generate, tests};
use vyre_cuda::ptx::{Ptx, Target, emit};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_foundation::kernel::{self, Options, Passes};
use vyre_spec::Diagnostic;

/// Volta to Blackwell. Assemblers of newer releases don't know the oldest any more.
const DEVICES: [u32; 7] = [70, 75, 80, 86, 90, 100, 120];

/// Kernels in one call of the assembler.
const TOGETHER: usize = 64;

fn main() {
    let mut arguments = Arguments::from_args();
    // The assembler is started often, and machines that build are busy as it is.
    arguments.test_threads.get_or_insert(2);
    let ptxas = find();
    if ptxas.is_none() {
        println!("skipped: no ptxas in VYRE_PTXAS, in PATH or under target/ptxas (pip's nvidia-cuda-nvcc-cu12 has it)");
    }
    let mut trials = Vec::new();
    for sm in DEVICES {
        let known = ptxas.as_deref().is_some_and(|ptxas| knows(ptxas, sm));
        let ptxas = ptxas.clone().unwrap_or_default();
        let trial = Trial::test(format!("sm_{sm}"), move || assemble_all(&ptxas, sm));
        trials.push(trial.with_ignored_flag(!known));
    }
    let (absent, ptxas) = (ptxas.is_none(), ptxas.unwrap_or_default());
    trials.push(Trial::test("registers", move || registers(&ptxas)).with_ignored_flag(absent));
    libtest_mimic::run(&arguments, trials).exit();
}

fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("VYRE_PTXAS") {
        return Some(PathBuf::from(path));
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("ptxas");
    let mut places = vec![target.clone(), target.join("nvidia/cuda_nvcc/bin"), target.join("nvidia/cu13/bin")];
    places.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    places.into_iter().map(|place| place.join("ptxas")).find(|ptxas| ptxas.is_file())
}

fn knows(ptxas: &Path, sm: u32) -> bool {
    let Ok(help) = Command::new(ptxas).arg("--help").output() else { return false };
    String::from_utf8_lossy(&help.stdout).contains(&format!("'sm_{sm}'"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The kernel's text with its name.
fn text_of(name: String, case: &Case, target: Target) -> Result<(String, String), Failed> {
    match ptx_of(case, target) {
        Ok(ptx) => Ok((name, ptx.text)),
        Err(error) => Err(format!("{name}: {error}").into()),
    }
}

fn ptx_of(case: &Case, target: Target) -> Result<Ptx, Diagnostic> {
    let valid = case.program.validate().map_err(|problems| problems[0].clone())?;
    let options = Options {
        specialization: case.specialization.clone(),
        passes: Passes::all(),
        expand_math: true,
        ..Options::default()
    };
    emit(&kernel::lower(&valid, &options)?, target)
}

/// Every suite program on every device, and an equal share of the random ones.
fn assemble_all(ptxas: &Path, sm: u32) -> Result<(), Failed> {
    let target = |index: usize| Target { sm, interruptible: index % 4 == 3 };
    let mut kernels = Vec::new();
    // Every device sees every kind of program; all of them only when many are asked for.
    let random = number("VYRE_RANDOM", 140);
    let every = if random >= 2000 { 1 } else { DEVICES.len() };
    let share = DEVICES.iter().position(|&device| device == sm).unwrap_or(0);
    for (index, test) in tests(&Rules::exact()).into_iter().enumerate() {
        if index % every == share % every && !matches!(test.expectation, Expectation::Error) {
            kernels.push(text_of(test.name, &test.case, target(index))?);
        }
    }
    for seed in (0..random).filter(|seed| *seed as usize % DEVICES.len() == share) {
        let options = GenOptions { math: seed % 2 == 0, subgroups: Subgroups::FixedSize, ..GenOptions::default() };
        let case = generate(seed, &options);
        kernels.push(text_of(format!("seed {seed}"), &case, target(seed as usize))?);
    }
    for (index, some) in kernels.chunks(TOGETHER).enumerate() {
        let mut text = String::new();
        for (index, (name, kernel)) in some.iter().enumerate() {
            let body = kernel.split_once(".address_size 64\n").ok_or("no header")?;
            if index == 0 {
                _ = writeln!(text, "{}.address_size 64", body.0);
            }
            let body = body.1.replace("vyre_kernel", &format!("kernel_{index}"));
            _ = write!(
                text,
                "// {name}\n{}",
                body.replace("vyre_shared", &format!("dynamic_{index}")).replace("vyre_nf4", &format!("nf4_{index}"))
            );
        }
        run_ptxas(ptxas, sm, &format!("sm{sm}-{index}"), &text, &[])?;
    }
    Ok(())
}

fn run_ptxas(ptxas: &Path, sm: u32, name: &str, text: &str, flags: &[&str]) -> Result<String, Failed> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("vyre-{}-{name}.ptx", std::process::id()));
    std::fs::write(&file, text)?;
    let cubin = file.with_extension("cubin");
    let out =
        Command::new(ptxas).arg(format!("-arch=sm_{sm}")).args(flags).arg(&file).arg("-o").arg(&cubin).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        let kept = folder.join(format!("failed-{name}.ptx"));
        std::fs::rename(&file, &kept)?;
        let shown: Vec<&str> = said.lines().take(12).collect();
        return Err(format!("{}:\n{}", kept.display(), shown.join("\n")).into());
    }
    std::fs::remove_file(&file)?;
    std::fs::remove_file(&cubin)?;
    Ok(said)
}

/// What a few kernels take on one device: no spills, and no more registers than they used to.
fn registers(ptxas: &Path) -> Result<(), Failed> {
    let f32s = |name: &str, binding| BufferDecl::read(name, binding, DataType::F32);
    let i = || Expr::global_id(0);
    let map = Program::wrapped(
        vec![f32s("a", 0), f32s("b", 1), BufferDecl::output("out", 2, DataType::F32)],
        [256, 1, 1],
        vec![Node::store("out", i(), Expr::load("a", i()) * Expr::load("b", i()) + Expr::f32(1.0))],
    );
    let logistic = Program::wrapped(
        vec![f32s("a", 0), BufferDecl::output("out", 1, DataType::F32)],
        [256, 1, 1],
        vec![
            Node::var("x", DataType::F32, Expr::load("a", i())),
            Node::for_range(
                "step",
                Expr::u32(0),
                Expr::u32(64),
                vec![Node::assign("x", Expr::f32(3.75) * Expr::var("x") * (Expr::f32(1.0) - Expr::var("x")))],
            ),
            Node::store("out", i(), Expr::var("x")),
        ],
    );
    let local = || Expr::local_id(0);
    let reverse = Program::wrapped(
        vec![
            f32s("a", 0),
            BufferDecl::workgroup("tile", 0, DataType::F32).with_count(256),
            BufferDecl::output("out", 1, DataType::F32),
        ],
        [256, 1, 1],
        vec![
            Node::store("tile", local(), Expr::load("a", i())),
            Node::barrier(),
            Node::store("out", i(), Expr::load("tile", Expr::u32(255) - local())),
        ],
    );
    let mut seen = String::new();
    for (name, program, most) in [("map", map, 32), ("logistic", logistic, 12), ("reverse", reverse, 12)] {
        let case = Case::new(program, Vec::new());
        let ptx = ptx_of(&case, Target { sm: 90, interruptible: false })?;
        let said = run_ptxas(ptxas, 90, name, &ptx.text, &["-v"])?;
        let number_after = |text: &str| -> Option<u32> { text.split_whitespace().next()?.parse().ok() };
        let used = said.split("Used ").skip(1).filter_map(number_after).max();
        let frames: Vec<_> = said.lines().filter(|line| line.contains("bytes stack frame")).collect();
        let (Some(used), false) = (used, frames.is_empty()) else {
            return Err(format!("ptxas -v said nothing about registers:\n{said}").into());
        };
        _ = writeln!(seen, "{name}: {used} registers (at most {most})");
        let clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        if used > most || frames.iter().any(|line| line.trim() != clean) {
            return Err(format!("{seen}\n{said}\n{}", ptx.text).into());
        }
    }
    print!("{seen}");
    Ok(())
}
