//! What is known of the ways from one round of a loop to the next: by how much a number goes on, and between which bounds it is.

use vyre_foundation::kernel::{Binary, Block, End, Inst, Loop, Memory, Op, Scalar, Value};

use super::visit;

/// Steps that a number is made by.
const DEEP: u32 = 8;

/// Numbers below this are small: a few of them added up don't wrap.
const SMALL: i64 = 1 << 16;

/// Most rounds that pass between two looks whether the launch has to end.
const SHORT: i64 = 1 << 12;

/// Numbers between two others, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: i64,
    pub(super) most: i64,
}

impl Bounds {
    /// What is left of the numbers for which `number op limit` does not hold.
    pub(super) fn without(self, op: Binary, limit: i64) -> Bounds {
        let Bounds { mut least, mut most } = self;
        match op {
            Binary::Lt => least = least.max(limit),
            Binary::Le => least = least.max(limit + 1),
            Binary::Gt => most = most.min(limit),
            Binary::Ge => most = most.min(limit - 1),
            Binary::Eq => {
                least += i64::from(least == limit);
                most -= i64::from(most == limit);
            }
            _ => {}
        }
        Bounds { least, most }
    }

    /// For none of the numbers `number op limit` holds.
    pub(super) fn excludes(self, op: Binary, limit: i64) -> bool {
        let Bounds { least, most } = self;
        match op {
            Binary::Lt => least >= limit,
            Binary::Le => least > limit,
            Binary::Gt => most <= limit,
            Binary::Ge => most < limit,
            Binary::Eq => limit < least || most < limit,
            Binary::Ne => least == limit && most == limit,
            _ => false,
        }
    }
}

/// How the numbers of a kernel are made.
pub(super) trait Numbers {
    fn maker(&self, value: Value) -> Option<&Op>;
    fn scalar(&self, value: Value) -> Scalar;
    /// Bytes of a private array.
    fn size(&self, local: u32) -> u32;

    /// A small constant.
    fn number(&self, value: Value) -> Option<i64> {
        match self.maker(value) {
            Some(Op::Const(literal)) => u32::try_from(literal.bits())
                .ok()
                .map(|bits| i64::from(bits.cast_signed()))
                .filter(|number| number.abs() < SMALL),
            _ => None,
        }
    }

    /// A value as another one and a small number more.
    fn place(&self, value: Value) -> (Value, i64) {
        let word = |value: Value| matches!(self.scalar(value), Scalar::U32 | Scalar::I32);
        let (mut from, mut plus) = (value, 0);
        for _ in 0..DEEP {
            match self.maker(from) {
                Some(Op::BitCast(a)) if word(*a) => from = *a,
                Some(Op::Binary(op @ (Binary::Add | Binary::Sub), a, b)) if word(*a) => {
                    let Some(by) = self.number(*b) else { break };
                    plus += if *op == Binary::Add { by } else { -by };
                    from = *a;
                }
                _ => break,
            }
        }
        (from, plus)
    }

    /// The bounds of a number that private arrays are accessed by without a guard: it was proven to be inside of them.
    fn bounds(&self, steps: &[&Inst], number: Value) -> Option<Bounds> {
        let mut all: Option<Bounds> = None;
        for step in steps {
            let (Inst::Let(_, Op::Load { address, element, guard: None })
            | Inst::Store { address, element, guard: None, .. }) = step
            else {
                continue;
            };
            let (Memory::Local(local), &[(index, stride @ 1..)]) = (address.memory, &address.terms[..]) else {
                continue;
            };
            let (from, plus) = self.place(index);
            let last = self.size(local).checked_sub(address.offset + 1);
            let (Some(last), true) = (last, from == number && element.bits() >= 8) else { continue };
            let Bounds { least, most } = Bounds { least: -plus, most: i64::from(last / stride) - plus };
            // What is below zero is a large number without a sign.
            if most >= 1 << 30 || (least < 0 && self.scalar(number) != Scalar::I32) {
                continue;
            }
            let before = all.unwrap_or(Bounds { least, most });
            all = Some(Bounds { least: least.max(before.least), most: most.min(before.most) });
        }
        all
    }
}

/// Ways to the next round that are gone only so many times without another one between them, because each takes a number of the loop on in the
/// same direction, between bounds. As many ways as there are for one number; none where a round alone may be long.
pub(super) fn short_ways<'k>(numbers: &dyn Numbers, inner: &'k Loop) -> Vec<&'k Block> {
    let (mut ways, mut has_loop) = (Vec::new(), false);
    visit(&inner.body, &mut |inst| has_loop |= matches!(inst, Inst::Loop(_)));
    if has_loop {
        return Vec::new();
    }
    walk(&inner.body, &mut Vec::new(), &mut |block, steps, next| {
        let moved = inner.params.iter().zip(next).map(|(&param, &next)| {
            let (from, moved) = numbers.place(next);
            let is_near = || numbers.bounds(steps, param).is_some_and(|bounds| bounds.most - bounds.least < SHORT);
            if from == param && moved != 0 && moved.abs() < SMALL && is_near() { moved.signum() } else { 0 }
        });
        ways.push((block, moved.collect::<Vec<i64>>()));
    });
    let mut best = Vec::new();
    for position in 0..inner.params.len() {
        for direction in [1, -1] {
            let of = |(block, moved): &(&'k Block, Vec<i64>)| (moved[position] == direction).then_some(*block);
            let found: Vec<&'k Block> = ways.iter().filter_map(of).collect();
            if found.len() > best.len() {
                best = found;
            }
        }
    }
    best
}

/// What is done with a way.
type Shown<'f, 'k> = dyn FnMut(&'k Block, &[&'k Inst], &'k [Value]) + 'f;

/// Shows each way to the next round: the block that it ends, all that was done before in the round and not in some branch alone, and what is passed on.
fn walk<'k>(block: &'k Block, before: &mut Vec<&'k Inst>, f: &mut Shown<'_, 'k>) {
    let length = before.len();
    for inst in &block.insts {
        if let Inst::If { then, otherwise, .. } = inst {
            walk(then, before, f);
            walk(otherwise, before, f);
        }
        before.push(inst);
    }
    if let End::Continue(next) = &block.end {
        f(block, before, next);
    }
    before.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds say of a comparison what all numbers between them say.
    #[test]
    fn bounds_say_what_their_numbers_say() {
        let ops = [Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge, Binary::Eq, Binary::Ne];
        let holds = |op: Binary, a: i64, b: i64| match op {
            Binary::Lt => a < b,
            Binary::Le => a <= b,
            Binary::Gt => a > b,
            Binary::Ge => a >= b,
            Binary::Eq => a == b,
            _ => a != b,
        };
        for op in ops {
            for (least, most) in [(-3, 2), (0, 5), (1, 1), (4, 6)] {
                for limit in -5..9 {
                    let bounds = Bounds { least, most };
                    let mut all = least..=most;
                    assert_eq!(
                        bounds.excludes(op, limit),
                        !all.any(|number| holds(op, number, limit)),
                        "{op:?} {limit}"
                    );
                    let left = bounds.without(op, limit);
                    for number in (least..=most).filter(|&number| !holds(op, number, limit)) {
                        assert!(left.least <= number && number <= left.most, "{op:?} {limit}: {number}");
                    }
                }
            }
        }
    }
}
