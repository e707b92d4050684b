//! Drops values that nobody needs, and carried values and results with them.

use crate::ir::AtomicOp;
use crate::kernel::walk::{breaks, continues, each_operand, each_use, end_values};
use crate::kernel::{Block, End, Inst, Kernel, Loop, Op, Value};

pub(super) fn run(kernel: &mut Kernel) {
    let count = kernel.values.len();
    let mut graph = Graph {
        made: vec![None; count],
        last: vec![0; count],
        edges: Vec::with_capacity(count / 2),
        roots: Vec::with_capacity(count / 2),
    };
    graph.block(&kernel.body, None, &mut Vec::new());
    let needed = graph.reach();
    Sweep { needed }.block(&mut kernel.body, None);
}

/// Which values each value needs.
struct Graph<'a> {
    /// The operation of each value that has one: it needs the operands.
    made: Vec<Option<&'a Op>>,
    /// What other values need: the last edge of each in the list, one more than its position; 0 where there is none.
    last: Vec<u32>,
    /// A value that is needed, and the edge before in the list.
    edges: Vec<(Value, u32)>,
    roots: Vec<Value>,
}

/// What a loop's results and carried values need.
struct Frame<'a> {
    inner: &'a Loop,
    /// Conditions that decide when the loop ends, where it may be dropped as a whole.
    control: Option<Vec<Value>>,
}

impl<'a> Graph<'a> {
    fn edge(&mut self, value: Value, needs: Value) {
        self.edges.push((needs, self.last[value.index()]));
        self.last[value.index()] = self.edges.len() as u32;
    }

    fn block(&mut self, block: &'a Block, results: Option<&'a [Value]>, frames: &mut Vec<Frame<'a>>) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => self.made[value.index()] = Some(op),
                Inst::Store { .. } => each_use(inst, &mut |value| self.roots.push(value)),
                Inst::Atomic { op: AtomicOp::Load, result: Some(result), .. } => {
                    each_use(inst, &mut |value| self.edge(*result, value));
                }
                Inst::Atomic { .. } => each_use(inst, &mut |value| self.roots.push(value)),
                Inst::Barrier(_) => {}
                Inst::If { cond, then, otherwise, results } => {
                    for result in results {
                        self.edge(*result, *cond);
                    }
                    if acts(then) || acts(otherwise) {
                        self.roots.push(*cond);
                    } else if [then, otherwise].iter().any(|way| breaks(way) || continues(way)) {
                        match frames.last_mut().and_then(|frame| frame.control.as_mut()) {
                            Some(control) => control.push(*cond),
                            None => self.roots.push(*cond),
                        }
                    }
                    self.block(then, Some(results), frames);
                    self.block(otherwise, Some(results), frames);
                }
                Inst::Loop(inner) => self.repeat(inner, frames),
            }
        }
        let targets: &[Value] = match (&block.end, results, frames.last()) {
            (End::Yield(_), Some(results), _) => results,
            (End::Continue(_), _, Some(frame)) => &frame.inner.params,
            (End::Break(_), _, Some(frame)) => &frame.inner.results,
            _ => &[],
        };
        for (target, value) in targets.iter().zip(end_values(&block.end)) {
            self.edge(*target, *value);
        }
    }

    fn repeat(&mut self, inner: &'a Loop, frames: &mut Vec<Frame<'a>>) {
        for (param, init) in inner.params.iter().zip(&inner.init) {
            self.edge(*param, *init);
        }
        // A result and its carried value stay or go together.
        for (param, result) in inner.params.iter().zip(&inner.results) {
            self.edge(*result, *param);
            self.edge(*param, *result);
        }
        let kept = !inner.finite || acts(&inner.body);
        frames.push(Frame { inner, control: (!kept).then(Vec::new) });
        if let Some(counter) = &inner.counter {
            self.edge(counter.value, counter.from);
            if kept {
                self.roots.extend([counter.from, counter.to]);
            } else if let Some(control) = frames.last_mut().and_then(|frame| frame.control.as_mut()) {
                control.extend([counter.from, counter.to]);
            }
        }
        self.block(&inner.body, None, frames);
        if let Some(Frame { control: Some(control), .. }) = frames.pop() {
            for result in &inner.results {
                for value in &control {
                    self.edge(*result, *value);
                }
            }
        }
    }

    /// What the roots need, directly or not.
    fn reach(self) -> Vec<bool> {
        let mut open = self.roots;
        let mut needed = vec![false; self.made.len()];
        while let Some(value) = open.pop() {
            if std::mem::replace(&mut needed[value.index()], true) {
                continue;
            }
            if let Some(op) = self.made[value.index()] {
                each_operand(op, &mut |operand| {
                    if !needed[operand.index()] {
                        open.push(operand);
                    }
                });
            }
            let mut next = self.last[value.index()];
            while next > 0 {
                let (needs, before) = self.edges[next as usize - 1];
                open.push(needs);
                next = before;
            }
        }
        needed
    }
}

