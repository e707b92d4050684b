//! `if more { next = data[i]; }`: a load into a register that keeps what it has where there is nothing to load.
//!
//! As a branch, what it loads would be waited for where the two ways meet. Predicated, the load is under way until somebody needs it,
//! which in a loop that looks ahead is a round later. There it comes last, behind the moves of what else is carried, so that it goes to
//! the register where the next round looks for it: a move would wait for it.

use std::fmt::Write;

use vyre_foundation::kernel::{Address, Block, Element, End, Inst, Memory, Op, Scalar, Value, each_use};
use vyre_spec::Diagnostic;

use super::early::is_constant;
use super::{Emitter, line};

/// Steps of arithmetic that are taken whether they are needed or not.
const MOST_STEPS: usize = 8;

/// A load of one of the two ways, and its place among the results.
struct Optional<'k> {
    address: &'k Address,
    element: Element,
    guard: Option<Value>,
    result: usize,
}

/// A load that comes at the end of a round.
pub(super) struct PutOff {
    /// The carried value whose register it goes to.
    pub(super) target: Value,
    /// Predicates: it is loaded; it is out of bounds, and so zero.
    loaded: String,
    zeroed: Option<String>,
    /// The instruction and its address.
    load: String,
    at: String,
}

impl<'k> Emitter<'k> {
    /// The `if` at this position loads nothing but what the next round needs, from where nobody writes.
    pub(super) fn can_be_put_off(&self, block: &'k Block, position: usize) -> bool {
        let Inst::If { then, otherwise, results, .. } = &block.insts[position] else { return false };
        let End::Continue(values) = &block.end else { return false };
        let (End::Yield(new), End::Yield(old)) = (&then.end, &otherwise.end) else { return false };
        let Some(params) = self.loops.last().map(|labels| labels.params) else { return false };
        if !self.is_optional(then, otherwise, results) {
            return false;
        }
        let is_kept = |(result, old): (&Value, &Value)| {
            let mut places = values.iter().zip(params).filter(|(value, _)| *value == result);
            matches!((places.next(), places.next()), (Some((_, param)), None) if param == old)
        };
        let needs_none = |inst: &Inst| {
            let mut none = matches!(inst, Inst::Let(..) | Inst::Store { .. });
            each_use(inst, &mut |value| none &= !results.contains(&value));
            none
        };
        self.loads_of(then, new).is_some_and(|loads| {
            loads.len() == results.len() && loads.iter().all(|load| is_constant(self.kernel, load.address.memory))
        }) && results.iter().zip(old).all(is_kept)
            && block.insts[position + 1..].iter().all(needs_none)
    }

    /// Readies the loads of an `if` that can be put off.
    pub(super) fn put_off(&mut self, inst: &'k Inst) -> Result<Vec<PutOff>, Diagnostic> {
        let Inst::If { cond, then, otherwise, .. } = inst else { return Ok(Vec::new()) };
        let (End::Yield(new), End::Yield(old)) = (&then.end, &otherwise.end) else { return Ok(Vec::new()) };
        let loads = self.loads_of(then, new).unwrap_or_default();
        self.arithmetic_of(then)?;
        let cond = self.reg(*cond);
        let mut put_off = Vec::with_capacity(loads.len());
        for load in loads {
            // The registers of what is carried change before they are needed.
            let loaded = self.temp("%p");
            let mut zeroed = None;
            if let Some(guard) = load.guard {
                let (guard, out_of_bounds) = (self.reg(guard), self.temp("%p"));
                line!(self, "and.pred {loaded}, {cond}, {guard}");
                line!(self, "xor.pred {out_of_bounds}, {cond}, {loaded}");
                zeroed = Some(out_of_bounds);
            } else {
                line!(self, "mov.pred {loaded}, {cond}");
            }
            let at = self.address(load.address);
            let load_word = self.word_load(load.address.memory, load.element);
            put_off.push(PutOff { target: old[load.result], loaded, zeroed, load: load_word, at });
        }
        Ok(put_off)
    }

    /// Writes the loads, at the end of the round.
    pub(super) fn load_put_off(&mut self, loads: &[PutOff]) {
        for PutOff { target, loaded, zeroed, load, at } in loads {
            let into = self.reg(*target);
            if let Some(zeroed) = zeroed {
                line!(self, "selp.b32 {into}, 0, {into}, {zeroed}");
            }
            line!(self, "@{loaded} {load} {into}, [{at}]");
        }
    }

    /// One way has few steps and the other none, and what comes of them are words.
    fn is_optional(&self, then: &Block, otherwise: &Block, results: &[Value]) -> bool {
        let plain = |value: &Value| {
            let ty = self.kernel.values[value.index()].ty;
            ty.width == 1 && matches!(ty.scalar, Scalar::F32 | Scalar::U32 | Scalar::I32)
        };
        otherwise.insts.is_empty() && then.insts.len() <= MOST_STEPS && results.iter().all(plain)
    }

    fn arithmetic_of(&mut self, then: &'k Block) -> Result<(), Diagnostic> {
        for inst in &then.insts {
            let Inst::Let(value, op) = inst else { continue };
            if !matches!(op, Op::Load { .. }) {
                self.op(*value, op)?;
            }
        }
        Ok(())
    }

