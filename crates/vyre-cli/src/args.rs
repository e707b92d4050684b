//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use vyre::ir::Math;

/// Write a compute kernel once; vyre runs it on whatever is fastest here.
#[derive(Debug, Parser)]
#[command(
    name = "vyre",
    version,
    arg_required_else_help = true,
    after_help = "\
Exit codes: 0 done; 1 refused or failed, with diagnostics on standard error; 2 wrong arguments; \
3 `--check` found a difference; 130 interrupted, with nothing half-written."
)]
pub(crate) struct Command {
    /// Print results and diagnostics as JSON: one document on standard output, and nothing else.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say on standard error what happens inside; -vv says more. VYRE_LOG=info, debug or trace does the same.
    #[arg(long, short = 'v', global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) what: What,
}

impl Command {
    /// What was said. `vyre tune --ops` needs no kernel.
    pub(crate) fn parsed() -> Command {
        let command = <Command as CommandFactory>::command().mut_subcommand("tune", |tune| {
            tune.mut_arg("kernel", |kernel| {
                let present = clap::builder::ArgPredicate::IsPresent;
                kernel.required(false).required_unless_present("ops").default_value_if("ops", present, ".")
            })
        });
        Command::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Run a kernel, or several in a row.
    Run(Run),
    /// Show everything that is wrong with a kernel.
    Check(Check),
    /// Look at a kernel in another form.
    Emit(Emit),
    /// List what is here to run kernels, and what is not and why.
    Devices,
    /// Time a kernel on every backend, in turns; on the reference interpreter only when it is named.
    Bench(Bench),
    /// Compare a kernel's launches on one backend and keep the fastest.
    Tune(Tune),
    /// Measure a kernel on every backend over sizes, and remember which is fastest where. For a folder of kernels, compare what
    /// the router chooses by itself with the fastest, and remember nothing.
    Route(Route),
    /// Run an op such as `sum` or `sort` on arrays, or list the ops.
    Op(Op),
    /// Explain a diagnostic code, or where and how a kernel would run.
    Explain(Explain),
    /// Look at what was decided, forget it, pin it, or write it down for version control.
    Decisions(Decisions),
    /// Look after the pipeline cache.
    Cache(Cache),
    /// Look for everything that could be wrong on this machine.
    Doctor,
    /// Print completions for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands.
    Man {
        /// Folder for the pages.
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// A kernel and how to launch it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Kernel {
    /// WGSL (.wgsl), SPIR-V (.spv), vyre's own text form (.vyre), or a pipeline of several (.toml) for `run`, `bench`, `check` and `explain`.
    pub(crate) kernel: PathBuf,
    #[command(flatten)]
    pub(crate) launch: Launch,
}

/// How to launch a kernel.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Launch {
    /// Entry point, where the file has several.
    #[arg(long, value_name = "NAME")]
    pub(crate) entry: Option<String>,
    /// Set a specialization constant (WGSL `override`).
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Workgroups to launch, as X, XxY or XxYxZ.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) grid: Option<[u32; 3]>,
    /// Invocations to launch, as X, XxY or XxYxZ, where they are not those that the kernel itself asks for.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "grid")]
    pub(crate) domain: Option<[u32; 3]>,
    /// Invocations in a workgroup, as X, XxY or XxYxZ; refused where the kernel's results depend on it.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) workgroup: Option<[u32; 3]>,
    /// Launch all the same where results depend on `--workgroup`, or a value is not what a shape says.
    #[arg(long)]
    pub(crate) force: bool,
    /// Arithmetic of floats: `exact` gives the same bits everywhere; `fast` rounds sums of products once and takes a device's own
    /// approximations of functions, as near as WGSL asks.
    #[arg(long, value_name = "KIND", value_parser = math)]
    pub(crate) math: Option<Math>,
}

pub(crate) fn math(text: &str) -> Result<Math, String> {
    Math::named(text).ok_or_else(|| "`exact` or `fast` is expected".to_owned())
}

/// Several kernels in a row, on buffers that stay where they are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Passes {
    /// Run this next: an entry point of the kernel's file, another file, or FILE:ENTRY. Buffers of one name are one buffer.
    #[arg(long = "pass", value_name = "PASS")]
    pub(crate) passes: Vec<String>,
    /// Exchange two buffers after each step.
    #[arg(long = "swap", value_name = "A,B")]
    pub(crate) swaps: Vec<String>,
    /// Run all passes so many times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) steps: Option<u32>,
}

