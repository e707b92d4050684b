//! From terms to the part of a kernel that computes them for one position.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::Hash;
use std::ops::Range;

use smallvec::SmallVec;
use vyre_foundation::ir::{BinaryOp, DataType, Literal, MathOp, UnaryOp};
use vyre_spec::{Diagnostic, codes};

use super::term::{Op, Term};
use crate::array::{Buffer, Shape};
use crate::engine::Arg;
use crate::kernels::Call;
use crate::{Engine, Error};

/// Arrays that one kernel reads for a term: with numbers and two results it stays within the eight buffers that every device has.
const MOST_ARRAYS: usize = 5;

/// What one or several terms compute for a position, as lines of a kernel in the text form. Whatever occurs twice in them is computed once.
///
/// The text depends on structure and types alone, and on extents where something is repeated along an axis: numbers are given with each
/// launch, except those that integers are divided or shifted by; only which of them are equal is seen. So the kernel around it can be remembered by it.
pub struct Fused {
    engine: Engine,
    shape: Shape,
    elements: usize,
    lines: Vec<Line>,
    /// For each line: it is the same for all positions.
    uniform: Vec<bool>,
    results: SmallVec<[(usize, DataType); 2]>,
    arrays: Vec<Input>,
    words: Vec<u32>,
    /// The number that is added to positions, where they are looked at.
    base: Option<usize>,
}

struct Input {
    buffer: Buffer,
    ty: DataType,
    /// It has an element for each position.
    whole: bool,
}

/// One value, made of earlier ones.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Line {
    Load {
        input: usize,
        place: Option<Vec<Step>>,
        is_bool: bool,
    },
    /// A number from the words of the launch.
    Word(usize, DataType),
    Fixed(Literal),
    Position,
    Unary(UnaryOp, usize),
    Binary(BinaryOp, usize, usize),
    Math(MathOp, SmallVec<[usize; 3]>),
    Select(usize, usize, usize),
    Cast(DataType, usize),
    BitCast(DataType, usize),
}

/// `(i / over % extent) * stride`; the outermost has no extent.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    over: usize,
    extent: Option<usize>,
    stride: usize,
}

impl Fused {
    /// The lines of terms that fit one shape. Parts of them are computed before where they need more arrays than a kernel can have.
    pub fn new(terms: &[&Term]) -> Result<Fused, Error> {
        let mut shape: Option<&Shape> = None;
        let mut engine = None;
        for term in terms {
            term.check()?;
            engine = engine.or(term.engine());
            match (shape, term.shape()) {
                (Some(one), Some(other)) if one != other => {
                    let message = format!("expressions of {one} and of {other} can't be computed together");
                    return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
                }
                (_, own) => shape = shape.or(own),
            }
        }
        let (Some(shape), Some(engine)) = (shape, engine) else {
            let message = "an expression without arrays has no shape and no engine";
            return Err(Diagnostic::new(&codes::engine::SHAPE, message)
                .with_fix("Give it a shape with `Engine::full`, or combine it with an array.")
                .into());
        };
        for term in terms {
            make_fit(term)?;
        }
        let mut fused = Fused {
            engine: engine.clone(),
            elements: shape.elements()?,
            shape: shape.clone(),
            lines: Vec::new(),
            uniform: Vec::new(),
            results: SmallVec::new(),
            arrays: Vec::new(),
            words: Vec::new(),
            base: None,
        };
        let mut numbers = Numbers::default();
        for term in terms {
            let line = fused.number(term, &mut numbers)?;
            fused.results.push((line, term.data_type().clone()));
        }
        Ok(fused)
    }

    /// The shape that is computed.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// How many positions it has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// The engine of the arrays.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The buffers that the lines read, with bindings from a number on. They are called `x0`, `x1` and so on, and `scalars`. Those with an
    /// element for each position have so many `positions`, where the kernel is for this number alone.
    pub fn declarations(&self, first: usize, positions: Option<usize>) -> String {
        let mut text = String::new();
        for (at, input) in self.arrays.iter().enumerate() {
            let count = positions.filter(|_| input.whole).map_or_else(String::new, |count| format!("[{count}]"));
            let _ = writeln!(text, "read x{at}: {}{count} @{};", input.ty, first + at);
        }
        if !self.words.is_empty() {
            let _ = writeln!(text, "read scalars: u32 @{};", first + self.arrays.len());
        }
        text
    }

