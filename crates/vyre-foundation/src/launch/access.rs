//! What a launch does to each buffer that is bound to it, for those who order launches and move data.

use vyre_spec::Diagnostic;

use super::LaunchPlan;
use super::analysis::Analysis;
use crate::ValidProgram;
use crate::ir::{AtomicOp, Builtin, Specialization};
use crate::kernel::walk::{Effect, each_inst};
use crate::kernel::{self, Address, Block, Inst, Kernel, Memory, Op, Value};

/// What a launch does to one buffer. Where something is not certain, it says what lets a caller do less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What the buffer held before may matter: something is loaded from it or changed atomically.
    pub reads: bool,
    /// What is stored to it.
    pub writes: Writes,
    /// All that is done to it are atomic operations of this kind whose old values nobody looks at, so launches that only do the same to
    /// it may run in any order, and at once. `Add` stands for `Sub` too.
    pub commutes: Option<AtomicOp>,
    cover: Option<Cover>,
}

/// How much of a buffer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Nothing.
    None,
    /// Something, perhaps nothing.
    Some,
    /// Every byte, by a launch with enough invocations; [`Access::overwrites`] tells whether one has.
    All,
}

/// Invocation `i` along the axis writes the whole of element `i`, whatever else it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cover {
    axis: u8,
    stride: u32,
}

impl Access {
    /// The launch writes every byte of the buffer, which is the `position`-th in binding order. Together with `!reads` it means that what
    /// the buffer held before is lost unseen.
    pub fn overwrites(&self, position: usize, plan: &LaunchPlan) -> bool {
        let (Some(cover), Some(&bytes)) = (self.cover, plan.buffer_bytes.get(position)) else { return false };
        let axis = usize::from(cover.axis);
        let invocations = u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]);
        plan.grid.iter().all(|&groups| groups > 0) && invocations >= bytes.div_ceil(u64::from(cover.stride.max(1)))
    }
}

/// What launches of the program under this specialization do to its buffers, in binding order. Found out once and remembered.
pub fn access(program: &ValidProgram, specialization: Option<&Specialization>) -> Result<Vec<Access>, Diagnostic> {
    let workgroup = super::workgroup_size(program, specialization)?;
    Ok(Analysis::of(program, specialization, workgroup)?.access.clone())
}

pub(super) fn of(kernel: &Kernel) -> Vec<Access> {
    let mut found = vec![Found::default(); kernel.buffers.len()];
    each_inst(&kernel.body, &mut |inst| {
        let Some((address, effect)) = kernel::walk::access(inst) else { return };
        let Memory::Buffer(buffer) = address.memory else { return };
        found[buffer as usize].add(inst, effect);
    });
    let covers = covers(kernel);
    let facts = found.into_iter().zip(covers).map(|(found, cover)| Access {
        reads: found.reads,
        writes: match (found.writes, cover) {
            (false, _) => Writes::None,
            (true, None) => Writes::Some,
            (true, Some(_)) => Writes::All,
        },
        commutes: found.commutes.filter(|_| !found.otherwise),
        cover,
    });
    facts.collect()
}

#[derive(Clone, Default)]
struct Found {
    reads: bool,
    writes: bool,
    commutes: Option<AtomicOp>,
    /// Something is done to it besides.
    otherwise: bool,
}

impl Found {
    fn add(&mut self, inst: &Inst, effect: Effect) {
        self.reads |= effect != Effect::Write;
        self.writes |= effect != Effect::Read;
        let kind = match inst {
            Inst::Atomic { op, result: None, .. } => commuting(*op),
            _ => None,
        };
        self.otherwise |= kind.is_none() || self.commutes.is_some_and(|known| Some(known) != kind);
        self.commutes = self.commutes.or(kind);
    }
}

/// The kind of an operation that may change places with others of its kind.
fn commuting(op: AtomicOp) -> Option<AtomicOp> {
    match op {
        AtomicOp::Add | AtomicOp::Sub => Some(AtomicOp::Add),
        AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => Some(op),
        AtomicOp::Load | AtomicOp::Store | AtomicOp::Exchange | AtomicOp::CompareExchange => None,
    }
}

