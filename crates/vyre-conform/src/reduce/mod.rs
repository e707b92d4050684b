//! Shrinks a failing case to a few lines.
//!
//! Every candidate validates, and stays free of races: indices of what is written keep their meaning, and barriers between
//! writes and reads of shared memory stay. Loops stay bounded, because what ends them is not touched.

mod edit;
mod types;

use std::collections::HashSet;

use vyre_foundation::ir::{
    AtomicOp, BarrierScope, BufferKind, Builtin, DataType, Expr, Function, Literal, Name, Node, Program, SpecConstant,
    TypeDef,
};

use crate::compare::{each_operand, visit};
use crate::generate::Case;
use edit::{edit_statement, simpler_exprs, simpler_statements};

/// A program taken apart, so that it can be changed.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) types: Vec<TypeDef>,
    pub(crate) constants: Vec<SpecConstant>,
    pub(crate) buffers: Vec<vyre_foundation::ir::BufferDecl>,
    pub(crate) functions: Vec<Function>,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) workgroup_exprs: [Option<Expr>; 3],
    pub(crate) domain: Option<[Expr; 3]>,
    pub(crate) body: Vec<Node>,
}

impl Parts {
    pub(crate) fn of(program: &Program) -> Parts {
        Parts {
            types: program.types().to_vec(),
            constants: program.constants().to_vec(),
            buffers: program.buffers().to_vec(),
            functions: program.functions().to_vec(),
            workgroup_size: program.workgroup_size(),
            workgroup_exprs: program.workgroup_exprs().clone(),
            domain: program.domain().cloned(),
            body: program.body().to_vec(),
        }
    }

    pub(crate) fn program(&self) -> Program {
        let program = Program::wrapped(self.buffers.clone(), self.workgroup_size, self.body.clone())
            .with_types(self.types.clone())
            .with_constants(self.constants.clone())
            .with_functions(self.functions.clone())
            .with_workgroup_exprs(self.workgroup_exprs.clone());
        match &self.domain {
            Some(domain) => program.with_domain(domain.clone()),
            None => program,
        }
    }

    /// The bodies of the functions and of the program.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[Node]> {
        self.functions.iter().map(|function| function.body.as_slice()).chain([self.body.as_slice()])
    }
}

/// Shrinks a case for which `still_fails` is true, and keeps it so. The closure is asked only about cases that validate; it
/// should answer false where the reference itself does not finish.
pub fn reduce(case: &Case, mut still_fails: impl FnMut(&Case) -> bool) -> Case {
    let mut reducer = Reducer { best: case.clone(), still_fails: &mut still_fails, asked: 0 };
    loop {
        let before = size(&reducer.best);
        reducer.remove_statements();
        reducer.idle_barriers();
        reducer.launch();
        reducer.flatten();
        reducer.plain_indices();
        reducer.expressions();
        reducer.inline();
        reducer.declarations();
        reducer.inputs();
        if size(&reducer.best) >= before || reducer.asked >= MOST_QUESTIONS {
            return reducer.best;
        }
    }
}

/// Bounds the time of a reduction.
const MOST_QUESTIONS: u32 = 20_000;

/// How much there is of a case; every step makes it less.
fn size(case: &Case) -> usize {
    let program = &case.program;
    let mut total = 0;
    for body in program.functions().iter().map(|function| function.body.as_slice()).chain([program.body()]) {
        visit(body, &mut |node| {
            total += 10;
            edit::node_exprs(node, &mut |expr| total += weight(expr));
        });
    }
    let set: usize = case.inputs.iter().flatten().filter(|&&byte| byte != 0).count();
    let bytes: usize = case.inputs.iter().map(Vec::len).sum();
    let shape: u32 = program.workgroup_size().iter().chain(case.grid.iter().flatten()).sum();
    total
        + set
        + bytes
        + shape as usize
        + 5 * (program.buffers().len() + program.functions().len() + program.types().len())
        + 5 * (program.constants().len() + case.specialization.len())
}

fn weight(expr: &Expr) -> usize {
    let mut total = match expr {
        Expr::Literal(literal) if literal.bits() == 0 => 1,
        Expr::Literal(_) => 2,
        _ => 3,
    };
    each_operand(expr, &mut |operand| total += weight(operand));
    total
}