    /// Tells what is computed from everything else that is, as the text of the lines does; it is made sooner.
    pub fn key(&self) -> String {
        let mut key = Key(String::with_capacity(8 + 4 * (self.arrays.len() + self.lines.len())));
        key.push(self.arrays.len());
        for input in &self.arrays {
            key.all([input.ty.tag().into(), input.whole.into()]);
        }
        key.all([usize::from(!self.words.is_empty()), self.base.map_or(0, |base| base + 1), self.results.len()]);
        for (line, ty) in &self.results {
            key.all([*line, ty.tag().into()]);
        }
        for line in &self.lines {
            match line {
                Line::Load { input, place, is_bool } => {
                    key.all([0, *input, (*is_bool).into(), place.as_ref().map_or(0, |steps| steps.len() + 1)]);
                    for step in place.iter().flatten() {
                        key.all([step.over, step.extent.map_or(0, |extent| extent + 1), step.stride]);
                    }
                }
                Line::Word(at, ty) => key.all([1, *at, ty.tag().into()]),
                Line::Fixed(value) => {
                    key.all([
                        2,
                        value.data_type().tag().into(),
                        value.bits() as u32 as usize,
                        (value.bits() >> 32) as usize,
                    ]);
                }
                Line::Position => key.push(3),
                Line::Unary(op, a) => key.all([4, *op as usize, *a]),
                Line::Binary(op, a, b) => key.all([5, *op as usize, *a, *b]),
                Line::Math(op, all) => {
                    key.all([6, *op as usize, all.len()]);
                    all.iter().for_each(|at| key.push(*at));
                }
                Line::Select(a, b, c) => key.all([7, *a, *b, *c]),
                Line::Cast(ty, a) => key.all([8, ty.tag().into(), *a]),
                Line::BitCast(ty, a) => key.all([9, ty.tag().into(), *a]),
            }
        }
        key.0
    }

    /// How many bindings [`Fused::declarations`] takes.
    pub fn bindings(&self) -> usize {
        self.arrays.len() + usize::from(!self.words.is_empty())
    }

    /// The lines that are the same for all positions; they stand once, before the others.
    pub fn uniform_lines(&self) -> String {
        let mut text = String::new();
        for (at, line) in self.lines.iter().enumerate().filter(|(at, _)| self.uniform[*at]) {
            let _ = writeln!(text, "let {} = {};", self.name(at, ""), self.value(line, "0", ""));
        }
        text
    }

    /// The lines for the position that `index` names (a u32), and the values of the terms. The suffix sets their names apart from those
    /// for another position in the same block.
    pub fn lines(&self, index: &str, suffix: &str) -> (String, Vec<String>) {
        let mut text = String::new();
        for (at, line) in self.lines.iter().enumerate().filter(|(at, _)| !self.uniform[*at]) {
            let _ = writeln!(text, "let {} = {};", self.name(at, suffix), self.value(line, index, suffix));
        }
        (text, self.results.iter().map(|(at, _)| self.name(*at, suffix)).collect())
    }

    /// Binds what the lines read, for a part of the positions: index 0 is then the first of them.
    pub fn bind<'a>(&'a self, mut call: Call<'a>, part: Range<usize>) -> Call<'a> {
        for (at, input) in self.arrays.iter().enumerate() {
            let size = u64::from(input.ty.bits().unwrap_or(8) / 8);
            let bytes = match input.whole {
                true => part.start as u64 * size..part.end as u64 * size,
                false => 0..input.buffer.bytes(),
            };
            call = call.put(&format!("x{at}"), Arg::Read(&input.buffer.storage, bytes), None, 1);
        }
        if !self.words.is_empty() {
            let mut words = self.words.clone();
            if let Some(base) = self.base {
                words[base] = part.start as u32;
            }
            let bytes = SmallVec::from_slice(bytemuck::cast_slice(&words));
            call = call.put("scalars", Arg::Value(bytes), None, 4);
        }
        call
    }