/// What goes in.
#[derive(Args, Clone, Debug)]
pub(crate) struct Inputs {
    /// Contents of a buffer: a file (.npy, .csv, .png, .bin), `-` for standard input, `raw:FILE` for bytes as they are,
    /// `bytes:FILE` for a number from each byte, `iota:1000`, `random:f32:1e6:seed=1`, `zeros:64x64`, `ones:8`, `text:hello` or `1,2,3`. NAME may be
    /// a member of a struct, as in `params.dt=0.1`.
    #[arg(long = "in", short = 'i', value_name = "NAME=SOURCE")]
    pub(crate) inputs: Vec<String>,
    /// Convert numbers that their buffer can't hold: round floats, cut off fractions, wrap whole numbers around.
    #[arg(long)]
    pub(crate) cast: bool,
    /// Shape of a result whose length the kernel leaves open, as N, HxW or HxWxC.
    #[arg(long = "shape", aliases = ["size", "length"], value_name = "NAME=SHAPE")]
    pub(crate) shapes: Vec<String>,
    /// Where to run: `auto`, or the name of a backend as `vyre devices` lists it.
    #[arg(long, short = 'b', aliases = ["on", "device"], default_value = "auto", value_name = "NAME")]
    pub(crate) backend: String,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,
}

#[derive(Args, Debug)]
pub(crate) struct Op {
    /// The op; without one, all are listed.
    pub(crate) name: Option<String>,
    /// An array: a file (.npy, .csv, .png, .bin), `-` for standard input, `iota:1000`, `random:f32:1e6`, `text:hello` or `1,2,3`, as for
    /// `vyre run`. Without NAME it is the first array that is not named.
    #[arg(long = "in", short = 'i', value_name = "[NAME=]SOURCE")]
    pub(crate) inputs: Vec<String>,
    /// Write a result to a file (.npy, .csv, .png, .bin) instead of describing it. Without NAME it is the first result.
    #[arg(long = "out", short = 'o', value_name = "[NAME=]FILE")]
    pub(crate) outputs: Vec<String>,
    /// The type of the elements, where it shall not be the file's own.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) ty: Option<String>,
    /// Convert numbers that the type can't hold.
    #[arg(long)]
    pub(crate) cast: bool,
    /// The axis that a reduction goes along, or -1 for the last; without one, it takes all elements.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) axis: Option<i64>,
    /// What the elements of a product go through at the end: none, relu or gelu.
    #[arg(long, value_name = "NAME")]
    pub(crate) activation: Option<String>,
    /// What the elements of a product are multiplied by.
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) scale: Option<f64>,
    /// Bins of a histogram, elements of top-k.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<usize>,
    /// What a stencil finds behind the edges: zero, edge, wrap or reflect.
    #[arg(long, value_name = "NAME")]
    pub(crate) boundary: Option<String>,
    /// Attention: each query looks only at the keys up to its own position.
    #[arg(long)]
    pub(crate) causal: bool,
    /// What norms add under the root, or the distance within which bodies attract less.
    #[arg(long, value_name = "X")]
    pub(crate) epsilon: Option<f64>,
    /// The Fourier transform back.
    #[arg(long)]
    pub(crate) inverse: bool,
    /// Zeros around the images of a convolution.
    #[arg(long, value_name = "N")]
    pub(crate) padding: Option<usize>,
    /// How far the window of a convolution moves at a time.
    #[arg(long, value_name = "N")]
    pub(crate) stride: Option<usize>,
    /// Where to run: `auto`, or the name of a backend as `vyre devices` lists it.
    #[arg(long, short = 'b', default_value = "auto", value_name = "NAME")]
    pub(crate) backend: String,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) kernel: Kernel,
    #[command(flatten)]
    pub(crate) passes: Passes,
    /// Write `--out NAME=frame-%04d.png` after every so many steps; frames are counted from 1.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) every: Option<u32>,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Write a result to a file (.npy, .csv, .png, .bin) instead of describing it; `-` is standard output, `raw:FILE` the bytes.
    #[arg(long = "out", short = 'o', value_name = "NAME=FILE")]
    pub(crate) outputs: Vec<String>,
    /// Run so many times on the same buffers and print the times.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeat: Option<u32>,
    /// Compare the results with the reference interpreter's, for at most a minute or the time of `--timeout`.
    #[arg(long)]
    pub(crate) check: bool,
    /// Say why it ran where and how it did.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Write a trace of the run for Perfetto or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Kernels to check.
    #[arg(required = true)]
    pub(crate) kernels: Vec<PathBuf>,
    /// Check only this entry point.
    #[arg(long, value_name = "NAME")]
    pub(crate) entry: Option<String>,
    /// Set a specialization constant (WGSL `override`), where it has no default.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Emit {
    #[command(flatten)]
    pub(crate) kernel: Kernel,
    /// The form.
    #[arg(long)]
    pub(crate) to: Form,
    /// Write to a file instead of standard output.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// WGSL text.
    Wgsl,
    /// vyre's own text form.
    Vyre,
    /// The optimised form that backends read.
    Kernel,
    /// vyre's wire form, in bytes.
    Wire,
    /// SPIR-V for Vulkan, in bytes.
    Spirv,
    /// What the wgpu backend runs, as WGSL text.
    Wgpu,
    /// PTX text for NVIDIA GPUs of compute capability 9.0.
    Ptx,
    /// The machine code that this processor runs, as assembly text.
    Asm,
}