    /// Writes an `if` without branches where one way loads words of buffers and the other keeps what there is; says whether it did.
    pub(super) fn optional_loads(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &[Value],
    ) -> Result<bool, Diagnostic> {
        let (End::Yield(new), End::Yield(old)) = (&then.end, &otherwise.end) else { return Ok(false) };
        if !self.is_optional(then, otherwise, results) {
            return Ok(false);
        }
        let Some(loads) = self.loads_of(then, new) else { return Ok(false) };
        self.arithmetic_of(then)?;
        let cond = self.reg(cond);
        for (index, ((result, new), old)) in results.iter().zip(new).zip(old).enumerate() {
            let (into, kept) = (self.reg(*result), self.reg(*old));
            match loads.iter().find(|load| load.result == index) {
                Some(load) => {
                    let mut loaded = cond.clone();
                    if let Some(guard) = load.guard {
                        // What is out of bounds reads zero.
                        line!(self, "selp.b32 {into}, 0, {kept}, {cond}");
                        let guard = self.reg(guard);
                        loaded = self.temp("%p");
                        line!(self, "and.pred {loaded}, {cond}, {guard}");
                    } else {
                        line!(self, "mov.b32 {into}, {kept}");
                    }
                    let load_word = self.word_load(load.address.memory, load.element);
                    let at = self.address(load.address);
                    line!(self, "@{loaded} {load_word} {into}, [{at}]");
                }
                None => {
                    let new = self.reg(*new);
                    line!(self, "selp.b32 {into}, {new}, {kept}, {cond}");
                }
            }
        }
        Ok(true)
    }

    /// The loads of a way that has nothing but them and arithmetic, each for one result and nothing else.
    fn loads_of(&self, then: &'k Block, new: &[Value]) -> Option<Vec<Optional<'k>>> {
        let mut loads = Vec::new();
        let mut used = Vec::new();
        for inst in &then.insts {
            each_use(inst, &mut |value| used.push(value));
            match inst {
                Inst::Let(value, Op::Load { address, element, guard }) => {
                    let word = matches!(element, Element::F32 | Element::U32 | Element::I32);
                    let mut places = new.iter().enumerate().filter(|(_, new)| *new == value);
                    let (Some((result, _)), None) = (places.next(), places.next()) else { return None };
                    if !word || !matches!(address.memory, Memory::Buffer(_)) || self.width(*value) != 1 {
                        return None;
                    }
                    loads.push((*value, Optional { address, element: *element, guard: *guard, result }));
                }
                Inst::Let(_, op) if is_arithmetic(op) => {}
                _ => return None,
            }
        }
        let alone = loads.iter().all(|(value, _)| !used.contains(value));
        (alone && !loads.is_empty()).then(|| loads.into_iter().map(|(_, load)| load).collect())
    }
}

fn is_arithmetic(op: &Op) -> bool {
    matches!(
        op,
        Op::Const(_) | Op::Unary(..) | Op::Binary(..) | Op::Fma(..) | Op::Select(..) | Op::Cast(_) | Op::BitCast(_)
    )
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use crate::ptx::{Target, emit, lowering};

    /// A loop that looks ahead: what the next round needs is loaded while there is a next round, and something besides.
    fn text(besides: Option<Node>) -> String {
        let var = |name: &str| Expr::var(name);
        let ahead = Node::assign("next", Expr::load("data", var("k") * Expr::u32(3)));
        let more = Node::if_then(var("k").lt(Expr::len("data")), besides.into_iter().chain([ahead]).collect());
        let used = Node::assign("sum", var("sum") * var("next"));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::read("limit", 2, DataType::U32),
            ],
            [64, 1, 1],
            vec![
                Node::var("sum", DataType::F32, Expr::f32(1.0)),
                Node::var("next", DataType::F32, Expr::f32(2.0)),
                Node::var("k", DataType::U32, Expr::global_id(0)),
                Node::Loop {
                    body: vec![
                        Node::if_then(var("k").gt(Expr::load("limit", Expr::u32(0))), vec![Node::Break]),
                        used,
                        more,
                    ],
                    continuing: vec![Node::assign("k", var("k") * Expr::u32(5) + Expr::u32(1))],
                    break_if: None,
                },
                Node::store("out", Expr::global_id(0), var("sum")),
            ],
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn loads_for_the_next_round_are_predicated() {
        let branches = |text: &str| text.matches("bra").count();
        let plain = text(None);
        assert!(plain.contains("selp.b32"), "{plain}");
        // It goes to the register where the next round looks for it: nothing but the way back comes behind it.
        let mut lines = plain.lines().skip_while(|line| !line.contains("ld.global.nc.f32"));
        assert_eq!(
            (lines.next().is_some(), lines.next().map(|line| line.contains("bra"))),
            (true, Some(true)),
            "{plain}"
        );
        let stores = text(Some(Node::store("out", Expr::u32(0), Expr::var("sum"))));
        assert!(branches(&plain) < branches(&stores), "{plain}\n{stores}");
    }
}
