//! What the launches of all ops share.

use std::sync::OnceLock;

use vyre::expression::{Fused, Term};
use vyre::variant::{Blocks, Variant};
use vyre::{
    BackendId, Buffer, DataType, Diagnostic, DispatchConfig, Engine, Error, Kernel, Program, Shape, ValidProgram, codes,
};

/// The most elements that one launch counts with u32 indices.
pub(crate) const MOST: usize = 1 << 30;

/// A grid of so many workgroups, in rows that every device can have. Kernels find their number with [`GROUP`] and compare it with how
/// many there are.
pub(crate) fn grid(groups: usize) -> [u32; 3] {
    const ROW: usize = 1 << 15;
    match groups <= ROW {
        true => [groups as u32, 1, 1],
        false => [ROW as u32, groups.div_ceil(ROW) as u32, 1],
    }
}

/// The number of the workgroup in a [`grid`].
pub(crate) const GROUP: &str = "let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;\n";

/// A kernel in the text form.
pub(crate) fn parsed(text: &str) -> Result<Program, Error> {
    Ok(vyre::text::parse(text)?)
}

pub(crate) fn valid(program: &Program) -> Result<ValidProgram, Error> {
    program.validate().map_err(|problems| Error::from(problems.to_vec()))
}

/// A kernel that may be written in several ways, the default first, which the tuner chooses from: names and texts. In all of them a workgroup
/// does the same and gives the same bits, with more or fewer invocations, so that what is decided holds whatever the size.
pub(crate) fn kernel_of_forms(
    engine: &Engine,
    key: &str,
    forms: impl FnOnce() -> Vec<(String, String)>,
) -> Result<Kernel, Error> {
    kernel_of_forms_or(engine, key, forms, || None)
}

/// As [`kernel_of_forms`], with a function for processors. An engine that has nothing else is not kept busy with other forms of the kernel.
pub(crate) fn kernel_of_forms_or(
    engine: &Engine,
    key: &str,
    forms: impl FnOnce() -> Vec<(String, String)>,
    function: impl FnOnce() -> Option<Variant>,
) -> Result<Kernel, Error> {
    engine.kernel_from_with(key, || {
        let mut forms = forms();
        if let Some(only) = only_form() {
            let only = forms.swap_remove(only.min(forms.len() - 1));
            return Ok((parsed(&only.1)?, DispatchConfig::default()));
        }
        let mut config = DispatchConfig::default();
        config.variants = with_function(engine, function()).variants;
        if !config.variants.is_empty() && !Traits::of(engine).is_gpu {
            forms.truncate(1);
        }
        for (name, text) in &forms[1..] {
            let program = valid(&parsed(text)?)?;
            config.variants.push(Variant::program(name.as_str(), &program, Blocks::AsPlanned).vouched());
        }
        Ok((parsed(&forms[0].1)?, config))
    })
}

/// The number of the one form that `VYRE_OPS_FORM=form2` asks for; the last where there are fewer. No function stands beside it.
fn only_form() -> Option<usize> {
    static ONLY: OnceLock<Option<usize>> = OnceLock::new();
    *ONLY.get_or_init(|| {
        let told = std::env::var("VYRE_OPS_FORM").ok()?;
        told.split(',').find_map(|word| word.strip_prefix("form")?.parse().ok())
    })
}

/// A term is an array as it is stored, so that a function can read its bytes, which are the first buffer of a kernel with its lines.
pub(crate) fn is_plain(term: &Term, fused: &Fused) -> bool {
    fused.bindings() == 1 && term.stored().is_some_and(|(_, stored)| stored == term.data_type())
}

/// Bytes of an element.
pub(crate) fn size_of(ty: &DataType) -> u64 {
    u64::from(ty.bits().unwrap_or(32) / 8)
}

/// Room for so many elements.
pub(crate) fn room(engine: &Engine, ty: &DataType, elements: usize) -> Buffer {
    engine.buffer(elements as u64 * size_of(ty))
}

/// The extents of a term, which has to have some.
pub(crate) fn extents(term: &Term) -> Result<Vec<usize>, Error> {
    term.check()?;
    match term.shape() {
        Some(shape) => Ok(shape.extents().to_vec()),
        None => Err(misfit("a number without an array has no elements")),
    }
}

/// The engine of a term, which has to have one.
pub(crate) fn engine(term: &Term) -> Result<Engine, Error> {
    term.engine().cloned().ok_or_else(|| misfit("a number without an array belongs to no engine"))
}

/// Extents before an axis, along it and behind it.
pub(crate) fn split(extents: &[usize], axis: usize) -> Result<[usize; 3], Error> {
    let Some(&along) = extents.get(axis) else {
        return Err(no_axis(axis, extents));
    };
    Ok([extents[..axis].iter().product(), along, extents[axis + 1..].iter().product()])
}

/// Runs an op on the device that is fastest for the whole of it, where it has [`Traits`] of that device alone. `op` is all that its time depends on
/// besides the terms' types and how many items there are.
pub(crate) fn as_a_whole<R>(
    op: impl FnOnce() -> String,
    terms: &[&Term],
    items: usize,
    work: impl FnMut() -> Result<R, Error>,
) -> Result<R, Error> {
    let mut work = work;
    let Some(engine) = terms.iter().find_map(|term| term.engine()).filter(|engine| engine.can_place()) else {
        return work();
    };
    let types: Vec<String> = terms.iter().map(|term| term.data_type().to_string()).collect();
    let inputs: Vec<&Buffer> = terms.iter().flat_map(|term| term.arrays()).collect();
    engine.as_a_whole(&format!("op {} {}", op(), types.join(" ")), items as u64, &inputs, work)
}