    /// All positions, in parts whose indices a kernel can count and that begin at multiples of `unit`.
    pub fn parts(&self, unit: usize) -> Result<Vec<Range<usize>>, Error> {
        const MOST: usize = 1 << 30;
        if self.elements > MOST && self.arrays.iter().any(|input| !input.whole) {
            let message = format!("nothing can be repeated along an axis of {} in one expression", self.shape);
            return Err(Diagnostic::new(&codes::engine::SHAPE, message)
                .with_fix("Take slices along the first axis.")
                .into());
        }
        let step = (MOST / unit * unit).max(unit);
        Ok((0..self.elements).step_by(step).map(|start| start..self.elements.min(start + step)).collect())
    }

    fn name(&self, line: usize, suffix: &str) -> String {
        if self.uniform[line] { format!("s{line}") } else { format!("v{line}{suffix}") }
    }

    fn add(&mut self, line: Line, operands: &[usize], known: &mut Numbers) -> usize {
        if let Some(at) = known.lines.get(&line) {
            return at;
        }
        let uniform = match line {
            Line::Load { .. } | Line::Position => false,
            Line::Word(..) | Line::Fixed(_) => true,
            _ => operands.iter().all(|&at| self.uniform[at]),
        };
        let at = self.lines.len();
        known.lines.insert(line.clone(), at);
        self.lines.push(line);
        self.uniform.push(uniform);
        at
    }

    /// The line of a term, made where there is none.
    fn number(&mut self, term: &Term, known: &mut Numbers) -> Result<usize, Error> {
        let node = &*term.0;
        let key = std::ptr::from_ref(node) as usize;
        if let Some(at) = known.terms.get(&key) {
            return Ok(at);
        }
        let at = if let Some(buffer) = node.value.get() {
            self.load(term, buffer, known)?
        } else {
            let mut operands: SmallVec<[usize; 3]> = SmallVec::new();
            let all = node.op.operands();
            for (position, operand) in all.iter().enumerate() {
                operands.push(match (&node.op, &operand.0.op) {
                    // What integers are divided or shifted by is worth a kernel of its own.
                    (Op::Binary(op, ..), Op::Scalar(value)) if position == 1 && is_fixed(*op, value) => {
                        self.add(Line::Fixed(*value), &[], known)
                    }
                    _ => self.number(operand, known)?,
                });
            }
            let line = match &node.op {
                Op::Repeat(_) => {
                    known.terms.insert(key, operands[0]);
                    return Ok(operands[0]);
                }
                Op::Scalar(value @ Literal::Bool(_)) => Line::Fixed(*value),
                Op::Scalar(value) => Line::Word(self.word(value, known), node.ty.clone()),
                Op::Position => {
                    if self.base.is_none() {
                        self.base = Some(self.words.len());
                        self.words.push(0);
                    }
                    Line::Position
                }
                Op::Unary(op, _) => Line::Unary(*op, operands[0]),
                Op::Binary(op, ..) => Line::Binary(*op, operands[0], operands[1]),
                Op::Math(op, _) => Line::Math(*op, operands.clone()),
                Op::Select(..) => Line::Select(operands[0], operands[1], operands[2]),
                Op::Cast(_) => Line::Cast(node.ty.clone(), operands[0]),
                Op::BitCast(_) => Line::BitCast(node.ty.clone(), operands[0]),
                Op::Wrong(error) => return Err(error.clone()),
                Op::Array(_) => {
                    let message = "an array of an expression has no elements";
                    return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
                }
            };
            self.add(line, &operands, known)
        };
        known.terms.insert(key, at);
        Ok(at)
    }

    fn load(&mut self, term: &Term, buffer: &Buffer, known: &mut Numbers) -> Result<usize, Error> {
        let shape = term.shape().unwrap_or(&self.shape).clone();
        let whole = shape == self.shape;
        let ty = match &term.0.op {
            Op::Array(stored) => stored_as(stored),
            _ => stored_as(term.data_type()),
        };
        let same = |input: &Input| {
            std::sync::Arc::ptr_eq(&input.buffer.storage, &buffer.storage) && input.ty == ty && input.whole == whole
        };
        let input = self.arrays.iter().position(same).unwrap_or_else(|| {
            self.arrays.push(Input { buffer: buffer.clone(), ty, whole });
            self.arrays.len() - 1
        });
        let place = if whole { None } else { Some(place(self.shape.extents(), shape.extents())?) };
        let is_bool = *term.data_type() == DataType::Bool;
        Ok(self.add(Line::Load { input, place, is_bool }, &[], known))
    }