/// The number of statements, those inside others included.
pub fn statement_count(program: &Program) -> usize {
    let mut count = 0;
    for body in program.functions().iter().map(|function| function.body.as_slice()).chain([program.body()]) {
        visit(body, &mut |_| count += 1);
    }
    count
}

struct Reducer<'a> {
    best: Case,
    still_fails: &'a mut dyn FnMut(&Case) -> bool,
    asked: u32,
}

impl Reducer<'_> {
    fn parts(&self) -> Parts {
        Parts::of(&self.best.program)
    }

    /// Takes the change when the case is still valid, free of races, and failing.
    fn try_parts(&mut self, parts: Parts) -> bool {
        let case = Case { program: parts.program(), ..self.best.clone() };
        self.try_case(case)
    }

    fn try_case(&mut self, case: Case) -> bool {
        !loses_barrier(&self.best, &case) && self.try_safe(case)
    }

    fn try_safe(&mut self, case: Case) -> bool {
        if self.asked >= MOST_QUESTIONS || size(&case) >= size(&self.best) {
            return false;
        }
        if case.program.validate().is_err() {
            return false;
        }
        self.asked += 1;
        let failed = (self.still_fails)(&case);
        if failed {
            self.best = case;
        }
        failed
    }

    /// Removes runs of statements from every list, long runs first.
    fn remove_statements(&mut self) {
        let mut list = 0;
        loop {
            let mut parts = self.parts();
            let Some(length) = edit::list(&mut parts, list, |nodes| nodes.len()) else { return };
            let mut run = length;
            while run > 0 {
                let mut at = 0;
                loop {
                    let mut parts = self.parts();
                    let keep = protected(&parts);
                    let removed = edit::list(&mut parts, list, |nodes| {
                        if at >= nodes.len() {
                            return None;
                        }
                        let end = (at + run).min(nodes.len());
                        let before = nodes.len();
                        let mut position = 0;
                        nodes.retain(|node| {
                            let inside = (at..end).contains(&position);
                            position += 1;
                            !inside || keep.holds(node)
                        });
                        Some(before != nodes.len())
                    });
                    match removed {
                        Some(Some(true)) if self.try_parts(parts) => {}
                        Some(Some(_)) => at += run,
                        _ => break,
                    }
                }
                run /= 2;
            }
            list += 1;
        }
    }

    /// Removes barriers of the outermost list that have nothing to order since the one before.
    fn idle_barriers(&mut self) {
        let mut parts = self.parts();
        let keep = protected(&parts);
        let mut idle = true;
        parts.body.retain(|node| {
            if matches!(node, Node::Barrier(_)) {
                return !std::mem::replace(&mut idle, true);
            }
            visit(std::slice::from_ref(node), &mut |node| {
                idle &=
                    !matches!(node, Node::Store { .. } | Node::Atomic { .. } | Node::Call { .. } | Node::Barrier(_));
                edit::node_exprs(node, &mut |expr| written_indices(expr, &keep.written, &mut |_| idle = false));
            });
            true
        });
        let case = Case { program: parts.program(), ..self.best.clone() };
        self.try_safe(case);
    }

    /// One invocation, and the program's own launch.
    fn launch(&mut self) {
        let best = self.best.clone();
        if best.grid.is_some() {
            self.try_case(Case { grid: Some([1; 3]), ..best });
        }
        let mut parts = self.parts();
        if parts.domain.take().is_some() {
            let case = Case { program: parts.program(), grid: Some([1; 3]), ..self.best.clone() };
            self.try_case(case);
        }
        let mut parts = self.parts();
        parts.workgroup_exprs = [None, None, None];
        parts.workgroup_size = [1; 3];
        self.try_parts(parts);
        for axis in 0..3 {
            while self.best.program.workgroup_size()[axis] > 1 {
                let mut parts = self.parts();
                parts.workgroup_size[axis] /= 2;
                if !self.try_parts(parts) {
                    break;
                }
            }
        }
    }

    /// Replaces statements by simpler ones: a branch by its arm, a loop by one round.
    fn flatten(&mut self) {
        let mut at = 0;
        loop {
            let parts = self.parts();
            let keep = protected(&parts);
            let Some(candidates) = simpler_statements(&parts, at, &keep) else { return };
            let mut changed = false;
            for candidate in candidates {
                let mut parts = parts.clone();
                edit_statement(&mut parts, at, candidate);
                if self.try_parts(parts) {
                    changed = true;
                    break;
                }
            }
            if !changed {
                at += 1;
            }
        }
    }

    /// Where every access to a written buffer is by an index made from `id`, makes all of them `id` itself.
    fn plain_indices(&mut self) {
        for buffer in self.parts().buffers {
            if !buffer.kind.is_writable() || buffer.kind == BufferKind::Workgroup {
                continue;
            }
            let mut parts = self.parts();
            if edit::plain_index(&mut parts, &buffer.name) {
                self.try_parts(parts);
            }
        }
    }

    fn expressions(&mut self) {
        let mut at = 0;
        loop {
            let parts = self.parts();
            let keep = protected(&parts);
            let Some(candidates) = simpler_exprs(&parts, at, &keep) else { return };
            let mut changed = false;
            for candidate in candidates {
                let mut parts = parts.clone();
                edit::replace_expr(&mut parts, at, &keep, candidate);
                if self.try_parts(parts) {
                    changed = true;
                    break;
                }
            }
            if !changed {
                at += 1;
            }
        }
    }

    fn inline(&mut self) {
        let mut names = Vec::new();
        let parts = self.parts();
        for body in parts.bodies() {
            visit(body, &mut |node| {
                if let Node::Let { name, .. } = node {
                    names.push(name.clone());
                }
            });
        }
        for name in names {
            let mut parts = self.parts();
            let keep = protected(&parts);
            if !keep.names.contains(&name) && edit::inline(&mut parts, &name, &keep) {
                self.try_parts(parts);
            }
        }
    }

    /// Removes what is declared and not used.
    fn declarations(&mut self) {
        for name in self.parts().functions.into_iter().map(|function| function.name) {
            let mut parts = self.parts();
            parts.functions.retain(|function| function.name != name);
            self.try_parts(parts);
        }
        for constant in self.parts().constants {
            let mut parts = self.parts();
            parts.constants.retain(|other| other.name != constant.name);
            let mut case = Case { program: parts.program(), ..self.best.clone() };
            case.specialization.remove(&constant.name);
            if !self.try_case(case) {
                let mut case = self.best.clone();
                case.specialization.remove(&constant.name);
                self.try_case(case);
            }
        }
        for name in self.parts().buffers.into_iter().map(|buffer| buffer.name) {
            let mut parts = self.parts();
            let mut case = self.best.clone();
            if let Some(position) = input_position(&case.program, &name) {
                case.inputs.remove(position);
            }
            parts.buffers.retain(|buffer| buffer.name != name);
            case.program = parts.program();
            self.try_case(case);
        }
        while !self.best.program.types().is_empty() {
            let mut parts = self.parts();
            parts.types.pop();
            if !self.try_parts(parts) {
                break;
            }
        }
    }

    /// Shorter inputs, and zeros in them.
    fn inputs(&mut self) {
        for i in 0..self.best.inputs.len() {
            for part in [8usize, 4, 2] {
                let mut case = self.best.clone();
                let length = case.inputs[i].len() / part / 32 * 32;
                case.inputs[i].truncate(length);
                self.try_case(case);
            }
            let mut run = self.best.inputs[i].len().next_power_of_two();
            while run >= 4 {
                for at in (0..self.best.inputs[i].len()).step_by(run) {
                    let mut case = self.best.clone();
                    let end = (at + run).min(case.inputs[i].len());
                    case.inputs[i][at..end].fill(0);
                    self.try_case(case);
                }
                run /= 2;
            }
        }
    }
}

