//! Whether results are as near to the exact ones as fast arithmetic promises.
//!
//! WGSL bounds the error of each operation, not of what is computed with its results. So the program is evaluated several times, each
//! time with other deviations that WGSL allows, and how far those evaluations lie apart says how far a result may lie from the exact one.

use vyre_spec::Diagnostic;

use crate::ValidProgram;
use crate::ir::{Count, DataType, Math, Program, Specialization, TypeDef, layout_of};
use crate::kernel::{self, Interpret, Noise, Options, Passes, eval};
use crate::launch::{LaunchPlan, shape_of};

/// Evaluations that are compared.
const RUNS: u32 = 8;
/// How much wider than the evaluations lie apart the results may lie.
const SLACK: f64 = 3.0;

/// Results of a program with several deviations that WGSL allows.
#[derive(Clone, Debug)]
pub struct Spread {
    runs: Vec<Vec<Vec<u8>>>,
    met_nonfinite: bool,
}

/// Evaluates a program with deviations. `inputs` are the bytes of every read, uniform and read_write buffer, in binding order; each
/// evaluation takes at most `budget` steps.
pub fn spread(
    program: &ValidProgram,
    plan: &LaunchPlan,
    specialization: &Specialization,
    inputs: &[&[u8]],
    budget: u64,
) -> Result<Spread, Diagnostic> {
    let kinds: Vec<_> = program.binding_order().iter().map(|&at| program.buffers()[at].kind).collect();
    let mut given = inputs.iter();
    let sizes = kinds.iter().zip(&plan.buffer_bytes);
    let buffers: Vec<Vec<u8>> = sizes
        .map(|(kind, &bytes)| match kind.is_input() {
            true => given.next().map(|input| input.to_vec()).unwrap_or_default(),
            false => vec![0; bytes as usize],
        })
        .collect();
    let mut evaluations = Evaluations::new(buffers);
    let all: Vec<usize> = (0..kinds.len()).collect();
    evaluations.run(program, plan, specialization, &all, budget)?;
    Ok(evaluations.spread(program, &all))
}

/// Several evaluations side by side, each with deviations of its own, on buffers that programs may share.
pub struct Evaluations {
    /// For each evaluation all buffers.
    buffers: Vec<Vec<Vec<u8>>>,
    met_nonfinite: bool,
    launches: u32,
}

impl Evaluations {
    /// All begin with the same buffers.
    pub fn new(buffers: Vec<Vec<u8>>) -> Evaluations {
        Evaluations { buffers: vec![buffers; RUNS as usize], met_nonfinite: false, launches: 0 }
    }

    /// Runs a program in each; `slots` says which buffer is bound where, in binding order. One with exact arithmetic does not deviate.
    pub fn run(
        &mut self,
        program: &ValidProgram,
        plan: &LaunchPlan,
        specialization: &Specialization,
        slots: &[usize],
        budget: u64,
    ) -> Result<(), Diagnostic> {
        let options = Options {
            specialization: specialization.clone(),
            workgroup_size: Some(plan.workgroup_size),
            passes: Passes::none(),
            ..Options::default()
        };
        let kernel = &kernel::lower(program, &options)?;
        let deviates = program.math() == Math::Fast;
        let launches = self.launches;
        self.launches += 1;
        let evaluate = move |run: u32, all: &mut Vec<Vec<u8>>| -> Result<bool, Diagnostic> {
            let mut bound: Vec<Vec<u8>> = slots.iter().map(|&slot| all[slot].clone()).collect();
            // The first deviate the same way in every launch, too, so that errors add up; the others anew.
            let noise = Noise(if run < 4 { run } else { launches.wrapping_mul(RUNS).wrapping_add(run) });
            let how = Interpret { grid: plan.grid, subgroup_size: 32, budget, noise: deviates.then_some(noise) };
            kernel::interpret(kernel, &mut bound, &how)?;
            for ((&slot, bytes), index) in slots.iter().zip(bound).zip(program.binding_order()) {
                if program.buffers()[index].kind.is_result() {
                    all[slot] = bytes;
                }
            }
            Ok(kernel::met_nonfinite())
        };
        let met = std::thread::scope(|scope| {
            let runs = self.buffers.iter_mut().zip(0..);
            let threads: Vec<_> = runs.map(|(all, run)| scope.spawn(move || evaluate(run, all))).collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(met) => met,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.collect::<Result<Vec<bool>, _>>()
        })?;
        self.met_nonfinite |= met.contains(&true);
        Ok(())
    }