/// Changes memory, meets other invocations, ends the invocation, or may not end.
fn acts(block: &Block) -> bool {
    matches!(block.end, End::Return)
        || block.insts.iter().any(|inst| match inst {
            Inst::Let(..) | Inst::Atomic { op: AtomicOp::Load, .. } => false,
            Inst::Store { .. } | Inst::Atomic { .. } | Inst::Barrier(_) => true,
            Inst::If { then, otherwise, .. } => acts(then) || acts(otherwise),
            Inst::Loop(inner) => !inner.finite || acts(&inner.body),
        })
}

struct Sweep {
    needed: Vec<bool>,
}

impl Sweep {
    fn needed(&self, value: Value) -> bool {
        self.needed[value.index()]
    }

    /// `kept`: which results of the enclosing `If` stay.
    fn block(&self, block: &mut Block, kept: Option<&[bool]>) {
        block.insts.retain_mut(|inst| self.inst(inst));
        if let (End::Yield(values), Some(kept)) = (&mut block.end, kept) {
            let mut i = 0;
            values.retain(|_| {
                i += 1;
                kept[i - 1]
            });
        }
    }

    fn inst(&self, inst: &mut Inst) -> bool {
        match inst {
            Inst::Let(value, _) => self.needed(*value),
            Inst::Store { .. } | Inst::Barrier(_) => true,
            Inst::Atomic { op, result, .. } => {
                let wanted = result.is_some_and(|result| self.needed(result));
                if *op == AtomicOp::Load {
                    return wanted;
                }
                if !wanted {
                    *result = None;
                }
                true
            }
            Inst::If { then, otherwise, results, .. } => {
                let kept: Vec<bool> = results.iter().map(|result| self.needed(*result)).collect();
                self.block(then, Some(&kept));
                self.block(otherwise, Some(&kept));
                let mut i = 0;
                results.retain(|_| {
                    i += 1;
                    kept[i - 1]
                });
                let empty = |block: &Block| block.insts.is_empty() && matches!(block.end, End::Yield(_));
                !results.is_empty() || !empty(then) || !empty(otherwise)
            }
            Inst::Loop(inner) => {
                if inner.finite && !acts(&inner.body) && !inner.results.iter().any(|result| self.needed(*result)) {
                    return false;
                }
                self.repeat(inner);
                true
            }
        }
    }

    fn repeat(&self, inner: &mut Loop) {
        let kept: Vec<bool> = inner
            .params
            .iter()
            .zip(&inner.results)
            .map(|(param, result)| self.needed(*param) || self.needed(*result))
            .collect();
        self.block(&mut inner.body, None);
        if kept.iter().all(|kept| *kept) {
            return;
        }
        for list in [&mut inner.params, &mut inner.init, &mut inner.results] {
            retain(list, &kept);
        }
        retain_ends(&mut inner.body, &kept);
    }
}

fn retain(list: &mut Vec<Value>, kept: &[bool]) {
    let mut i = 0;
    list.retain(|_| {
        i += 1;
        kept[i - 1]
    });
}

fn retain_ends(block: &mut Block, kept: &[bool]) {
    for inst in &mut block.insts {
        if let Inst::If { then, otherwise, .. } = inst {
            retain_ends(then, kept);
            retain_ends(otherwise, kept);
        }
    }
    if let End::Continue(values) | End::Break(values) = &mut block.end {
        retain(values, kept);
    }
}
