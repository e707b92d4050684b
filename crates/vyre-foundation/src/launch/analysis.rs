//! What is found out about a program once, for all its launches.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use vyre_spec::{Diagnostic, Severity, codes};

use super::access::{self, Access};
use super::domain::{self, Domain, Needed};
use super::extent::{self, Bound};
use super::forms::Forms;
use super::freedom::{self, Freedom};
use crate::ValidProgram;
use crate::ir::{Program, Specialization};
use crate::kernel::{self, Options, Passes};

/// What a program does, under one specialization and workgroup size.
pub(super) struct Analysis {
    pub(super) domain: Domain,
    /// Another workgroup size changes nothing that was found.
    any_size: bool,
    /// Ids within the workgroup are used, so a single workgroup is not a single invocation.
    pub(super) sized: bool,
    pub(super) access: Vec<Access>,
    pub(super) freedom: Arc<Freedom>,
}

/// The analyses of a program, which is asked about again at every launch.
#[derive(Default)]
pub(crate) struct Analyses(Mutex<Vec<Entry>>);

struct Entry {
    specialization: Specialization,
    workgroup: [u32; 3],
    analysis: Arc<Analysis>,
}

/// So many are kept; the oldest goes.
const MOST_KEPT: usize = 16;

impl fmt::Debug for Analyses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Analyses")
    }
}

impl Analysis {
    /// Looks at a program, or remembers.
    pub(super) fn of(
        program: &ValidProgram,
        specialization: Option<&Specialization>,
        workgroup: [u32; 3],
    ) -> Result<Arc<Analysis>, Diagnostic> {
        let none = Specialization::new();
        let specialization = specialization.unwrap_or(&none);
        let known = &program.analyses().0;
        let fits = |entry: &&Entry| {
            entry.specialization == *specialization && (entry.workgroup == workgroup || entry.analysis.any_size)
        };
        let find = |entries: &[Entry]| entries.iter().find(fits).map(|entry| entry.analysis.clone());
        if let Some(analysis) = find(&known.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(analysis);
        }
        // Two threads may do the same work once; neither waits for the other.
        let analysis = Arc::new(Analysis::new(program, specialization, workgroup)?);
        let mut entries = known.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MOST_KEPT {
            entries.remove(0);
        }
        let specialization = specialization.clone();
        entries.push(Entry { specialization, workgroup, analysis: analysis.clone() });
        Ok(analysis)
    }

    fn new(
        program: &ValidProgram,
        specialization: &Specialization,
        workgroup: [u32; 3],
    ) -> Result<Analysis, Diagnostic> {
        let options = Options {
            specialization: specialization.clone(),
            workgroup_size: Some(workgroup),
            // Guards stay, as they tell what an index must be less than.
            passes: Passes::only(Passes::FOLD).with(Passes::COMMON).with(Passes::DEAD),
            ..Options::default()
        };
        let kernel = kernel::lower(program, &options)?;
        let forms = Forms::new(&kernel);
        let domain = domain::of(&kernel, &forms, program);
        let access = access::of(&kernel);
        let freedom = Arc::new(freedom::of(&kernel, &domain, &access, program));
        Ok(Analysis { domain, any_size: kernel.resizable, sized: !kernel.resizable, access, freedom })
    }

    /// The number of invocations along each axis and where it comes from.
    pub(super) fn extents(
        &self,
        program: &Program,
        bound: &Bound<'_>,
        workgroup: [u32; 3],
    ) -> Result<([u64; 3], String), Diagnostic> {
        let mut extents = [1; 3];
        let mut origins: Vec<String> = Vec::new();
        for (axis, along) in self.domain.axes.iter().enumerate() {
            match along.needed(bound) {
                Needed::One if self.sized => extents[axis] = workgroup[axis].into(),
                Needed::One => {}
                Needed::Count(count, sources) => {
                    extents[axis] = count;
                    if let Some(source) = sources.iter().min() {
                        let text = format!("`{}`", source.text());
                        if !origins.contains(&text) {
                            origins.push(text);
                        }
                    }
                }
                unclear => return Err(ask(program, axis, &unclear)),
            }
        }
        if origins.is_empty() {
            let why = if self.sized { "every workgroup would do the same" } else { "no id is used" };
            origins.push(why.to_owned());
        }
        Ok((extents, origins.join(", ")))
    }

    /// Whether all that invocations of the domain come to is proven to be inside a buffer.
    pub(super) fn stays_inside(&self, bound: &Bound<'_>, buffer: usize, extents: [u64; 3]) -> bool {
        let reached = self.domain.spans[buffer].as_ref().and_then(|span| domain::reached(span, bound, extents));
        reached.is_some_and(|reached| reached <= bound.lengths[buffer])
    }

    /// Buffers of which so few elements are reached that it is hardly meant.
    pub(super) fn partial(&self, program: &Program, bound: &Bound<'_>, extents: [u64; 3]) -> Vec<Diagnostic> {
        let mut warnings = Vec::new();
        for (buffer, (span, &length)) in self.domain.spans.iter().zip(bound.lengths).enumerate() {
            let Some(reached) = span.as_ref().and_then(|span| domain::reached(span, bound, extents)) else { continue };
            let left = length.saturating_sub(reached);
            // Borders of a few elements or rows are left out on purpose.
            if left <= 8 || left <= length / 8 {
                continue;
            }
            let name = extent::name(program, buffer as u32);
            let message = format!(
                "only {reached} of the {length} elements of `{name}` are reached by {} x {} x {} invocations",
                extents[0], extents[1], extents[2]
            );
            let mut warning = Diagnostic::new(&codes::ir::LAUNCH_PARTIAL, message);
            warning.severity = Severity::Warning;
            warnings.push(warning);
        }
        warnings
    }
}

/// Asks for what does not follow from the kernel.
fn ask(program: &Program, axis: usize, unclear: &Needed<'_>) -> Diagnostic {
    let name = domain::axis(axis);
    let message = match unclear {
        Needed::Several(answers) => {
            let list: Vec<String> =
                answers.iter().map(|(count, source)| format!("{count} (`{}`)", source.text())).collect();
            format!("how many invocations to launch along {name} is not clear: {}", list.join(" or "))
        }
        Needed::Missing(extent) => format!(
            "how many invocations to launch along {name} depends on `{}`, which is not known before the launch",
            extent.text(program)
        ),
        _ => format!(
            "how many invocations to launch along {name} does not follow from the kernel: `id.{name}` is used, and \
             nothing that is known before the launch bounds it"
        ),
    };
    Diagnostic::new(&codes::ir::LAUNCH_ASK, message)
}
