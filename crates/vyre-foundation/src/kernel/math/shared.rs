//! Exponentials of what two numbers are less than the greater of them, as in sums of powers that are put together with their greatest
//! exponents: `m = max(a, b)`, `s * exp(a - m) + t * exp(b - m)`. One of the two is `exp(0)`, so only the other is computed.
//!
//! Of `x = a - m` and `y = b - m` one is 0 where `m` is a finite number. Where it is not, both are NaN, or one is and the other is minus
//! infinity.

use hashbrown::HashMap;

use crate::ir::Literal;
use crate::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Unary, Value, ValueInfo, walk};

pub(in crate::kernel) fn share_exponentials(kernel: &mut Kernel) {
    let mut any = 0;
    let mut made: HashMap<Value, (Binary, Value, Value)> = HashMap::new();
    walk::each_inst(&kernel.body, &mut |inst| match inst {
        Inst::Let(value, Op::Binary(op @ (Binary::Max | Binary::Sub), a, b)) => _ = made.insert(*value, (*op, *a, *b)),
        Inst::Let(_, Op::Unary(Unary::Exp, _)) => any += 1,
        _ => {}
    });
    if any > 1 {
        Shares { values: &mut kernel.values, made }.block(&mut kernel.body);
    }
}

struct Shares<'a> {
    values: &'a mut Vec<ValueInfo>,
    made: HashMap<Value, (Binary, Value, Value)>,
}

/// An exponential of a number less a maximum.
#[derive(Clone, Copy)]
struct Exponential {
    value: Value,
    /// What it is of.
    of: Value,
    most: Value,
    number: Value,
}

impl Shares<'_> {
    fn exponential(&self, inst: &Inst) -> Option<(Exponential, Value)> {
        let &Inst::Let(value, Op::Unary(Unary::Exp, of)) = inst else { return None };
        let &(Binary::Sub, number, most) = self.made.get(&of)? else { return None };
        let &(Binary::Max, a, b) = self.made.get(&most)? else { return None };
        let other = match number {
            _ if a == b || self.values[value.index()].ty != Scalar::F32.into() => return None,
            _ if number == a => b,
            _ if number == b => a,
            _ => return None,
        };
        Some((Exponential { value, of, most, number }, other))
    }

    fn block(&mut self, block: &mut Block) {
        // Pairs, the second at its position.
        let mut open: Vec<(usize, Exponential, Value)> = Vec::new();
        let (mut firsts, mut seconds) = (HashMap::new(), HashMap::new());
        for (position, inst) in block.insts.iter().enumerate() {
            let Some((own, other)) = self.exponential(inst) else { continue };
            let partner =
                |(_, first, wanted): &(usize, Exponential, Value)| first.most == own.most && *wanted == own.number;
            match open.iter().position(partner) {
                Some(at) => {
                    let (before, first, _) = open.swap_remove(at);
                    firsts.insert(before, (first, own.number));
                    seconds.insert(position, first.value);
                }
                None => open.push((position, own, other)),
            }
        }
        let mut insts = Vec::with_capacity(block.insts.len());
        let mut given = HashMap::new();
        for (position, mut inst) in std::mem::take(&mut block.insts).into_iter().enumerate() {
            walk::blocks_mut(&mut inst).for_each(|block| self.block(block));
            if let Some((first, other)) = firsts.get(&position) {
                given.insert(first.value, self.both(*first, *other, &mut insts));
            } else if let (Some(first), Inst::Let(value, _)) = (seconds.get(&position), &inst) {
                let op: Op = given.remove(first).expect("the first of the two comes before");
                insts.push(Inst::Let(*value, op));
            } else {
                insts.push(inst);
            }
        }
        block.insts = insts;
    }

    /// Makes the first exponential, and says how the second is made.
    fn both(&mut self, first: Exponential, other: Value, insts: &mut Vec<Inst>) -> Op {
        let x = first.of;
        let uniform = [first.of, first.most, other].iter().all(|value| self.values[value.index()].uniform);
        let mut define = |ty: Scalar, op: Op| {
            let value = Value(self.values.len() as u32);
            self.values.push(ValueInfo { ty: ty.into(), uniform });
            insts.push(Inst::Let(value, op));
            value
        };
        let [zero, one] = [0.0, 1.0].map(|number| define(Scalar::F32, Op::Const(Literal::F32(number))));
        let y = define(Scalar::F32, Op::Binary(Binary::Sub, other, first.most));
        let is_most = define(Scalar::Bool, Op::Binary(Binary::Eq, x, zero));
        let less = define(Scalar::F32, Op::Select(is_most, y, x));
        let power = define(Scalar::F32, Op::Unary(Unary::Exp, less));
        // Where `x` is not 0, `y` is, or NaN, or minus infinity.
        let above = define(Scalar::F32, Op::Binary(Binary::Add, y, one));
        let is_less = define(Scalar::Bool, Op::Binary(Binary::Lt, y, zero));
        let of_most = define(Scalar::F32, Op::Select(is_less, zero, above));
        insts.push(Inst::Let(first.value, Op::Select(is_most, one, power)));
        Op::Select(is_most, power, of_most)
    }
}