    /// Exchanges two buffers in each.
    pub fn swap(&mut self, a: usize, b: usize) {
        self.buffers.iter_mut().for_each(|all| all.swap(a, b));
    }

    /// How far apart they are in a program's results now.
    pub fn spread(&self, program: &Program, slots: &[usize]) -> Spread {
        let order = program.binding_order();
        let results = |all: &Vec<Vec<u8>>| {
            let written = order.iter().zip(slots).filter(|(index, _)| program.buffers()[**index].kind.is_result());
            written.map(|(_, &slot)| all[slot].clone()).collect()
        };
        Spread { runs: self.buffers.iter().map(results).collect(), met_nonfinite: self.met_nonfinite }
    }
}

/// A number in a result that lies further off than it may.
#[derive(Clone, Debug, PartialEq)]
pub struct Beyond {
    /// Position among the results.
    pub result: usize,
    /// Its first byte.
    pub byte: usize,
    /// What the exact number is, what was found, and how far off it may be.
    pub expected: f64,
    #[allow(missing_docs)]
    pub actual: f64,
    #[allow(missing_docs)]
    pub allowed: f64,
}

impl Spread {
    /// An operation somewhere took or gave an infinity or NaN, or divided by a number outside of where WGSL bounds quotients. A device may
    /// assume that there are no such numbers, so of such a program nothing is promised, not even which way it branches.
    pub fn met_nonfinite(&self) -> bool {
        self.met_nonfinite
    }

    /// The first number of the results that lies too far from the exact one. Where a deviation makes a number infinite or none at all,
    /// WGSL promises nothing.
    pub fn first_beyond(&self, program: &Program, expected: &[Vec<u8>], actual: &[Vec<u8>]) -> Option<Beyond> {
        let declared = program.binding_order().into_iter().filter(|&at| program.buffers()[at].kind.is_result());
        for (result, ((index, expected), actual)) in declared.zip(expected).zip(actual).enumerate() {
            let Ok(shape) = shape_of(program, index) else { continue };
            let (mut once, mut each) = (Vec::new(), Vec::new());
            element_leaves(program, &program.buffers()[index].ty, &mut once, &mut each);
            let judge = |leaf: &Leaf, base: u64, element: u64| -> Option<Beyond> {
                let start = (base + u64::from(leaf.offset)) as usize;
                let read = |from: &[u8]| number(from, start, element, &leaf.ty);
                let (exact, found) = (read(expected)?, read(actual)?);
                if exact.bits == found.bits {
                    return None;
                }
                let others: Vec<Number> = self.runs.iter().filter_map(|run| read(run.get(result)?)).collect();
                let allowed = allowed(&leaf.ty, exact, &others, found)?;
                Some(Beyond { result, byte: start, expected: exact.value, actual: found.value, allowed })
            };
            let head = once.iter().find_map(|leaf| judge(leaf, 0, 0));
            let rest = || {
                (0..shape.elements_in(expected.len() as u64)).find_map(|element| {
                    let base =
                        u64::from(shape.header) + element / u64::from(shape.per_stride) * u64::from(shape.stride);
                    each.iter().find_map(|leaf| judge(leaf, base, element))
                })
            };
            if let Some(beyond) = head.or_else(rest) {
                return Some(beyond);
            }
        }
        None
    }
}