fn input_position(program: &Program, name: &Name) -> Option<usize> {
    program
        .binding_order()
        .into_iter()
        .map(|i| &program.buffers()[i])
        .filter(|buffer| buffer.kind.is_input())
        .position(|buffer| buffer.name == *name)
}

/// A barrier is gone although shared memory is still both written and read.
fn loses_barrier(before: &Case, after: &Case) -> bool {
    let count = |case: &Case, scope: BarrierScope| {
        let mut count = 0;
        visit(case.program.body(), &mut |node| count += usize::from(*node == Node::Barrier(scope)));
        count
    };
    let exchanged = |kinds: &[BufferKind]| {
        after.program.buffers().iter().filter(|buffer| kinds.contains(&buffer.kind)).any(|buffer| {
            let (mut written, mut read, mut foreign) = (false, false, buffer.kind == BufferKind::Workgroup);
            visit(after.program.body(), &mut |node| {
                match node {
                    Node::Store { buffer: to, index, .. } | Node::Atomic { buffer: to, index, .. }
                        if *to == buffer.name =>
                    {
                        written = true;
                        read |= matches!(node, Node::Atomic { result: Some(_), .. });
                        foreign |= !is_own(index);
                    }
                    _ => {}
                }
                edit::node_exprs(node, &mut |expr| {
                    read |= loads(expr, &buffer.name);
                    written_indices(expr, &HashSet::from([buffer.name.clone()]), &mut |index| {
                        foreign |= !is_own(index)
                    });
                });
            });
            written && read && foreign
        })
    };
    (count(after, BarrierScope::Workgroup) < count(before, BarrierScope::Workgroup)
        && exchanged(&[BufferKind::Workgroup]))
        || (count(after, BarrierScope::Storage) < count(before, BarrierScope::Storage)
            && exchanged(&[BufferKind::ReadWrite]))
}

