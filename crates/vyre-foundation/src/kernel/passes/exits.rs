//! Loops of one round, which are written-out rounds that may be left early, whose result is only asked whether it is some number: they give
//! 1 or 0 instead of it, so that all exits which answer alike give the same.

use hashbrown::HashMap;

use super::values::Values;
use crate::ir::Literal;
use crate::kernel::walk::{blocks, each_inst, each_use, end_values, end_values_mut, exits};
use crate::kernel::{Binary, Block, End, Inst, Kernel, Loop, Op, Scalar, Value, fold};

pub(super) fn run(kernel: &mut Kernel) {
    let mut asked: HashMap<Value, Option<Literal>> = HashMap::new();
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Loop(inner) = inst
            && is_once(inner)
        {
            asked.extend(inner.results.iter().map(|result| (*result, None)));
        }
    });
    if asked.is_empty() {
        return;
    }
    let mut constants: HashMap<Value, Literal> = HashMap::new();
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(value, Op::Const(literal)) = inst
            && fold::integer(literal).is_some()
        {
            constants.insert(*value, *literal);
        }
    });
    questions(&kernel.body, &constants, &mut asked);
    asked.retain(|_, number| number.is_some());
    each_inst(&kernel.body, &mut |inst| {
        let Inst::Loop(inner) = inst else { return };
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        for (position, result) in inner.results.iter().enumerate() {
            if breaks.iter().any(|values| !constants.contains_key(&values[position])) {
                asked.remove(result);
            }
        }
    });
    if asked.is_empty() {
        return;
    }
    let mut answers: Vec<(Scalar, [Value; 2])> = Vec::new();
    let mut values = Values::of(kernel);
    // In an order that is always the same, so that the kernel is.
    for ty in [Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64] {
        if !asked.values().flatten().any(|number| fold::scalar_of(number) == ty) {
            continue;
        }
        answers.push((ty, [0, 1].map(|answer| values.constant_at_start(fold::of_integer(ty, answer)))));
    }
    let change = Change { asked: &asked, constants: &constants, answers: &answers };
    change.block(&mut kernel.body, &[]);
    values.give_back(kernel);
}

/// It is gone through once, and left in several ways.
fn is_once(inner: &Loop) -> bool {
    let (mut continues, mut breaks) = (Vec::new(), Vec::new());
    exits(&inner.body, &mut continues, &mut breaks);
    inner.counter.is_none() && continues.is_empty() && breaks.len() > 2
}

/// Finds the number that each value is compared with; values that are used otherwise, or compared with several, are dropped.
fn questions(body: &Block, constants: &HashMap<Value, Literal>, asked: &mut HashMap<Value, Option<Literal>>) {
    each_inst(body, &mut |inst| {
        let question = match inst {
            Inst::Let(_, Op::Binary(Binary::Eq | Binary::Ne, a, b)) => constants.get(b).map(|number| (*a, *number)),
            _ => None,
        };
        match question {
            Some((value, number)) => {
                if let Some(known) = asked.get_mut(&value)
                    && *known.get_or_insert(number) != number
                {
                    asked.remove(&value);
                }
            }
            None => each_use(inst, &mut |value| _ = asked.remove(&value)),
        }
        blocks(inst).flat_map(|block| end_values(&block.end)).for_each(|value| _ = asked.remove(value));
    });
}

struct Change<'a> {
    asked: &'a HashMap<Value, Option<Literal>>,
    constants: &'a HashMap<Value, Literal>,
    /// No and yes, for each type.
    answers: &'a [(Scalar, [Value; 2])],
}

impl Change<'_> {
    fn answer(&self, number: Literal, yes: bool) -> Option<Value> {
        let (_, answers) = self.answers.iter().find(|(ty, _)| *ty == fold::scalar_of(&number))?;
        Some(answers[usize::from(yes)])
    }

    fn block(&self, block: &mut Block, results: &[Value]) {
        for inst in &mut block.insts {
            match inst {
                Inst::Let(_, Op::Binary(Binary::Eq | Binary::Ne, a, b)) => {
                    if let Some(Some(number)) = self.asked.get(a)
                        && let Some(yes) = self.answer(*number, true)
                    {
                        *b = yes;
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then, results);
                    self.block(otherwise, results);
                }
                Inst::Loop(inner) => {
                    let Loop { body, results, .. } = &mut **inner;
                    self.block(body, results);
                }
                _ => {}
            }
        }
        if !matches!(block.end, End::Break(_)) {
            return;
        }
        for (value, result) in end_values_mut(&mut block.end).iter_mut().zip(results) {
            if let (Some(Some(number)), Some(given)) = (self.asked.get(result), self.constants.get(value))
                && let Some(answer) = self.answer(*number, given == number)
            {
                *value = answer;
            }
        }
    }
}