/// The buffers of which each invocation writes the whole element that its global id along some axis names, under no condition but that
/// there is such an element.
fn covers(kernel: &Kernel) -> Vec<Option<Cover>> {
    let mut ids: Vec<Option<u8>> = vec![None; kernel.values.len()];
    // Bytes of the element that are written, for each buffer and axis.
    let mut written: Vec<[Vec<(u32, u32)>; 3]> = vec![Default::default(); kernel.buffers.len()];
    for inst in &kernel.body.insts {
        match inst {
            Inst::Let(value, Op::Builtin(Builtin::GlobalId(axis))) => ids[value.index()] = Some((*axis).min(2)),
            Inst::Store { address, element, value, guard } => {
                let Memory::Buffer(buffer) = address.memory else { continue };
                let stride = kernel.buffers[buffer as usize].stride;
                if let [(index, step)] = address.terms[..]
                    && step == stride
                    && let Some(axis) = ids[index.index()]
                    && element.bits() >= 8
                    && kernel.buffers[buffer as usize].header == 0
                    && address.offset < stride
                    && guard.is_none_or(|guard| only_bounds(kernel, guard, index, address))
                {
                    let bytes = element.bits() / 8 * u32::from(kernel.values[value.index()].ty.width);
                    written[buffer as usize][usize::from(axis)].push((address.offset, address.offset + bytes));
                }
            }
            // What comes after may not be reached.
            Inst::If { then, otherwise, .. } if leaves(then) || leaves(otherwise) => break,
            Inst::Loop(body) if !body.finite || leaves(&body.body) => break,
            _ => {}
        }
    }
    let cover = |(ranges, buffer): (&mut [Vec<(u32, u32)>; 3], &kernel::KernelBuffer)| {
        let stride = buffer.stride;
        let axis = ranges.iter_mut().position(|ranges| whole(ranges, stride))?;
        Some(Cover { axis: axis as u8, stride })
    };
    written.iter_mut().zip(&kernel.buffers).map(cover).collect()
}

/// The guard says nothing but that the index is less than the buffer's length.
fn only_bounds(kernel: &Kernel, guard: Value, index: Value, address: &Address) -> bool {
    let Memory::Buffer(buffer) = address.memory else { return false };
    let defined = |value: Value| {
        kernel.body.insts.iter().find_map(|inst| match inst {
            Inst::Let(defined, op) if *defined == value => Some(op),
            _ => None,
        })
    };
    let Some(Op::Binary(kernel::Binary::Lt, a, b)) = defined(guard) else { return false };
    *a == index
        && match defined(*b) {
            Some(Op::Length(of)) => *of == buffer,
            Some(Op::Const(literal)) => {
                kernel.buffers[buffer as usize].count.is_some_and(|n| *literal == crate::ir::Literal::U32(n))
            }
            _ => false,
        }
}

/// The ranges leave no byte of the element out.
fn whole(ranges: &mut [(u32, u32)], stride: u32) -> bool {
    ranges.sort_unstable();
    let end = ranges.iter().fold(0, |end, &(from, to)| if from <= end { end.max(to) } else { end });
    stride > 0 && end >= stride
}