fn loads(expr: &Expr, name: &Name) -> bool {
    let mut found = matches!(expr, Expr::Load { buffer, .. } if buffer == name);
    each_operand(expr, &mut |operand| found |= loads(operand, name));
    found
}

/// Names whose values decide where something is written, or when a loop ends.
pub(crate) struct Protected {
    pub(crate) names: HashSet<Name>,
    /// Buffers that are written, whose indices are not touched.
    pub(crate) written: HashSet<Name>,
}

impl Protected {
    /// The statement gives a protected name its value, or ends a loop.
    fn holds(&self, node: &Node) -> bool {
        match node {
            Node::Assign { name, .. } => self.names.contains(name),
            Node::If { then, .. } => then.contains(&Node::Break),
            _ => false,
        }
    }
}

fn protected(parts: &Parts) -> Protected {
    let written: HashSet<Name> =
        parts.buffers.iter().filter(|buffer| buffer.kind.is_writable()).map(|buffer| buffer.name.clone()).collect();
    let mut names = HashSet::new();
    let add = |expr: &Expr, names: &mut HashSet<Name>| collect_names(expr, names);
    let add_index = |index: &Expr, names: &mut HashSet<Name>| match is_own(index) {
        // Whatever else takes part chooses among the invocation's own elements.
        true => {
            names.insert("id".into());
        }
        false => collect_names(index, names),
    };
    for body in parts.bodies() {
        visit(body, &mut |node| {
            match node {
                Node::Store { index, .. } => add_index(index, &mut names),
                Node::Atomic { op, index, result, .. } if result.is_some() || !commutes(*op) => {
                    add_index(index, &mut names);
                }
                Node::Loop { body, break_if, .. } => {
                    if let Some(cond) = break_if {
                        add(cond, &mut names);
                    }
                    for node in body {
                        if let Node::If { cond, then, .. } = node
                            && then.contains(&Node::Break)
                        {
                            add(cond, &mut names);
                        }
                    }
                }
                _ => {}
            }
            edit::node_exprs(node, &mut |expr| {
                written_indices(expr, &written, &mut |index| {
                    if is_own(index) {
                        names.insert("id".into());
                    }
                });
            });
        });
    }
    // What they are computed from counts too.
    loop {
        let before = names.len();
        for body in parts.bodies() {
            visit(body, &mut |node| match node {
                Node::Let { name, value } | Node::Assign { name, value, .. } if names.contains(name) => {
                    collect_names(value, &mut names);
                }
                Node::Var { name, init: Some(value), .. } if names.contains(name) => collect_names(value, &mut names),
                Node::Call { function, args, .. } => {
                    let params = parts.functions.iter().find(|f| f.name == *function).map(|f| &f.params);
                    for (param, arg) in params.into_iter().flatten().zip(args) {
                        if names.contains(&param.name) {
                            collect_names(arg, &mut names);
                        }
                    }
                }
                _ => {}
            });
        }
        if names.len() == before {
            return Protected { names, written };
        }
    }
}

