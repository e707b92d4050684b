//! What naga's SPIR-V front end takes for something else, said so that it can't.
//!
//! In SPIR-V the operation says whether it takes whole numbers as signed, and whether a comparison holds where a number is none; naga
//! goes by the type of the numbers and knows one kind of comparison. So operands get the type that the operation means, and
//! comparisons are written in terms of those that naga has.

use std::collections::HashMap;

use naga::{BinaryOperator, Expression, Module};

const EXT_INST_IMPORT: u32 = 11;
const EXT_INST: u32 = 12;
const TYPE_INT: u32 = 21;
const TYPE_VECTOR: u32 = 23;
const FUNCTION: u32 = 54;
const BITCAST: u32 = 124;
const LOGICAL_OR: u32 = 166;
const LOGICAL_NOT: u32 = 168;
const FIRST_FLOAT_COMPARISON: u32 = 180;
const LAST_FLOAT_COMPARISON: u32 = 191;
const LESS: u32 = 184;
const GREATER: u32 = 186;
const SHIFT_RIGHT_LOGICAL: u32 = 194;
const SHIFT_RIGHT_ARITHMETIC: u32 = 195;

/// Whether an instruction of `GLSL.std.450` takes whole numbers as signed; `None` where that makes no difference.
fn takes_signed(instruction: u32) -> Option<bool> {
    match instruction {
        // SAbs, SSign, SMin, SMax, SClamp, FindSMsb
        5 | 7 | 39 | 42 | 45 | 74 => Some(true),
        // UMin, UMax, UClamp, FindUMsb
        38 | 41 | 44 | 75 => Some(false),
        _ => None,
    }
}

/// How a float comparison is said with those that don't hold where a number is none: some of them, and whether not.
fn ordered(comparison: u32) -> Option<(&'static [u32], bool)> {
    Some(match comparison - FIRST_FLOAT_COMPARISON {
        1 => (&[LESS, GREATER], true),  // unordered or equal
        2 => (&[LESS, GREATER], false), // ordered and not equal
        5 => (&[GREATER + 4], true),    // unordered or less
        7 => (&[LESS + 4], true),       // unordered or greater
        9 => (&[GREATER], true),        // unordered or at most
        11 => (&[LESS], true),          // unordered or at least
        _ => return None,
    })
}

/// Whole numbers, or vectors of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Whole {
    bits: u32,
    signed: bool,
    lanes: u32,
}

/// A module of well-formed instructions, being written anew.
struct Rewriter {
    bound: u32,
    types: HashMap<u32, Whole>,
    ids: HashMap<Whole, u32>,
    /// Types that the module did not have.
    new_types: Vec<u32>,
    body: Vec<u32>,
}

/// The words of a module that naga takes for what they are. Every instruction must lie within the module.
pub(super) fn explicit(words: &[u32]) -> Vec<u32> {
    let mut rewriter = Rewriter {
        bound: words[3],
        types: HashMap::new(),
        ids: HashMap::new(),
        new_types: Vec::new(),
        body: Vec::new(),
    };
    let functions =
        instructions(words).find(|(_, inst)| inst[0] & 0xffff == FUNCTION).map_or(words.len(), |(at, _)| at);
    let mut set = None;
    for (_, inst) in instructions(&words[..functions]) {
        match (inst[0] & 0xffff, &inst[1..]) {
            (EXT_INST_IMPORT, [id, name @ ..]) if is_glsl(name) => set = Some(*id),
            (TYPE_INT, &[id, bits, signed]) => rewriter.declare(id, Whole { bits, signed: signed != 0, lanes: 1 }),
            (TYPE_VECTOR, &[id, element, lanes]) => {
                if let Some(&whole) = rewriter.types.get(&element) {
                    rewriter.declare(id, Whole { lanes, ..whole });
                }
            }
            _ => {}
        }
    }
    let from = functions.max(5);
    let mut at = from;
    while at < words.len() {
        let length = (words[at] >> 16) as usize;
        rewriter.instruction(&words[at..at + length], set);
        at += length;
    }
    let mut all = words[..from].to_vec();
    all[3] = rewriter.bound;
    all.extend(rewriter.new_types);
    all.extend(rewriter.body);
    all
}

/// Instructions and where they begin.
fn instructions(words: &[u32]) -> impl Iterator<Item = (usize, &[u32])> {
    let mut at = 5;
    std::iter::from_fn(move || {
        let length = (*words.get(at)? >> 16) as usize;
        let inst = (at, words.get(at..at + length)?);
        at += length.max(1);
        Some(inst)
    })
}

fn is_glsl(name: &[u32]) -> bool {
    name.iter().flat_map(|word| word.to_le_bytes()).take(13).eq(*b"GLSL.std.450\0")
}

impl Rewriter {
    fn declare(&mut self, id: u32, whole: Whole) {
        self.types.insert(id, whole);
        self.ids.entry(whole).or_insert(id);
    }