    /// Where a number stands among the words.
    fn word(&mut self, value: &Literal, known: &mut Numbers) -> usize {
        if let Some(at) = known.words.get(value) {
            return at;
        }
        let at = self.words.len();
        match value {
            Literal::F16(value) => self.words.push(value.to_f32().to_bits()),
            Literal::U64(_) | Literal::I64(_) | Literal::F64(_) => {
                self.words.extend([value.bits() as u32, (value.bits() >> 32) as u32]);
            }
            _ => self.words.push(value.bits() as u32),
        }
        known.words.insert(*value, at);
        at
    }

    fn value(&self, line: &Line, index: &str, suffix: &str) -> String {
        let name = |at: &usize| self.name(*at, suffix);
        match line {
            Line::Load { input, place, is_bool } => {
                let place = place.as_ref().map_or_else(|| index.to_owned(), |steps| placed(steps, index));
                format!("x{input}[{place}]{}", if *is_bool { " != 0" } else { "" })
            }
            Line::Word(at, ty) => word_text(*at, ty),
            Line::Fixed(value) => literal_text(value),
            Line::Position => format!("{index} + scalars[{}]", self.base.unwrap_or(0)),
            Line::Unary(op, a) => format!("{}{}", op.name(), name(a)),
            Line::Binary(op, a, b) => format!("{} {} {}", name(a), op.name(), name(b)),
            Line::Math(op, all) => {
                format!("{}({})", op.name(), all.iter().map(name).collect::<Vec<_>>().join(", "))
            }
            Line::Select(a, b, c) => format!("select({}, {}, {})", name(a), name(b), name(c)),
            Line::Cast(ty, a) => format!("cast<{ty}>({})", name(a)),
            Line::BitCast(ty, a) => format!("bitcast<{ty}>({})", name(a)),
        }
    }
}

/// Numbers one after the other, none of which is the beginning of another.
struct Key(String);

impl Key {
    fn push(&mut self, number: usize) {
        match number {
            0..0x40 => self.0.push(char::from(b'@' + number as u8)),
            _ => {
                let _ = write!(self.0, "{number};");
            }
        }
    }

    fn all<const N: usize>(&mut self, numbers: [usize; N]) {
        numbers.into_iter().for_each(|number| self.push(number));
    }
}

/// Lines that are known, by the term that they compute and by what they say, and numbers.
#[derive(Default)]
struct Numbers {
    terms: Table<usize>,
    lines: Table<Line>,
    words: Table<Literal>,
}

/// A table that is mostly short, where looking at all is faster than hashing.
struct Table<K> {
    few: SmallVec<[(K, usize); 8]>,
    more: HashMap<K, usize>,
}

impl<K> Default for Table<K> {
    fn default() -> Self {
        Table { few: SmallVec::new(), more: HashMap::new() }
    }
}

impl<K: Eq + Hash> Table<K> {
    const FEW: usize = 16;

    fn get(&self, key: &K) -> Option<usize> {
        match self.few.iter().find(|(own, _)| own == key) {
            Some((_, at)) => Some(*at),
            None if self.few.len() < Self::FEW => None,
            None => self.more.get(key).copied(),
        }
    }

    fn insert(&mut self, key: K, at: usize) {
        match self.few.len() < Self::FEW {
            true => self.few.push((key, at)),
            false => drop(self.more.insert(key, at)),
        }
    }
}

fn is_fixed(op: BinaryOp, value: &Literal) -> bool {
    let splits = matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr);
    splits && !matches!(value, Literal::F16(_) | Literal::F32(_) | Literal::F64(_))
}

/// The type that elements of a computed type are stored as.
pub(super) fn stored_as(ty: &DataType) -> DataType {
    if *ty == DataType::Bool { DataType::U32 } else { ty.clone() }
}

