//! The PTX of the conformance suite, of the example kernels and of random programs goes through the real assembler, for every
//! generation of devices; what the kernels take of each device is held in a snapshot.
//! `VYRE_RANDOM` sets how many random programs, `VYRE_SEED` where they start, `VYRE_PTXAS` where the assembler is; without one the tests are skipped.
//!
//! `pip install --target target/ptxas nvidia-cuda-nvcc-cu12==12.9.86` puts one where it is found.

#[path = "../benches/programs/mod.rs"]
mod programs;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use vyre_conform::{Case, Expectation, GenOptions, Rules, Subgroups, generate, tests};
use vyre_cuda::ptx::{Ptx, Target, emit, lowering};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};
use vyre_foundation::kernel::{self, Features, Options};
use vyre_spec::{Diagnostic, codes};
use vyre_wgsl::{ImportOptions, import};

/// Volta to Blackwell. Assemblers of newer releases don't know the oldest any more.
const DEVICES: [u32; 7] = [70, 75, 80, 86, 90, 100, 120];

/// The release whose register counts the snapshot holds.
const RELEASE: &str = "V12.9.86";

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
    let known = ptxas.as_deref().is_some_and(|ptxas| said(ptxas, "--version").contains(RELEASE));
    if ptxas.is_some() && !known {
        println!("skipped: registers, which are held for release {RELEASE} of ptxas only");
    }
    trials.push(Trial::test("private_arrays", private_arrays));
    let ptxas = ptxas.unwrap_or_default();
    trials.push(Trial::test("registers", move || registers(&ptxas)).with_ignored_flag(!known));
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

