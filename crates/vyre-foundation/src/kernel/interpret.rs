//! A plain evaluator of the kernel form. It runs a workgroup's invocations side by side, one step at a time for all of them,
//! which is one of the orders that the meaning of a program allows.

use vyre_spec::{Diagnostic, codes};

use super::noise::{Noise, Place};
use super::{Address, Block, Element, End, Inst, Kernel, KernelMemory, Loop, Memory, Op, Scalar, Value, eval};
use crate::ir::{AtomicOp, Builtin, MATRIX_LANES, SubgroupOp};

/// How to evaluate.
#[derive(Clone, Copy, Debug)]
pub struct Interpret {
    /// Workgroups per axis.
    pub grid: [u32; 3],
    /// Invocations in a subgroup, 1 to 128.
    pub subgroup_size: u32,
    /// Steps of all invocations together.
    pub budget: u64,
    /// Float operations deviate from what they give exactly, as far as WGSL allows.
    pub noise: Option<Noise>,
}

/// Evaluates a kernel over the bytes of its buffers, in the order of [`Kernel::buffers`]. Slow; for tests.
pub fn interpret(kernel: &Kernel, buffers: &mut [Vec<u8>], how: &Interpret) -> Result<(), Diagnostic> {
    let [sx, sy, sz] = kernel.workgroup_size;
    let lanes = (sx * sy * sz) as usize;
    let mut machine = Machine {
        kernel,
        buffers,
        shared: Vec::new(),
        locals: Vec::new(),
        values: vec![Vec::new(); kernel.values.len()],
        lanes,
        group: [0; 3],
        how: *how,
        steps: 0,
    };
    for z in 0..how.grid[2] {
        for y in 0..how.grid[1] {
            for x in 0..how.grid[0] {
                machine.group = [x, y, z];
                // What need not be clear is not, so that reading it shows.
                let start = |memory: &KernelMemory| vec![if memory.cleared { 0 } else { 0xa5 }; memory.size as usize];
                machine.shared = kernel.shared.iter().map(start).collect();
                let own = |memory: &KernelMemory| match &memory.words {
                    Some(words) => words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().repeat(lanes),
                    None => vec![0; memory.size as usize * lanes],
                };
                machine.locals = kernel.locals.iter().map(own).collect();
                machine.block(&kernel.body, vec![true; lanes], &mut Vec::new())?;
            }
        }
    }
    Ok(())
}

type Mask = Vec<bool>;

struct Machine<'a> {
    kernel: &'a Kernel,
    buffers: &'a mut [Vec<u8>],
    shared: Vec<Vec<u8>>,
    /// One copy per invocation, one after the other.
    locals: Vec<Vec<u8>>,
    /// Bits per invocation (and component).
    values: Vec<Vec<u64>>,
    lanes: usize,
    group: [u32; 3],
    how: Interpret,
    steps: u64,
}

/// Invocations that left the innermost loop, or went to its next round.
struct Frame<'a> {
    inner: &'a Loop,
    broken: Mask,
    next: Mask,
}

fn none(mask: &Mask) -> bool {
    !mask.iter().any(|&on| on)
}

fn both(a: &Mask, b: &Mask) -> Mask {
    a.iter().zip(b).map(|(&a, &b)| a || b).collect()
}