/// How many terms have, as far as it can be told.
pub(crate) fn count(terms: &[&Term]) -> usize {
    let elements = |term: &&Term| term.shape().and_then(|shape| shape.elements().ok());
    terms.iter().filter_map(elements).max().unwrap_or(1)
}

/// About how large a number is.
pub(crate) fn magnitude(count: usize) -> u32 {
    count.max(1).ilog2()
}

/// The backends that work of this thread may go to.
fn backends(engine: &Engine) -> Vec<BackendId> {
    engine.place().map_or_else(|| engine.backend_ids(), |place| vec![place])
}

/// The variants that some device can run which the work may go to.
pub(crate) fn runnable(engine: &Engine, variants: Vec<Variant>) -> Vec<Variant> {
    let backends: Vec<_> = backends(engine).iter().filter_map(|id| engine.backend(id.as_str()).ok()).collect();
    variants.into_iter().filter(|variant| backends.iter().any(|backend| backend.takes(variant).is_ok())).collect()
}

/// With functions and other code for one device beside the kernel, unless one form of it alone is asked for.
pub(crate) fn with_function(engine: &Engine, code: impl IntoIterator<Item = Variant>) -> DispatchConfig {
    let code = code.into_iter().filter(|_| only_form().is_none());
    with_variants(runnable(engine, code.collect()))
}

pub(crate) fn with_variants(variants: Vec<Variant>) -> DispatchConfig {
    let mut config = DispatchConfig::default();
    config.variants = variants;
    config
}

pub(crate) fn misfit(message: impl Into<String>) -> Error {
    misfit_with(message, "Give arrays of the shapes and sizes that the message names.")
}

/// As [`misfit`], where more can be said.
pub(crate) fn misfit_with(message: impl Into<String>, fix: impl Into<String>) -> Error {
    Diagnostic::new(&codes::engine::SHAPE, message.into()).with_fix(fix).into()
}

pub(crate) fn mistyped(message: impl Into<String>) -> Error {
    let fix = "Cast it to a type that the message names, such as with `x.lazy().cast::<f32>()`.";
    Diagnostic::new(&codes::engine::WRONG_ELEMENT, message.into()).with_fix(fix).into()
}

/// There is no such axis.
pub(crate) fn no_axis(axis: usize, extents: &[usize]) -> Error {
    let fix = match extents.len() {
        0 => "Leave the axis out: a single number has none.".to_owned(),
        axes => format!("Axes are counted from 0, so that the last one is {}.", axes - 1),
    };
    misfit_with(format!("there is no axis {axis} in {}", Shape::from(extents)), fix)
}

pub(crate) fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::F16 | DataType::F32 | DataType::F64)
}

/// What the device of an op has, or what all devices of an engine have in common where the op may go to any. Kernels give the same either
/// way; this chooses the form that suits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Work will probably run on a device that keeps thousands of invocations going at once.
    pub(crate) is_gpu: bool,
    /// A workgroup that has begun goes on while others wait for it, on every device.
    pub(crate) waits: bool,
    /// Every device has subgroups of 32.
    pub(crate) subgroups: bool,
    /// Every device has matrix fragments.
    pub(crate) fragments: bool,
    /// Bytes of workgroup memory that every device has.
    pub(crate) memory: u64,
    /// Threads that processors work with; 0 where there is none.
    pub(crate) threads: usize,
}

impl Traits {
    /// `VYRE_OPS_FORM` decides otherwise, for comparisons: of `wide` or `deep`, `passes` and `alone`, those that it names
    /// (and `form2`, see [`kernel_of_forms`]).
    pub(crate) fn of(engine: &Engine) -> Traits {
        use vyre::backend::DeviceKind;
        let mut traits =
            Traits { is_gpu: false, waits: true, subgroups: true, fragments: true, memory: u64::MAX, threads: 0 };
        for id in backends(engine) {
            // The interpreter has what a kernel needs.
            let Ok(backend) = engine.backend(id.as_str()) else { continue };
            if id.as_str() == "reference" {
                continue;
            }
            let able = backend.capabilities();
            traits.is_gpu |= matches!(able.kind, DeviceKind::Discrete | DeviceKind::Integrated);
            // Threads of a processor are scheduled in turn, and NVIDIA promises it for the blocks of a grid that have begun.
            traits.waits &= able.kind == DeviceKind::Cpu || id.as_str().starts_with("cuda");
            traits.subgroups &= able.subgroup_sizes == Some([32, 32]);
            traits.fragments &= able.features.contains(vyre::kernel::Features::MATRIX);
            traits.memory = traits.memory.min(able.limits.max_workgroup_memory);
            traits.threads = traits.threads.max(able.threads as usize);
        }
        if let Ok(form) = std::env::var("VYRE_OPS_FORM") {
            let says = |word: &str| form.split(',').any(|own| own == word);
            traits.is_gpu = says("wide") || traits.is_gpu && !says("deep");
            traits.waits &= !says("passes");
            traits.subgroups &= !says("alone");
        }
        traits
    }

    /// Subgroups where they are faster than workgroup memory.
    pub(crate) fn subgroups_on_gpu(self) -> bool {
        self.is_gpu && self.subgroups
    }
}
