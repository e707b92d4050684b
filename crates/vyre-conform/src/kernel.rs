use vyre_driver::{BackendError, DispatchConfig, VyreBackend, launch};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{self, Approximations, Interpret, Options, Passes, Unrolling};
use vyre_spec::codes;

/// The optimiser as a backend: lowers a program with the given passes, checks the kernel form, and evaluates it plainly.
#[derive(Clone, Debug, Default)]
pub struct KernelBackend {
    /// What the optimiser does.
    pub passes: Passes,
    /// Expands functions such as `sin` into basic operations.
    pub expand_math: bool,
    /// What functions become in fast arithmetic.
    pub approximations: Approximations,
    /// Two neighbouring invocations along each axis become one, where the compiler takes that.
    pub merges: bool,
}

impl KernelBackend {
    /// Every way to lower that is worth comparing, with a name: all passes, none, each alone, all but each, and functions
    /// expanded.
    pub fn variants() -> Vec<(String, KernelBackend)> {
        let plain = |passes: Passes| KernelBackend { passes, ..KernelBackend::default() };
        let expanded = |passes: Passes| KernelBackend { expand_math: true, ..plain(passes) };
        let instructions =
            |passes: Passes| KernelBackend { approximations: Approximations::Instructions, ..expanded(passes) };
        let mut all = vec![
            ("no pass".to_owned(), plain(Passes::none())),
            ("every pass".to_owned(), plain(Passes::all())),
            ("every pass, math expanded".to_owned(), expanded(Passes::all())),
            ("no pass, math expanded".to_owned(), expanded(Passes::none())),
            ("every pass, math expanded to instructions".to_owned(), instructions(Passes::all())),
            ("every pass, invocations merged".to_owned(), KernelBackend { merges: true, ..plain(Passes::all()) }),
            ("no pass, invocations merged".to_owned(), KernelBackend { merges: true, ..plain(Passes::none()) }),
        ];
        all.extend(Passes::each().map(|(name, pass)| (format!("only {name}"), plain(Passes::only(pass)))));
        all.extend(Passes::each().map(|(name, pass)| (format!("all but {name}"), plain(Passes::all().without(pass)))));
        all
    }
}

impl VyreBackend for KernelBackend {
    fn id(&self) -> &'static str {
        "kernel form"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let valid = program.validate()?;
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let plan = launch::plan(&valid, &slices, config)?;
        let mut options = Options {
            specialization: config.specialization.resolve(program)?,
            workgroup_size: config.workgroup_override,
            passes: self.passes,
            expand_math: self.expand_math,
            approximations: self.approximations,
            one_test: true,
            unrolling: Unrolling::FAR,
            rounds_together: 4,
            round_ahead: true,
            searches_written_out: true,
            rows_of_tiles: Some(4),
            words_dealt: Some(4),
            components_apart: Some(4),
            made_of_counters: true,
            rejoined: true,
            small_grids: true,
            places_compared: true,
            places_tabled: true,
            own_words: true,
            long_roots: true,
            shared_exponentials: true,
            ..Options::default()
        };
        if self.merges {
            options.merged = plan.workgroup_size.map(|size| if size.is_multiple_of(2) { 2 } else { 1 });
        }
        let kernel = match kernel::lower(&valid, &options) {
            // Not every program allows it.
            Err(problem) if problem.code.id == codes::ir::NOT_MERGED.id => {
                kernel::lower(&valid, &Options { merged: [1; 3], ..options })?
            }
            lowered => lowered?,
        };
        if let Err(problem) = kernel::verify(&kernel) {
            return Err(BackendError::new(format!("the kernel form is not well made: {problem}\n{kernel}")));
        }
        let order = program.binding_order();
        let kinds: Vec<_> = order.iter().map(|&i| program.buffers()[i].kind).collect();
        let mut given = inputs.iter();
        let mut buffers: Vec<Vec<u8>> = kinds
            .iter()
            .zip(&plan.buffer_bytes)
            .map(|(kind, &bytes)| match kind.is_input() {
                true => given.next().cloned().unwrap_or_default(),
                false => vec![0; bytes as usize],
            })
            .collect();
        let how = Interpret { grid: plan.grid, subgroup_size: 32, budget: 200_000_000, noise: None };
        kernel::interpret(&kernel, &mut buffers, &how)?;
        let results = kinds.iter().zip(buffers).filter(|(kind, _)| kind.is_result());
        Ok(results.map(|(_, bytes)| bytes).collect())
    }
}