/// Some way through the block ends the invocation.
fn leaves(block: &Block) -> bool {
    let mut leaves = matches!(block.end, kernel::End::Return);
    for inst in &block.insts {
        leaves |= match inst {
            Inst::If { then, otherwise, .. } => self::leaves(then) || self::leaves(otherwise),
            Inst::Loop(body) => self::leaves(&body.body),
            _ => false,
        };
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferDecl, DataType, Expr, Literal, Node, Program, SpecConstant};
    use crate::launch::{LaunchRequest, plan};

    fn of(buffers: Vec<BufferDecl>, body: Vec<Node>) -> (ValidProgram, Vec<Access>) {
        let program = Program::wrapped(buffers, [64, 1, 1], body).validate().expect("valid");
        let facts = access(&program, None).expect("facts");
        (program, facts)
    }

    fn i() -> Expr {
        Expr::global_id(0)
    }

    #[test]
    fn a_map_reads_its_input_and_overwrites_its_result() {
        let buffers = vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::read_write("b", 1, DataType::F32)];
        let (program, facts) = of(buffers, vec![Node::store("b", i(), Expr::load("a", i()))]);
        assert_eq!((facts[0].reads, facts[0].writes, facts[0].commutes), (true, Writes::None, None));
        assert_eq!((facts[1].reads, facts[1].writes, facts[1].commutes), (false, Writes::All, None));
        let sizes = |grid| {
            let request = LaunchRequest { input_bytes: &[400, 400], grid, ..LaunchRequest::default() };
            plan(&program, &request).expect("sizes")
        };
        assert!(facts[1].overwrites(1, &sizes(None)));
        assert!(!facts[1].overwrites(1, &sizes(Some([1, 1, 1]))));
        assert!(!facts[1].overwrites(1, &sizes(Some([2, 0, 1]))));
        assert!(!facts[0].overwrites(0, &sizes(None)));
    }

    #[test]
    fn a_store_under_a_condition_or_after_a_way_out_is_not_all() {
        let buffers = || vec![BufferDecl::read_write("b", 0, DataType::F32)];
        let store = || Node::store("b", i(), Expr::f32(1.0));
        let some = || i().lt(Expr::u32(5));
        for body in [
            vec![Node::if_then(some(), vec![store()])],
            vec![Node::if_then(some(), vec![Node::Return(None)]), store()],
            vec![Node::store("b", i() + Expr::u32(1), Expr::f32(1.0))],
            vec![Node::store("b", Expr::global_id(0) * Expr::u32(2), Expr::f32(1.0))],
            vec![Node::forever(vec![Node::if_then(some(), vec![Node::Break])]), store()],
        ] {
            let (_, facts) = of(buffers(), body.clone());
            assert_eq!(facts[0].writes, Writes::Some, "{body:?}");
        }
        assert_eq!(
            of(buffers(), vec![store(), Node::if_then(some(), vec![Node::Return(None)])]).1[0].writes,
            Writes::All
        );
    }

    #[test]
    fn a_vector_of_three_leaves_its_fourth_part() {
        let vector = |width: u32| {
            let ty = DataType::Vec { element: Box::new(DataType::F32), count: width };
            let part = Expr::f32(1.0);
            let value = Expr::Construct { ty: ty.clone(), parts: vec![part; width as usize] };
            of(vec![BufferDecl::read_write("b", 0, ty)], vec![Node::store("b", i(), value)]).1[0].writes
        };
        assert_eq!((vector(2), vector(3), vector(4)), (Writes::All, Writes::Some, Writes::All));
    }

    #[test]
    fn sums_whose_old_values_nobody_wants_commute() {
        let buffers = || vec![BufferDecl::read_write("c", 0, DataType::U32)];
        let atomic = |op| Node::atomic(op, "c", Expr::u32(0), i());
        let commutes = |body| of(buffers(), body).1[0].commutes;
        assert_eq!(commutes(vec![atomic(AtomicOp::Add), atomic(AtomicOp::Sub)]), Some(AtomicOp::Add));
        assert_eq!(commutes(vec![atomic(AtomicOp::Max)]), Some(AtomicOp::Max));
        assert_eq!(commutes(vec![atomic(AtomicOp::Max), atomic(AtomicOp::Add)]), None);
        assert_eq!(commutes(vec![atomic(AtomicOp::Exchange)]), None);
        assert_eq!(commutes(vec![atomic(AtomicOp::Add), Node::store("c", i(), Expr::u32(1))]), None);
        let mut wanted = atomic(AtomicOp::Add);
        if let Node::Atomic { result, .. } = &mut wanted {
            *result = Some("old".into());
        }
        assert_eq!(commutes(vec![wanted, Node::store("c", i(), Expr::var("old"))]), None);
    }

    #[test]
    fn constants_decide_what_is_written() {
        let body = vec![Node::if_then(Expr::constant("on"), vec![Node::store("b", i(), Expr::u32(1))])];
        let constant = SpecConstant { name: "on".into(), default: Literal::Bool(false) };
        let program = Program::wrapped(vec![BufferDecl::read_write("b", 0, DataType::U32)], [64, 1, 1], body)
            .with_constants(vec![constant])
            .validate()
            .expect("valid");
        assert_eq!(access(&program, None).expect("facts")[0].writes, Writes::None);
        let on = Specialization::from([("on".into(), Literal::Bool(true))]);
        assert_eq!(access(&program, Some(&on)).expect("facts")[0].writes, Writes::All);
    }
}