impl<'a> Machine<'a> {
    fn ty(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn get(&self, value: Value, lane: usize) -> u64 {
        self.values[value.index()][lane * usize::from(self.kernel.values[value.index()].ty.width)]
    }

    fn is(&self, guard: Option<Value>, lane: usize) -> bool {
        guard.is_none_or(|guard| self.get(guard, lane) != 0)
    }

    /// Sets a value in the given lanes and keeps it in the others.
    fn set(&mut self, value: Value, mask: &Mask, bits: &dyn Fn(&Self, usize) -> u64) {
        let mut out = std::mem::take(&mut self.values[value.index()]);
        out.resize(self.lanes, 0);
        let new: Vec<(usize, u64)> =
            (0..self.lanes).filter(|&lane| mask[lane]).map(|lane| (lane, bits(self, lane))).collect();
        new.into_iter().for_each(|(lane, bits)| out[lane] = bits);
        self.values[value.index()] = out;
    }

    /// Copies values at once, so that sources and targets may overlap.
    fn copy(&mut self, from: &[Value], to: &[Value], mask: &Mask) {
        let sources: Vec<Vec<u64>> = from.iter().map(|value| self.values[value.index()].clone()).collect();
        for (source, target) in sources.iter().zip(to) {
            let out = &mut self.values[target.index()];
            out.resize(self.lanes, 0);
            for lane in (0..mask.len()).filter(|&lane| mask[lane]) {
                out[lane] = source[lane];
            }
        }
    }

    /// Takes steps from the budget; rounds of a loop cost some, too, so that one without steps ends.
    fn spend(&mut self, steps: u64) -> Result<(), Diagnostic> {
        self.steps += steps;
        if self.steps > self.how.budget {
            let took = format!("the kernel took more than {} steps", self.how.budget);
            return Err(Diagnostic::new(&codes::kernel::BUDGET, took));
        }
        Ok(())
    }

    /// Runs a block in the lanes of `mask`; gives the lanes that yield.
    fn block(&mut self, block: &'a Block, mut mask: Mask, frames: &mut Vec<Frame<'a>>) -> Result<Mask, Diagnostic> {
        for inst in &block.insts {
            if none(&mask) {
                return Ok(mask);
            }
            self.spend(mask.iter().filter(|&&on| on).count() as u64)?;
            mask = self.inst(inst, mask, frames)?;
        }
        match &block.end {
            End::Yield(_) => Ok(mask),
            End::Continue(values) => {
                if let Some(frame) = frames.last_mut() {
                    frame.next = both(&frame.next, &mask);
                    let params = &frame.inner.params;
                    // What the next round sees must not disturb lanes that still run this one: they are other lanes.
                    self.copy(values, params, &mask);
                }
                Ok(vec![false; self.lanes])
            }
            End::Break(values) => {
                if let Some(frame) = frames.last_mut() {
                    frame.broken = both(&frame.broken, &mask);
                    let results = &frame.inner.results;
                    self.copy(values, results, &mask);
                }
                Ok(vec![false; self.lanes])
            }
            End::Return | End::Unreachable => Ok(vec![false; self.lanes]),
        }
    }

    fn inst(&mut self, inst: &'a Inst, mask: Mask, frames: &mut Vec<Frame<'a>>) -> Result<Mask, Diagnostic> {
        match inst {
            Inst::Let(value, op) => self.op(*value, op, &mask),
            Inst::Store { address, element, value, guard } => {
                let width = usize::from(self.kernel.values[value.index()].ty.width);
                for lane in (0..self.lanes).filter(|&lane| mask[lane]) {
                    if self.is(*guard, lane) {
                        for part in 0..width {
                            let bits = self.values[value.index()][lane * width + part];
                            self.write(address, *element, lane, part, eval::encode(*element, bits));
                        }
                    }
                }
            }
            Inst::Atomic { op, address, element, value, compare, result, guard } => {
                let mut olds = vec![0; self.lanes];
                for (lane, kept) in olds.iter_mut().enumerate() {
                    if mask[lane] && self.is(*guard, lane) {
                        let old = eval::decode(*element, self.read(address, *element, lane, 0));
                        let operand = value.map_or(0, |value| self.get(value, lane));
                        let compared = compare.map_or(0, |compare| self.get(compare, lane));
                        let new = eval::atomic(*op, element.scalar(), old, operand, compared);
                        if *op != AtomicOp::Load {
                            self.write(address, *element, lane, 0, eval::encode(*element, new));
                        }
                        *kept = old;
                    }
                }
                if let Some(result) = result {
                    self.set(*result, &mask, &|_, lane| olds[lane]);
                }
            }
            Inst::Barrier(_) => {}
            Inst::If { cond, then, otherwise, results } => {
                let yes: Mask = (0..self.lanes).map(|lane| mask[lane] && self.get(*cond, lane) != 0).collect();
                let no: Mask = (0..self.lanes).map(|lane| mask[lane] && !yes[lane]).collect();
                let mut out = vec![false; self.lanes];
                for (block, lanes) in [(then, yes), (otherwise, no)] {
                    if none(&lanes) {
                        continue;
                    }
                    let yielded = self.block(block, lanes, frames)?;
                    if let End::Yield(values) = &block.end {
                        self.copy(values, results, &yielded);
                    }
                    out = both(&out, &yielded);
                }
                return Ok(out);
            }
            Inst::Loop(inner) => return self.repeat(inner, mask, frames),
        }
        Ok(mask)
    }

    fn repeat(&mut self, inner: &'a Loop, mask: Mask, frames: &mut Vec<Frame<'a>>) -> Result<Mask, Diagnostic> {
        self.copy(&inner.init, &inner.params, &mask);
        if let Some(counter) = &inner.counter {
            self.copy(&[counter.from], &[counter.value], &mask);
        }
        frames.push(Frame { inner, broken: vec![false; self.lanes], next: mask });
        while let Some(frame) = frames.last_mut() {
            let mut round = std::mem::replace(&mut frame.next, vec![false; self.lanes]);
            if let Some(counter) = &inner.counter {
                let signed = self.ty(counter.value) == Scalar::I32;
                let less = |a: u64, b: u64| if signed { (a as i32) < (b as i32) } else { a < b };
                let ended: Mask = (0..self.lanes)
                    .map(|lane| round[lane] && !less(self.get(counter.value, lane), self.get(counter.to, lane)))
                    .collect();
                self.copy(&inner.params, &inner.results, &ended);
                frame.broken = both(&frame.broken, &ended);
                (0..self.lanes).for_each(|lane| round[lane] &= !ended[lane]);
            }
            if none(&round) {
                break;
            }
            self.spend(1)?;
            self.block(&inner.body, round, frames)?;
            if let (Some(counter), Some(frame)) = (&inner.counter, frames.last_mut()) {
                let signed = self.ty(counter.value) == Scalar::I32;
                let mut wrapped = vec![false; self.lanes];
                let mut counts = self.values[counter.value.index()].clone();
                for lane in (0..self.lanes).filter(|&lane| frame.next[lane]) {
                    let next = if signed {
                        (counts[lane] as i32).checked_add_unsigned(counter.step).map(|n| u64::from(n as u32))
                    } else {
                        (counts[lane] as u32).checked_add(counter.step).map(u64::from)
                    };
                    match next {
                        Some(next) => counts[lane] = next,
                        None => wrapped[lane] = true,
                    }
                }
                self.values[counter.value.index()] = counts;
                (0..self.lanes).for_each(|lane| frame.next[lane] &= !wrapped[lane]);
                frame.broken = both(&frame.broken, &wrapped);
                self.copy(&inner.params, &inner.results, &wrapped);
            }
        }
        Ok(frames.pop().map_or_else(Vec::new, |frame| frame.broken))
    }

    fn op(&mut self, value: Value, op: &Op, mask: &Mask) {
        let ty = self.kernel.values[value.index()].ty;
        match op {
            Op::Const(literal) => {
                let bits = literal.bits();
                self.set(value, mask, &|_, _| bits);
            }
            Op::Builtin(builtin) => self.set(value, mask, &|machine, lane| machine.builtin(*builtin, lane)),
            Op::Length(buffer) => {
                let length = self.length(*buffer);
                let length = if ty.scalar == Scalar::U32 { length.min(u32::MAX.into()) } else { length };
                self.set(value, mask, &|_, _| length);
            }
            Op::Unary(op, a) => {
                let from = self.ty(*a);
                match self.how.noise {
                    None => self.set(value, mask, &|machine, lane| eval::unary(*op, from, machine.get(*a, lane))),
                    Some(noise) => self.set(value, mask, &|machine, lane| {
                        noise.unary(machine.place(value, lane), *op, from, machine.get(*a, lane))
                    }),
                }
            }
            Op::Binary(op, a, b) => {
                let from = self.ty(*a);
                match self.how.noise {
                    None => self.set(value, mask, &|m, lane| eval::binary(*op, from, m.get(*a, lane), m.get(*b, lane))),
                    Some(noise) => self.set(value, mask, &|m, lane| {
                        noise.binary(m.place(value, lane), *op, from, m.get(*a, lane), m.get(*b, lane))
                    }),
                }
            }
            Op::Fma(a, b, c) => self.set(value, mask, &|m, lane| {
                let [a, b, c] = [*a, *b, *c].map(|operand| m.get(operand, lane));
                match m.how.noise {
                    None => eval::fma(ty.scalar, a, b, c),
                    Some(noise) => noise.fma(m.place(value, lane), ty.scalar, a, b, c),
                }
            }),
            Op::Select(cond, yes, no) => self.set(value, mask, &|m, lane| {
                if m.get(*cond, lane) != 0 { m.get(*yes, lane) } else { m.get(*no, lane) }
            }),
            Op::Cast(a) => {
                let from = self.ty(*a);
                self.set(value, mask, &|m, lane| eval::cast(from, ty.scalar, m.get(*a, lane)));
            }
            Op::BitCast(a) => {
                let from = self.ty(*a);
                self.set(value, mask, &|m, lane| eval::bit_cast(from, ty.scalar, m.get(*a, lane)));
            }
            Op::Extract(a, part) => {
                let width = usize::from(self.kernel.values[a.index()].ty.width);
                self.set(value, mask, &|m, lane| m.values[a.index()][lane * width + usize::from(*part)]);
            }
            Op::Load { address, element, guard } => {
                let width = usize::from(ty.width);
                let mut out = std::mem::take(&mut self.values[value.index()]);
                out.resize(self.lanes * width, 0);
                for lane in (0..self.lanes).filter(|&lane| mask[lane]) {
                    for part in 0..width {
                        out[lane * width + part] = if self.is(*guard, lane) {
                            eval::decode(*element, self.read(address, *element, lane, part))
                        } else {
                            0
                        };
                    }
                }
                self.values[value.index()] = out;
            }
            Op::Construct(parts) => {
                let mut out = vec![0; self.lanes * parts.len()];
                for lane in (0..self.lanes).filter(|&lane| mask[lane]) {
                    for (i, part) in parts.iter().enumerate() {
                        out[lane * parts.len() + i] = self.get(*part, lane);
                    }
                }
                self.values[value.index()] = out;
            }
            Op::Subgroup(op, a, argument) => self.subgroup(value, *op, *a, *argument, mask),
            Op::Matrix(matrix) => {
                let mut out = vec![0; self.lanes * 4];
                for first in (0..self.lanes).step_by(MATRIX_LANES as usize) {
                    let sums = eval::matrix(matrix, |value, lane| self.get(value, first + lane));
                    for (lane, sum) in sums.iter().enumerate() {
                        let at = (first + lane) * 4;
                        out[at..at + 4].copy_from_slice(&sum.map(u64::from));
                    }
                }
                self.values[value.index()] = out;
            }
        }
    }

    fn place(&self, value: Value, lane: usize) -> Place {
        Place { value: value.0, lane, step: self.steps }
    }

    fn builtin(&self, builtin: Builtin, lane: usize) -> u64 {
        let size = self.kernel.workgroup_size;
        let lane = lane as u32;
        let local = [lane % size[0], lane / size[0] % size[1], lane / (size[0] * size[1])];
        let subgroup = self.how.subgroup_size.max(1);
        let axis = |axis: u8| usize::from(axis.min(2));
        u64::from(match builtin {
            Builtin::GlobalId(a) => self.group[axis(a)].wrapping_mul(size[axis(a)]).wrapping_add(local[axis(a)]),
            Builtin::LocalId(a) => local[axis(a)],
            Builtin::WorkgroupId(a) => self.group[axis(a)],
            Builtin::NumWorkgroups(a) => self.how.grid[axis(a)],
            Builtin::WorkgroupSize(a) => size[axis(a)],
            Builtin::LocalIndex => lane,
            Builtin::SubgroupSize => subgroup,
            Builtin::SubgroupLane => lane % subgroup,
            Builtin::SubgroupId => lane / subgroup,
            Builtin::NumSubgroups => (self.lanes as u32).div_ceil(subgroup),
        })
    }

    fn length(&self, buffer: u32) -> u64 {
        let decl = &self.kernel.buffers[buffer as usize];
        if let Some(count) = decl.count {
            return count.into();
        }
        let bytes = self.buffers[buffer as usize].len() as u64;
        let per_stride = if decl.element.is_some_and(|(element, _)| element.bits() == 4) { 2 } else { 1 };
        bytes.saturating_sub(decl.header.into()) / u64::from(decl.stride.max(1)) * per_stride
    }

    /// Bytes of a memory as a lane sees it, and the position of the addressed element in it (of 4-bit ones, in elements).
    fn locate(&self, address: &Address, element: Element, lane: usize, part: usize) -> (&[u8], u64) {
        let mut at = u64::from(address.offset);
        for (value, stride) in &address.terms {
            at = at.wrapping_add(self.get(*value, lane).wrapping_mul((*stride).into()));
        }
        at = at.wrapping_add(part as u64 * u64::from(if element.bits() == 4 { 1 } else { element.bits() / 8 }));
        let bytes = match address.memory {
            Memory::Buffer(i) => &self.buffers[i as usize][..],
            Memory::Shared(i) => &self.shared[i as usize][..],
            Memory::Local(i) => {
                let size = self.kernel.locals[i as usize].size as usize;
                &self.locals[i as usize][lane * size..(lane + 1) * size]
            }
        };
        (bytes, at)
    }

    /// An access whose guard wrongly holds panics here; that is what tests look for.
    fn read(&self, address: &Address, element: Element, lane: usize, part: usize) -> u64 {
        let (bytes, at) = self.locate(address, element, lane, part);
        if element.bits() == 4 {
            return u64::from(bytes[at as usize / 2] >> (at % 2 * 4) & 0xf);
        }
        let size = element.bits() as usize / 8;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[at as usize..at as usize + size]);
        u64::from_le_bytes(word)
    }