#[derive(Args, Debug)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) kernel: Kernel,
    #[command(flatten)]
    pub(crate) passes: Passes,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Rounds; in each, every backend runs once.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=10_000_000))]
    pub(crate) rounds: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Tune {
    /// Compare the forms of ops that have several, such as the tiles of `matmul`, instead of a kernel's launches: of all of them, or of
    /// those that are named. `--backend` tunes them on one of this machine's devices.
    #[arg(long, value_name = "OP", num_args = 0.., value_delimiter = ',',
          conflicts_with_all = ["kernel", "vary", "exhaustive", "budget"])]
    pub(crate) ops: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) kernel: Kernel,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// Try these values of a specialization constant too.
    #[arg(long, value_name = "NAME=VALUE,VALUE...")]
    pub(crate) vary: Vec<String>,
    /// Elements of inputs that are not given, where the kernel is a folder of kernels.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) size: u64,
    /// Take no longer than this, as in 30s, 500ms or 2m; what is fastest by then is certified.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) budget: Option<std::time::Duration>,
    /// Measure every launch this often, too, and show how far the decision is from the best of them; those that are far slower a few times.
    #[arg(long, value_name = "TIMES", num_args = 0..=1, default_missing_value = "30", value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub(crate) exhaustive: Option<u32>,
}

#[derive(Args, Debug)]
pub(crate) struct Decisions {
    #[command(subcommand)]
    pub(crate) what: DecisionsWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DecisionsWhat {
    /// Every launch and route that was decided.
    List,
    /// What was decided for a program.
    Show {
        /// A program's name, a key, or the beginning of one.
        name: String,
    },
    /// The same with everything it rests on, and what would change it.
    Why {
        /// A program's name, a key, or the beginning of one.
        name: String,
    },
    /// Forget what was decided.
    Forget {
        /// A program's name, a key, or the beginning of one.
        name: Option<String>,
        /// Forget every launch.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Use a decision as it is from now on: it is never measured again.
    Pin {
        /// A program's name, a key, or the beginning of one.
        name: String,
        /// Let it be measured again.
        #[arg(long)]
        undo: bool,
    },
    /// What differs between two lock files, or between one and what is used now.
    Diff {
        /// A lock file.
        one: PathBuf,
        /// Another; without it, what is used now.
        other: Option<PathBuf>,
    },
    /// Write what is used to a file, which VYRE_DECISIONS then makes vyre use exactly.
    Freeze {
        /// The lock file.
        #[arg(long, short = 'o', value_name = "FILE", default_value = "vyre.lock")]
        output: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Route {
    #[command(flatten)]
    pub(crate) kernel: Kernel,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
    /// The values of `N` in `--in` and `--shape`: 1e3,1e4,1e5 or 1e3..1e6.
    #[arg(long, default_value = "1e3..1e6")]
    pub(crate) sizes: String,
    /// Rounds at each size; in each, every backend runs once.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub(crate) rounds: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// A diagnostic code such as V0101, or a kernel or pipeline.
    pub(crate) what: String,
    #[command(flatten)]
    pub(crate) launch: Launch,
    #[command(flatten)]
    pub(crate) passes: Passes,
    #[command(flatten)]
    pub(crate) inputs: Inputs,
}

#[derive(Args, Debug)]
pub(crate) struct Cache {
    #[command(subcommand)]
    pub(crate) what: CacheWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CacheWhat {
    /// How much is in it.
    Stats,
    /// Check every entry.
    Verify,
    /// Remove what is over the limit and what was left behind.
    Gc,
    /// Remove everything that was compiled; decisions and routes stay.
    Clear,
    /// Write everything that was compiled, decided and learnt into one file for other machines.
    Export(Pack),
    /// Take in such a file.
    Import(Pack),
}

#[derive(Args, Debug)]
pub(crate) struct Pack {
    /// The pack.
    #[arg(value_name = "PACK")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) key: PackSecret,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct PackSecret {
    /// File with the key that all machines share: 32 bytes, or 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Do without a key. What is imported is executed later, so the pack must come from someone you trust.
    #[arg(long)]
    pub(crate) unsigned: bool,
}

pub(crate) fn size(text: &str) -> Result<[u32; 3], String> {
    let mut size = [1; 3];
    let parts: Vec<&str> = text.split(['x', ',']).collect();
    if parts.len() > 3 {
        return Err("at most three sizes, as in 16x16x1".to_owned());
    }
    for (size, part) in size.iter_mut().zip(parts) {
        *size = part.trim().parse().ok().filter(|size| *size > 0).ok_or_else(|| format!("`{part}` is not a size"))?;
    }
    Ok(size)
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time; there are ms, s, m and h")),
    };
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 && value * scale < 1e9 => {
            Ok(std::time::Duration::from_secs_f64(value * scale))
        }
        _ => Err("a time above zero, as in 30s".to_owned()),
    }
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err("a number of seconds above zero".to_owned()),
    }
}