fn said(ptxas: &Path, flag: &str) -> String {
    Command::new(ptxas)
        .arg(flag)
        .output()
        .map_or(String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn knows(ptxas: &Path, sm: u32) -> bool {
    said(ptxas, "--help").contains(&format!("'sm_{sm}'"))
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `None` where the device lacks what the program needs, and the emitter says so.
fn ptx_of(case: &Case, target: Target) -> Result<Option<Ptx>, Diagnostic> {
    let valid = case.program.validate().map_err(|problems| problems[0].clone())?;
    let options = lowering(Options {
        specialization: case.specialization.clone(),
        interruptible: target.interruptible,
        ..Options::default()
    });
    let kernel = kernel::lower(&valid, &options)?;
    let emitted = emit(&kernel, target);
    if kernel.features.contains(Features::MATRIX) && target.sm < vyre_cuda::ptx::TENSOR_CORES {
        let refusal = emitted.err().filter(|problem| problem.code == &codes::backend::UNSUPPORTED_FEATURE);
        return Ok(if refusal.is_some() { None } else { panic!("sm_{} was given matrix operations", target.sm) });
    }
    emitted.map(Some)
}

/// Every suite program on every device, and an equal share of the random ones.
fn assemble_all(ptxas: &Path, sm: u32) -> Result<(), Failed> {
    let target = |index: usize| Target { sm, interruptible: index % 4 == 3 };
    let mut kernels = Vec::new();
    let mut add = |name: String, case: &Case, target: Target| match ptx_of(case, target) {
        Ok(Some(ptx)) => {
            kernels.push((name, ptx.text));
            Ok(())
        }
        Ok(None) => Ok(()),
        Err(error) => Err(Failed::from(format!("{name}: {error}"))),
    };
    // Every device sees every kind of program; all of them only when many are asked for.
    let random = number("VYRE_RANDOM", 140);
    let every = if random >= 2000 { 1 } else { DEVICES.len() };
    let share = DEVICES.iter().position(|&device| device == sm).unwrap_or(0);
    for (index, test) in tests(&Rules::exact()).into_iter().enumerate() {
        if index % every == share % every && !matches!(test.expectation, Expectation::Error) {
            add(test.name, &test.case, target(index))?;
        }
    }
    let first = number("VYRE_SEED", 0);
    for seed in (first..first + random).filter(|seed| *seed as usize % DEVICES.len() == share) {
        let options = GenOptions { math: seed % 2 == 0, subgroups: Subgroups::FixedSize, ..GenOptions::default() };
        let case = generate(seed, &options);
        add(format!("seed {seed}"), &case, target(seed as usize))?;
        if seed % 4 == 0 {
            let case = generate(seed, &GenOptions::fast());
            add(format!("seed {seed}, fast"), &case, target(seed as usize))?;
        }
    }
    // It has the least number as a distance.
    let options = GenOptions { subgroups: Subgroups::FixedSize, ..GenOptions::default() };
    add("seed 36000245".to_owned(), &generate(36_000_245, &options), target(0))?;
    for (index, some) in kernels.chunks(TOGETHER).enumerate() {
        let named = some
            .iter()
            .enumerate()
            .map(|(index, (name, text))| (format!("kernel_{index}"), name.as_str(), text.as_str()));
        run_ptxas(ptxas, sm, &format!("sm{sm}-{index}"), &join(named)?, &[])?;
    }
    Ok(())
}

/// One module of several kernels, from the name of each entry, a remark and the text.
fn join<'a>(kernels: impl Iterator<Item = (String, &'a str, &'a str)>) -> Result<String, Failed> {
    let mut text = String::new();
    for (entry, remark, kernel) in kernels {
        let (head, body) = kernel.split_once(".address_size 64\n").ok_or("no header")?;
        if text.is_empty() {
            _ = writeln!(text, "{head}.address_size 64");
        }
        _ = writeln!(text, "// {remark}");
        let body = body.replace("vyre_kernel", &entry).replace("vyre_shared", &format!("dynamic_{entry}"));
        let body = body.replace("vyre_zeros", &format!("zeros_{entry}"));
        text.push_str(&body.replace("vyre_nf4", &format!("nf4_{entry}")));
    }
    Ok(text)
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

/// The sums of a matrix product in private arrays are registers: no memory of their own is asked for.
fn private_arrays() -> Result<(), Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kernels/matmul_registers.wgsl");
    let program = import(&std::fs::read_to_string(path)?, &ImportOptions::default());
    let case = Case::new(program.map_err(|problems| problems[0].to_string())?, Vec::new());
    let ptx = ptx_of(&case, Target { sm: 90, interruptible: false }).map_err(|error| error.to_string())?;
    let text = ptx.ok_or("no PTX")?.text;
    if text.contains(".local") {
        return Err(text.into());
    }
    Ok(())
}

/// What the example kernels and a few others take on every device, held in a snapshot.
fn registers(ptxas: &Path) -> Result<(), Failed> {
    let mut kernels = built();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kernels");
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        if path.extension().is_some_and(|extension| extension == "wgsl") {
            let program = import(&std::fs::read_to_string(&path)?, &ImportOptions::default());
            kernels.push((name.to_owned(), program.map_err(|problems| format!("{name}: {}", problems[0]))?));
        }
    }
    kernels.sort_by(|a, b| a.0.cmp(&b.0));
    let mut table = vec![String::new(); kernels.len()];
    for sm in DEVICES.into_iter().filter(|&sm| knows(ptxas, sm)) {
        let mut texts = Vec::new();
        for (index, (name, program)) in kernels.iter().enumerate() {
            let case = Case::new(program.clone(), Vec::new());
            match ptx_of(&case, Target { sm, interruptible: false }) {
                Ok(Some(ptx)) => texts.push((index, name.as_str(), ptx.text)),
                Ok(None) => table[index].push_str("   -"),
                Err(error) => return Err(format!("{name}: {error}").into()),
            }
        }
        let named = texts.iter().map(|(index, name, text)| (format!("kernel_{index}"), *name, text.as_str()));
        let said = run_ptxas(ptxas, sm, &format!("registers-{sm}"), &join(named)?, &["-v"])?;
        for (index, name, _) in &texts {
            let (used, spilled) = taken(&said, &format!("kernel_{index}"))
                .ok_or_else(|| Failed::from(format!("ptxas -v said nothing about the registers of {name}:\n{said}")))?;
            _ = write!(table[*index], "{used:4}");
            if spilled > 0 {
                _ = write!(table[*index], "(spills {spilled} bytes)");
            }
        }
    }
    let devices: String = DEVICES.iter().map(|sm| format!("{sm:4}")).collect();
    let mut text = format!("{:24}{devices}\n", "registers on sm_");
    for ((name, _), numbers) in kernels.iter().zip(table) {
        _ = writeln!(text, "{name:24}{numbers}");
    }
    insta::assert_snapshot!("registers", text);
    Ok(())
}

/// Registers and spilled bytes of an entry, and of its twin that runs several workgroups in a block: the larger of each.
fn taken(said: &str, entry: &str) -> Option<(u32, u32)> {
    let number_after =
        |text: &str, word: &str| -> Option<u32> { text.split_once(word)?.1.split_whitespace().next()?.parse().ok() };
    let mut most = None;
    for part in said.split("Compiling entry function '").skip(1) {
        let name = part.split('\'').next()?;
        if name == entry || name.strip_suffix("_together") == Some(entry) {
            let spills = part.split_once(" bytes spill stores")?.0.rsplit([' ', ',']).next()?.parse().ok()?;
            let (registers, spilled) = most.unwrap_or((0, 0));
            most = Some((number_after(part, "Used ")?.max(registers), spilled.max(spills)));
        }
    }
    most
}

/// Kernels that are built here.
fn built() -> Vec<(String, Program)> {
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
    let matmul = programs::matmul(MatrixKind::F16, 4096, 4096, 4096);
    [("(map)", map), ("(logistic map)", logistic), ("(matrix fragments)", matmul)]
        .map(|(name, program)| (name.to_owned(), program))
        .to_vec()
}