/// Computes parts of a term until the rest needs no more arrays than a kernel can have.
fn make_fit(term: &Term) -> Result<(), Error> {
    while leaves(term).len() > MOST_ARRAYS {
        let mut part = term.clone();
        loop {
            let operands = part.0.op.operands();
            let largest = operands.into_iter().max_by_key(|operand| leaves(operand).len()).cloned();
            let Some(largest) = largest else { return Ok(()) };
            part = largest;
            if leaves(&part).len() <= MOST_ARRAYS {
                break;
            }
        }
        part.evaluate()?;
    }
    Ok(())
}

/// The arrays that a term reads, each with the shape in which it does.
fn leaves(term: &Term) -> Vec<(usize, Option<Shape>)> {
    fn collect(term: &Term, seen: &mut Vec<usize>, found: &mut Vec<(usize, Option<Shape>)>) {
        let node = &*term.0;
        let key = std::ptr::from_ref(node) as usize;
        if seen.contains(&key) {
            return;
        }
        seen.push(key);
        if let Some(buffer) = node.value.get() {
            let leaf = (std::sync::Arc::as_ptr(&buffer.storage) as usize, node.shape.clone());
            if !found.contains(&leaf) {
                found.push(leaf);
            }
            return;
        }
        for operand in node.op.operands() {
            collect(operand, seen, found);
        }
    }
    let mut found = Vec::new();
    collect(term, &mut Vec::new(), &mut found);
    found
}

/// How a position of one shape finds its element in an array of another, which is repeated.
fn place(whole: &[usize], own: &[usize]) -> Result<Vec<Step>, Error> {
    if whole.iter().try_fold(1u32, |product, &extent| product.checked_mul(u32::try_from(extent).ok()?)).is_none() {
        let message = "nothing can be repeated in an expression of more than 2^32 elements";
        return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
    }
    let mut steps: Vec<Step> = Vec::new();
    let (mut over, mut stride) = (1, 1);
    for axis in (0..whole.len()).rev() {
        let extent = whole[axis];
        let has = (axis + own.len()).checked_sub(whole.len()).map_or(1, |at| own[at]);
        let step = if has == 1 { 0 } else { stride };
        if extent != 1 {
            match steps.last_mut() {
                // Axes that lie one after the other count as one.
                Some(last) if step == last.stride * last.extent.unwrap_or(1) => {
                    last.extent = last.extent.map(|inner| inner * extent);
                }
                _ => steps.push(Step { over, extent: Some(extent), stride: step }),
            }
        }
        over *= extent;
        stride *= has;
    }
    if let Some(outermost) = steps.last_mut() {
        outermost.extent = None;
    }
    steps.retain(|step| step.stride != 0);
    Ok(steps)
}

fn placed(steps: &[Step], index: &str) -> String {
    if steps.is_empty() {
        return "0".to_owned();
    }
    let one = |step: &Step| {
        let mut text = index.to_owned();
        if step.over != 1 {
            text = format!("{text} / {}", step.over);
        }
        if let Some(extent) = step.extent {
            text = format!("{text} % {extent}");
        }
        if step.stride != 1 { format!("({text}) * {}", step.stride) } else { format!("({text})") }
    };
    steps.iter().map(one).collect::<Vec<_>>().join(" + ")
}

fn word_text(at: usize, ty: &DataType) -> String {
    let wide = || format!("cast<u64>(scalars[{at}]) | (cast<u64>(scalars[{}]) << 32)", at + 1);
    match ty {
        DataType::U32 => format!("scalars[{at}]"),
        DataType::U64 => wide(),
        DataType::I64 | DataType::F64 => format!("bitcast<{ty}>({})", wide()),
        DataType::F16 => format!("cast<f16>(bitcast<f32>(scalars[{at}]))"),
        _ => format!("bitcast<{ty}>(scalars[{at}])"),
    }
}

/// A number as the text form writes it.
pub fn literal_text(value: &Literal) -> String {
    match value {
        Literal::Bool(value) => value.to_string(),
        Literal::U32(value) => value.to_string(),
        Literal::I32(value) => format!("{value}i32"),
        Literal::U64(value) => format!("{value}u64"),
        Literal::I64(value) => format!("{value}i64"),
        Literal::F16(value) => format!("f16#{:04x}", value.to_bits()),
        Literal::F32(value) => format!("f32#{:08x}", value.to_bits()),
        Literal::F64(value) => format!("f64#{:016x}", value.to_bits()),
    }
}