/// How far a number may lie from the exact one, where it lies further.
fn allowed(ty: &DataType, exact: Number, others: &[Number], found: Number) -> Option<f64> {
    let float = kernel::Element::of(ty).map(|element| element.scalar()).filter(|scalar| scalar.is_float());
    if float.is_none() && others.iter().all(|other| other.bits == exact.bits) {
        return Some(0.0);
    }
    let (exact, found) = (exact.value, found.value);
    let (mut low, mut high) = (exact, exact);
    for other in others.iter().map(|other| other.value) {
        // NaN stays.
        low = if other < low || other.is_nan() { other } else { low };
        high = if other > high || other.is_nan() { other } else { high };
    }
    if !low.is_finite() || !high.is_finite() {
        return None;
    }
    let own = float.map_or(0.0, |scalar| match ty {
        DataType::BF16 | DataType::F8E4M3 | DataType::F8E5M2 => exact.abs() / 4.0,
        _ => 4.0 * kernel::ulp(scalar, exact) + if scalar == kernel::Scalar::F32 { 2f64.powi(-126) } else { 0.0 },
    });
    let slack = SLACK * (high - low) + own;
    (!(low - slack..=high + slack).contains(&found)).then_some(slack + (high - exact).max(exact - low))
}

/// A stored number, whatever its type.
#[derive(Clone, Copy)]
struct Number {
    bits: u64,
    value: f64,
}

fn number(bytes: &[u8], at: usize, element: u64, ty: &DataType) -> Option<Number> {
    let stored = kernel::Element::of(ty)?;
    let size = (stored.bits() as usize).div_ceil(8);
    let mut word = [0; 8];
    word[..size].copy_from_slice(bytes.get(at..at + size)?);
    let mut bits = u64::from_le_bytes(word);
    if stored.bits() == 4 {
        bits = bits >> (element % 2 * 4) & 15;
    }
    let bits = eval::decode(stored, bits);
    let value = f64::from_bits(eval::cast(stored.scalar(), kernel::Scalar::F64, bits));
    Some(Number { bits, value })
}

/// A scalar within an element.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Bytes before it.
    pub offset: u32,
    /// Its type.
    pub ty: DataType,
    /// Where it is, such as `.1[2]`; empty for a scalar.
    pub part: String,
}

/// The scalars of a buffer: those before an open array, and those of each element.
pub fn element_leaves(program: &Program, ty: &DataType, once: &mut Vec<Leaf>, each: &mut Vec<Leaf>) {
    let types = program.types();
    if let DataType::Handle(id) = ty
        && let Some(TypeDef::Struct { members, .. }) = types.get(id.0 as usize)
        && let Some((last, head)) = members.split_last()
        && let DataType::Handle(tail) = &last.ty
        && let Some(TypeDef::Array { element, count: Count::Runtime, .. }) = types.get(tail.0 as usize)
    {
        for (i, member) in head.iter().enumerate() {
            leaves(&member.ty, types, member.offset, format!(".{i}"), once);
        }
        leaves(element, types, 0, String::new(), each);
        return;
    }
    leaves(ty, types, 0, String::new(), each);
}

fn leaves(ty: &DataType, types: &[TypeDef], offset: u32, part: String, out: &mut Vec<Leaf>) {
    if let Some((element, count)) = ty.as_vector() {
        let step = element.bits().unwrap_or(0) / 8;
        out.extend((0..count).map(|i| Leaf {
            offset: offset + i * step,
            ty: element.clone(),
            part: format!("{part}.{}", ["x", "y", "z", "w"][i as usize & 3]),
        }));
        return;
    }
    if let DataType::Handle(id) = ty {
        let (below, def) = (&types[..(id.0 as usize).min(types.len())], types.get(id.0 as usize));
        match def {
            Some(TypeDef::Struct { members, .. }) => {
                for (i, member) in members.iter().enumerate() {
                    leaves(&member.ty, below, offset + member.offset, format!("{part}.{i}"), out);
                }
            }
            Some(TypeDef::Array { element, count: Count::Fixed(count), stride }) => {
                for i in 0..*count {
                    leaves(element, below, offset + i * stride, format!("{part}[{i}]"), out);
                }
            }
            _ => {}
        }
        return;
    }
    if layout_of(ty, types).is_some() {
        out.push(Leaf { offset, ty: ty.clone(), part });
    }
}