    fn fresh(&mut self) -> u32 {
        // A module that claims to have all ids is no module; naga says so when it meets one twice.
        let id = self.bound;
        self.bound = id.wrapping_add(1);
        id
    }

    /// The id of a type.
    fn id_of(&mut self, whole: Whole) -> u32 {
        if let Some(&id) = self.ids.get(&whole) {
            return id;
        }
        let new = if whole.lanes == 1 {
            let id = self.fresh();
            self.new_types.extend([4 << 16 | TYPE_INT, id, whole.bits, u32::from(whole.signed)]);
            id
        } else {
            let element = self.id_of(Whole { lanes: 1, ..whole });
            let id = self.fresh();
            self.new_types.extend([4 << 16 | TYPE_VECTOR, id, element, whole.lanes]);
            id
        };
        self.declare(new, whole);
        new
    }

    fn instruction(&mut self, inst: &[u32], set: Option<u32>) {
        match (inst[0] & 0xffff, inst) {
            (EXT_INST, &[_, _, _, of, instruction, ..]) if Some(of) == set => match takes_signed(instruction) {
                Some(signed) => self.with_sign(inst, 5..inst.len(), signed),
                None => self.body.extend(inst),
            },
            (op @ (SHIFT_RIGHT_LOGICAL | SHIFT_RIGHT_ARITHMETIC), [_, _, _, _, _]) => {
                self.with_sign(inst, 3..4, op == SHIFT_RIGHT_ARITHMETIC);
            }
            (op @ FIRST_FLOAT_COMPARISON..=LAST_FLOAT_COMPARISON, &[_, ty, result, a, b]) => match ordered(op) {
                Some((comparisons, not)) => self.compare(ty, result, [a, b], comparisons, not),
                None => self.body.extend(inst),
            },
            _ => self.body.extend(inst),
        }
    }

    /// An operation whose operands, and its result, are whole numbers with or without a sign.
    fn with_sign(&mut self, inst: &[u32], operands: std::ops::Range<usize>, signed: bool) {
        let Some(&whole) = self.types.get(&inst[1]) else { return self.body.extend(inst) };
        let ty = self.id_of(Whole { signed, ..whole });
        let mut inst = inst.to_vec();
        for operand in &mut inst[operands] {
            let id = self.fresh();
            self.body.extend([4 << 16 | BITCAST, ty, id, *operand]);
            *operand = id;
        }
        let (wanted, result) = (inst[1], inst[2]);
        if wanted != ty {
            (inst[1], inst[2]) = (ty, self.fresh());
        }
        self.body.extend(&inst);
        if wanted != ty {
            self.body.extend([4 << 16 | BITCAST, wanted, result, inst[2]]);
        }
    }

    fn compare(&mut self, ty: u32, result: u32, [a, b]: [u32; 2], comparisons: &[u32], not: bool) {
        let ids: Vec<u32> = comparisons.iter().map(|_| self.fresh()).collect();
        for (op, id) in comparisons.iter().zip(&ids) {
            self.body.extend([5 << 16 | op, ty, *id, a, b]);
        }
        let mut holds = ids[0];
        if let [first, second] = ids[..] {
            holds = if not { self.fresh() } else { result };
            self.body.extend([5 << 16 | LOGICAL_OR, ty, holds, first, second]);
        }
        if not {
            self.body.extend([4 << 16 | LOGICAL_NOT, ty, result, holds]);
        }
    }
}

/// "And" and "or" of booleans as naga takes them for vectors too.
pub(super) fn of_lanes(module: &mut Module) {
    let functions = module.functions.iter_mut().map(|(_, function)| function);
    let entries = module.entry_points.iter_mut().map(|entry| &mut entry.function);
    for function in functions.chain(entries) {
        for (_, expression) in function.expressions.iter_mut() {
            if let Expression::Binary { op, .. } = expression {
                *op = match *op {
                    BinaryOperator::LogicalAnd => BinaryOperator::And,
                    BinaryOperator::LogicalOr => BinaryOperator::InclusiveOr,
                    other => other,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_said_with_ordered_ones() {
        // Unordered or less: not (ordered and at least).
        assert_eq!(ordered(185), Some((&[190][..], true)));
        assert_eq!(ordered(187), Some((&[188][..], true)));
        assert_eq!(ordered(189), Some((&[186][..], true)));
        assert_eq!(ordered(191), Some((&[184][..], true)));
        // Equal, and unordered or not equal, are what naga's are.
        assert_eq!((ordered(180), ordered(183)), (None, None));
    }

    #[test]
    fn what_is_no_instruction_ends_the_module() {
        assert_eq!(explicit(&[0x0723_0203, 0, 0, 7, 0]), [0x0723_0203, 0, 0, 7, 0]);
    }
}