/// The index names the invocation's own element, by the generator's convention: it is made from its number.
pub(crate) fn is_own(index: &Expr) -> bool {
    let mut own =
        matches!(index, Expr::Builtin(Builtin::LocalIndex)) || matches!(index, Expr::Var(name) if *name == "id");
    each_operand(index, &mut |operand| own |= is_own(operand));
    own
}

/// The order of such operations can't be seen.
fn commutes(op: AtomicOp) -> bool {
    !matches!(op, AtomicOp::Store | AtomicOp::Exchange | AtomicOp::CompareExchange)
}

/// Calls `see` for the indices by which written buffers are read.
fn written_indices(expr: &Expr, written: &HashSet<Name>, see: &mut dyn FnMut(&Expr)) {
    if let Expr::Load { buffer, index, .. } = expr
        && written.contains(buffer)
    {
        see(index);
    }
    each_operand(expr, &mut |operand| written_indices(operand, written, see));
}

fn collect_names(expr: &Expr, names: &mut HashSet<Name>) {
    if let Expr::Var(name) = expr {
        names.insert(name.clone());
    }
    each_operand(expr, &mut |operand| collect_names(operand, names));
}

/// Zero and one of a type.
fn constants_of(ty: &DataType, types: &[TypeDef]) -> Vec<Expr> {
    if let Some(zero) = Literal::zero(ty) {
        let one = match ty {
            DataType::F16 => Literal::F16(half::f16::ONE),
            DataType::F32 => Literal::F32(1.0),
            DataType::F64 => Literal::F64(1.0),
            other => Literal::from_bits(other, 1).unwrap_or(zero),
        };
        return vec![zero.into(), one.into()];
    }
    let known = match ty {
        DataType::Handle(id) => types.get(id.0 as usize).is_some(),
        _ => ty.as_vector().is_some(),
    };
    if known { vec![Expr::construct(ty.clone(), Vec::new())] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use vyre_foundation::ir::{BinaryOp, Expr};

    use super::{Parts, Protected, edit, reduce, statement_count};
    use crate::compare::{Rules, compare};
    use crate::execute::run_reference;
    use crate::generate::{Case, Floats, GenOptions, generate};

    /// An executor with a fault: `x % 0` gives `x`.
    fn broken(case: &Case) -> Option<Vec<Vec<u8>>> {
        let nothing = Protected { names: HashSet::new(), written: HashSet::new() };
        let mut parts = Parts::of(&case.program);
        edit::open_exprs(&mut parts, &nothing, &mut |expr| {
            if let Expr::Binary { op: BinaryOp::Rem, left, right } = expr {
                let (a, b) = (left.as_ref().clone(), right.as_ref().clone());
                *expr = a.clone() - b.clone() * (a / b);
            }
            false
        });
        run_reference(&Case { program: parts.program(), ..case.clone() }).ok()
    }

    fn fails(case: &Case) -> bool {
        match (run_reference(case), broken(case)) {
            (Ok(expected), Some(actual)) => compare(&expected, &actual, &case.program, &Rules::exact()).is_err(),
            _ => false,
        }
    }

    #[test]
    fn a_fault_shrinks_to_a_few_lines() {
        let options = GenOptions { statements: (40, 60), floats: Floats::None, ..GenOptions::default() };
        let mut shrunk = 0;
        for seed in 0..400 {
            let case = generate(seed, &options);
            if statement_count(&case.program) < 40 || !fails(&case) {
                continue;
            }
            let small = reduce(&case, fails);
            assert!(fails(&small));
            let count = statement_count(&small.program);
            assert!(count <= 8, "seed {seed}: {count} statements are left\n{}", small.describe());
            shrunk += 1;
            if shrunk == 5 {
                return;
            }
        }
        panic!("only {shrunk} of 400 programs show the fault");
    }
}