    fn write(&mut self, address: &Address, element: Element, lane: usize, part: usize, bits: u64) {
        let (_, at) = self.locate(address, element, lane, part);
        let at = at as usize;
        let bytes = match address.memory {
            Memory::Buffer(i) => &mut self.buffers[i as usize][..],
            Memory::Shared(i) => &mut self.shared[i as usize][..],
            Memory::Local(i) => {
                let size = self.kernel.locals[i as usize].size as usize;
                &mut self.locals[i as usize][lane * size..(lane + 1) * size]
            }
        };
        if element.bits() == 4 {
            let byte = &mut bytes[at / 2];
            let shift = at % 2 * 4;
            *byte = *byte & !(0xf << shift) | ((bits as u8 & 0xf) << shift);
            return;
        }
        let size = element.bits() as usize / 8;
        bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }

    fn subgroup(&mut self, value: Value, op: SubgroupOp, a: Value, argument: Option<Value>, mask: &Mask) {
        let ty = self.ty(a);
        let size = self.how.subgroup_size.clamp(1, 128) as usize;
        let width = if op == SubgroupOp::Ballot { 4 } else { 1 };
        let mut out = std::mem::take(&mut self.values[value.index()]);
        out.resize(self.lanes * width, 0);
        for first in (0..self.lanes).step_by(size) {
            let live: Vec<usize> = (first..(first + size).min(self.lanes)).filter(|&lane| mask[lane]).collect();
            let fold = |lanes: &[usize], op: super::Binary| {
                let values = lanes.iter().map(|&lane| self.get(a, lane));
                values.reduce(|x, y| eval::binary(op, ty, x, y))
            };
            let from = |lane: Option<u64>| match lane {
                Some(lane) if lane < size as u64 && live.contains(&(first + lane as usize)) => {
                    self.get(a, first + lane as usize)
                }
                _ => 0,
            };
            for (position, &lane) in live.iter().enumerate() {
                use super::Binary;
                let own = (lane - first) as u64;
                let argument = argument.map_or(0, |argument| self.get(argument, lane));
                let one = eval::cast(Scalar::U32, ty, 1);
                let result = match op {
                    SubgroupOp::Add => fold(&live, Binary::Add),
                    SubgroupOp::Mul => fold(&live, Binary::Mul),
                    SubgroupOp::Min => fold(&live, Binary::Min),
                    SubgroupOp::Max => fold(&live, Binary::Max),
                    SubgroupOp::And | SubgroupOp::All => fold(&live, Binary::And),
                    SubgroupOp::Or | SubgroupOp::Any => fold(&live, Binary::Or),
                    SubgroupOp::Xor => fold(&live, Binary::Xor),
                    SubgroupOp::InclusiveAdd => fold(&live[..=position], Binary::Add),
                    SubgroupOp::InclusiveMul => fold(&live[..=position], Binary::Mul),
                    SubgroupOp::ExclusiveAdd => fold(&live[..position], Binary::Add).or(Some(0)),
                    SubgroupOp::ExclusiveMul => fold(&live[..position], Binary::Mul).or(Some(one)),
                    SubgroupOp::Ballot => {
                        for word in 0..4 {
                            let bits = live.iter().filter(|&&l| self.get(a, l) != 0).map(|&l| l - first);
                            let bits = bits.filter(|bit| bit / 32 == word).fold(0, |mask, bit| mask | 1 << (bit % 32));
                            out[lane * 4 + word] = bits;
                        }
                        continue;
                    }
                    SubgroupOp::BroadcastFirst => live.first().map(|&lane| self.get(a, lane)),
                    SubgroupOp::Broadcast | SubgroupOp::Shuffle => Some(from(Some(argument))),
                    SubgroupOp::ShuffleXor => Some(from(Some(own ^ argument))),
                    SubgroupOp::ShuffleUp => Some(from(own.checked_sub(argument))),
                    SubgroupOp::ShuffleDown => Some(from(own.checked_add(argument))),
                };
                out[lane] = result.unwrap_or(0);
            }
        }
        self.values[value.index()] = out;
    }
}
