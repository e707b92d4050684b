//! Radix sort of keys, alone or with values, stable, in both directions.
//!
//! Keys become unsigned numbers of the same order. For each digit, the lowest first: the digits of each block are counted, counts are scanned
//! digit by digit, and each block puts its keys where they belong, those of one digit side by side. Where workgroups may wait for each other,
//! [`onesweep`](crate::onesweep) does it in one pass a digit. Floats are ordered by their bits: −NaN, −∞ … −0, 0 … ∞, NaN. f16 is read and
//! written as u16, so that its bits stay what they are and there are two digits of them.

mod host;

use std::fmt::Write;

use vyre::expression::Term;
use vyre::{Buffer, DataType, Engine, Error, Shape};

use crate::fold::{Fold, Kind};
use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, engine, extents, grid, kernel_of_forms_or, misfit, room, size_of,
};
use crate::onesweep::{self, Sweep};
use crate::output::Output;
use crate::scan::Scan;
use crate::tuning::Axis;

/// How blocks are cut: what each invocation counts is its own, so there are `lanes << bits` counters.
#[derive(Clone, Copy)]
struct Cut {
    lanes: usize,
    bits: usize,
    /// Consecutive keys of an invocation.
    items: usize,
}

/// Many invocations with small digits, for devices that run them at once.
const WIDE: Cut = Cut { lanes: 128, bits: 4, items: 12 };
/// Few with large digits, for processors, also those that are Vulkan devices and have 32 KB of workgroup memory.
const DEEP: Cut = Cut { lanes: 8, bits: 8, items: 512 };

/// What may be tuned: the same blocks with more or fewer invocations.
pub(crate) const SPACE: &[Axis] = &[
    Axis { name: "invocations x keys of a block", on: "processors", values: &["8 x 512", "4 x 1024"] },
    Axis {
        name: "invocations x keys of a block",
        on: "GPUs that have no subgroups of 32 or don't let workgroups wait",
        values: &["128 x 12", "64 x 24"],
    },
];

impl Cut {
    /// It, and others of the same blocks.
    fn all(self) -> Vec<Cut> {
        let others: &[usize] = if self.bits == DEEP.bits { &[4] } else { &[64] };
        let block = self.block();
        let other = |lanes: &usize| Cut { lanes: *lanes, items: block / lanes, ..self };
        [self].into_iter().chain(others.iter().map(other)).collect()
    }

    fn name(self) -> String {
        format!("{} x {}", self.lanes, self.items)
    }

    /// Keys of a block.
    fn block(self) -> usize {
        self.lanes * self.items
    }
}

/// Sorted keys, and the values that go with them.
pub(crate) fn sort(keys: &Term, values: Option<&Term>, descending: bool) -> Result<(Buffer, Option<Buffer>), Error> {
    let length: usize = extents(keys)?.iter().product();
    let engine = engine(keys)?;
    if length > MOST {
        return Err(misfit(format!("{length} keys are more than are sorted at once, which is {MOST}")));
    }
    if let Some(values) = values
        && extents(values)?.iter().product::<usize>() != length
    {
        return Err(misfit(format!("values of another number were given for {length} keys")));
    }
    let terms: Vec<&Term> = [keys].into_iter().chain(values).collect();
    as_a_whole(|| "sort".to_owned(), &terms, length, || sort_here(&engine, keys, values, descending, length))
}

fn sort_here(
    engine: &Engine,
    keys: &Term,
    values: Option<&Term>,
    descending: bool,
    length: usize,
) -> Result<(Buffer, Option<Buffer>), Error> {
    let traits = Traits::of(engine);
    if length > 1 && traits.is_gpu && traits.waits && traits.subgroups && traits.memory >= onesweep::MEMORY {
        return swept(engine, keys, values, descending, length);
    }
    let is_half = *keys.data_type() == DataType::F16;
    let (ty, encode, decode) = turned(keys.data_type(), descending)?;
    let mut keys_now = match is_half {
        true => turn(engine, keys.evaluate()?, length, &encode)?,
        false => encoded(keys, descending)?.evaluate()?,
    };
    let mut values_now = values.map(Term::evaluate).transpose()?;
    if length > 1 {
        let cut = if traits.is_gpu { WIDE } else { DEEP };
        let value_type = values.map(|values| values.data_type().clone());
        let sorter = Sorter { engine, cut, length, ty: ty.clone(), value_type };
        let bits = ty.bits().unwrap_or(32) as usize;
        for shift in (0..bits).step_by(cut.bits) {
            (keys_now, values_now) = sorter.pass(shift, keys_now, values_now)?;
        }
    }
    if is_half {
        return Ok((turn(engine, keys_now, length, &decode)?, values_now));
    }
    let sorted = Term::array(keys_now, ty, Shape::from(length));
    Ok((decoded(&sorted, keys.data_type(), descending).evaluate()?, values_now))
}

/// Each `KEY` of 16 bits as an expression of it.
fn turn(engine: &Engine, keys: Buffer, length: usize, expression: &str) -> Result<Buffer, Error> {
    let mut out = room(engine, &DataType::U16, length);
    if length > 0 {
        let kernel = engine.kernel_from(&format!("turn u16 {expression}"), || {
            crate::launch::parsed(&format!(
                "read keys: u16 @0;\noutput out: u16 @1;\nworkgroup_size [256, 1, 1];\ndomain [len(out), 1, 1];\nentry turn {{\n\
                 let i = global_id.x;\nif i < len(out) {{\nlet key = keys[i];\nout[i] = {};\n}}\n}}\n",
                expression.replace("KEY", "key")
            ))
        })?;
        kernel.bind("keys", &keys).bind("out", &mut out).overwrites().launch()?;
    }
    Ok(out)
}

/// The same in one pass a digit, which turns the bits of keys on its first and last way.
fn swept(
    engine: &Engine,
    keys: &Term,
    values: Option<&Term>,
    descending: bool,
    length: usize,
) -> Result<(Buffer, Option<Buffer>), Error> {
    let (ty, encode, decode) = turned(keys.data_type(), descending)?;
    let value_type = values.map(|values| values.data_type().clone());
    let bytes = size_of(&ty) + value_type.as_ref().map_or(0, size_of);
    let cut = onesweep::Cut::of(bytes as usize);
    let sweep = Sweep { engine, cut, length, ty, value_type, encode: &encode, decode: &decode };
    sweep.run(keys.evaluate()?, values.map(Term::evaluate).transpose()?)
}

/// The unsigned type of as many bits as keys of a type have, in memory; how the bits of a `KEY` become a number of the same order, and back.
pub(crate) fn turned(ty: &DataType, descending: bool) -> Result<(DataType, String, String), Error> {
    let (own, (ty, top)) = match ty {
        DataType::F16 => (ty, (DataType::U16, 1 << 15)),
        _ => (ty, unsigned(ty)?),
    };
    let literal = |value: u64| match ty {
        DataType::U64 => format!("{value}u64"),
        DataType::U16 => (value as u16).to_string(),
        _ => (value as u32).to_string(),
    };
    let (top, most) = (literal(top), literal(u64::MAX));
    let (encode, decode) = match own {
        DataType::U32 | DataType::U64 => ("KEY".to_owned(), "KEY".to_owned()),
        DataType::I32 | DataType::I64 => (format!("(KEY ^ {top})"), format!("(KEY ^ {top})")),
        _ => (
            format!("(KEY ^ select(KEY >= {top}, {most}, {top}))"),
            format!("(KEY ^ select(KEY >= {top}, {top}, {most}))"),
        ),
    };
    Ok(match descending {
        true => (ty, format!("({encode} ^ {most})"), decode.replace("KEY", &format!("(KEY ^ {most})"))),
        false => (ty, encode, decode),
    })
}

/// The positions of the elements in sorted order, and the elements.
pub(crate) fn sorted_positions(keys: &Term, descending: bool) -> Result<[Output; 2], Error> {
    let length: usize = extents(keys)?.iter().product();
    let engine = engine(keys)?;
    let flat = Term::array(keys.evaluate()?, keys.data_type().clone(), length.into());
    let (sorted, positions) = sort(&flat, Some(&Term::positions(&engine, length.into())), descending)?;
    let positions = positions.ok_or_else(|| misfit("values were given"))?;
    let shape = vec![length];
    let ty = keys.data_type().clone();
    Ok([Output { buffer: sorted, ty, shape: shape.clone() }, Output { buffer: positions, ty: DataType::U32, shape }])
}

fn unsigned(ty: &DataType) -> Result<(DataType, u64), Error> {
    match ty {
        DataType::U32 | DataType::I32 | DataType::F32 => Ok((DataType::U32, 1 << 31)),
        DataType::U64 | DataType::I64 | DataType::F64 => Ok((DataType::U64, 1 << 63)),
        other => Err(misfit(format!("keys of {other} can't be sorted; cast them first"))),
    }
}

fn number(ty: &DataType, value: u64) -> Term {
    Term::scalar(match ty {
        DataType::U64 => vyre::ir::Literal::U64(value),
        _ => vyre::ir::Literal::U32(value as u32),
    })
}

/// Keys as unsigned numbers of the same order.
pub(crate) fn encoded(keys: &Term, descending: bool) -> Result<Term, Error> {
    use vyre::ir::{BinaryOp, UnaryOp};
    let (ty, top) = unsigned(keys.data_type())?;
    let bits = if *keys.data_type() == ty { keys.clone() } else { keys.bit_cast(&ty) };
    let coded = match keys.data_type() {
        DataType::U32 | DataType::U64 => bits,
        DataType::I32 | DataType::I64 => bits.binary(BinaryOp::Xor, &number(&ty, top)),
        _ => {
            let negative = bits.binary(BinaryOp::Ge, &number(&ty, top));
            let mask = negative.select(&number(&ty, u64::MAX), &number(&ty, top));
            bits.binary(BinaryOp::Xor, &mask)
        }
    };
    Ok(if descending { coded.unary(UnaryOp::Not) } else { coded })
}

/// Keys as they were before they were [`encoded`].
pub(crate) fn decoded(coded: &Term, ty: &DataType, descending: bool) -> Term {
    use vyre::ir::{BinaryOp, UnaryOp};
    let coded = if descending { coded.unary(UnaryOp::Not) } else { coded.clone() };
    let unsigned = coded.data_type().clone();
    let top = if unsigned == DataType::U64 { 1 << 63 } else { 1 << 31 };
    match ty {
        DataType::U32 | DataType::U64 => coded,
        DataType::I32 | DataType::I64 => coded.binary(BinaryOp::Xor, &number(&unsigned, top)).bit_cast(ty),
        _ => {
            let positive = coded.binary(BinaryOp::Ge, &number(&unsigned, top));
            let mask = positive.select(&number(&unsigned, top), &number(&unsigned, u64::MAX));
            coded.binary(BinaryOp::Xor, &mask).bit_cast(ty)
        }
    }
}

#[derive(Clone)]
struct Sorter<'a> {
    engine: &'a Engine,
    cut: Cut,
    length: usize,
    ty: DataType,
    value_type: Option<DataType>,
}

impl Sorter<'_> {
    /// Sorts by one digit.
    fn pass(&self, shift: usize, keys: Buffer, values: Option<Buffer>) -> Result<(Buffer, Option<Buffer>), Error> {
        let Cut { lanes, bits, items } = self.cut;
        let blocks = self.length.div_ceil(self.cut.block());
        let sizes = [self.length as u32, blocks as u32, shift as u32];
        let mut counts = room(self.engine, &DataType::U32, blocks << bits);
        let key = format!("sort count {} {lanes} {bits} {items}", self.ty);
        let count = |cut: Cut| (cut.name(), Sorter { cut, ..self.clone() }.count_source());
        let function = || host::count_variant(&self.ty, self.cut);
        kernel_of_forms_or(self.engine, &key, || self.cut.all().into_iter().map(count).collect(), function)?
            .bind("keys", &keys)
            .value("sizes", &sizes)
            .bind("counts", &mut counts)
            .grid(grid(blocks))
            .overwrites()
            .launch()?;
        let counts = Term::array(counts, DataType::U32, Shape::from(blocks << bits));
        let scan = Scan {
            fold: Fold { kind: Kind::Sum, ty: DataType::U32 },
            inclusive: false,
            terms: &[&counts],
            along: blocks << bits,
            outputs: &[("out", DataType::U32, blocks << bits)],
            each: "out[AT] = PREFIX;",
            end: "",
            covers: true,
        };
        let starts = scan.run()?.swap_remove(0);
        let mut sorted = room(self.engine, &self.ty, self.length);
        let mut moved = self.value_type.as_ref().map(|ty| room(self.engine, ty, self.length));
        let key = format!("sort move {} {lanes} {bits} {items} {:?}", self.ty, self.value_type);
        let shift = |cut: Cut| (cut.name(), Sorter { cut, ..self.clone() }.move_source());
        let function = || host::move_variant(&self.ty, self.value_type.as_ref(), self.cut);
        let forms = || self.cut.all().into_iter().map(shift).collect();
        let kernel = kernel_of_forms_or(self.engine, &key, forms, function)?;
        let mut call =
            kernel.bind("keys", &keys).value("sizes", &sizes).bind("starts", &starts).bind("out", &mut sorted);
        if let (Some(values), Some(moved)) = (&values, &mut moved) {
            call = call.bind("values", values).bind("out_values", moved);
        }
        call.grid(grid(blocks)).overwrites().launch()?;
        Ok((sorted, moved))
    }

    /// The digit of a key.
    fn digit(&self, key: &str) -> String {
        let mask = (1 << self.cut.bits) - 1;
        match self.ty {
            DataType::U64 => format!("cast<u32>({key} >> sizes[2]) & {mask}"),
            _ => format!("({key} >> sizes[2]) & {mask}"),
        }
    }

    /// Each invocation counts the digits of its keys.
    fn counting(&self) -> String {
        let Cut { lanes, items, .. } = self.cut;
        format!(
            "for k in 0..{items} {{\nlet i = start + l * {items} + k;\nif i < n {{\nlet place = ({}) * {lanes} + l;\n\
             counters[place] = counters[place] + 1;\n}}\n}}\nbarrier;\n",
            self.digit("keys[i]")
        )
    }

    fn begin(&self) -> String {
        let Cut { lanes, bits, items } = self.cut;
        format!(
            "workgroup counters: u32[{}] @0;\nworkgroup runs: u32[{}] @0;\nWORKGROUP\nworkgroup_size [{lanes}, 1, 1];\nentry NAME {{\n{GROUP}\
             let l = local_index;\nlet n = sizes[0];\nlet blocks = sizes[1];\nif group < blocks {{\nlet start = group * {};\n",
            lanes << bits,
            2 * lanes,
            lanes * items
        )
    }

    fn count_source(&self) -> String {
        let Cut { lanes, bits, .. } = self.cut;
        let digits = 1 << bits;
        let mut text = format!("read keys: {} @0;\nread sizes: u32 @1;\noutput counts: u32 @2;\n", self.ty);
        text.push_str(&self.begin().replace("WORKGROUP\n", "").replace("NAME", "count_digits"));
        text.push_str(&self.counting());
        if lanes >= digits {
            // Counters of one digit lie side by side, and so do those that an invocation adds up.
            let sum: Vec<String> = (0..digits).map(|k| format!("counters[l * {digits} + {k}]")).collect();
            let per_digit = lanes / digits;
            let runs: Vec<String> = (0..per_digit).map(|k| format!("runs[l * {per_digit} + {k}]")).collect();
            let _ = write!(
                text,
                "runs[l] = {};\nbarrier;\nif l < {digits} {{\ncounts[l * blocks + group] = {};\n}}\n",
                sum.join(" + "),
                runs.join(" + ")
            );
        } else {
            let sum: Vec<String> = (0..lanes).map(|k| format!("counters[d * {lanes} + {k}]")).collect();
            let _ = write!(
                text,
                "for d in l..{digits} step {lanes} {{\ncounts[d * blocks + group] = {};\n}}\n",
                sum.join(" + ")
            );
        }
        text.push_str("}\n}\n");
        text
    }

    fn move_source(&self) -> String {
        let Cut { lanes, bits, items } = self.cut;
        let digits = 1usize << bits;
        let mut text = format!(
            "read keys: {} @0;\nread sizes: u32 @1;\nread starts: u32 @2;\noutput out: {} @3;\n",
            self.ty, self.ty
        );
        if let Some(ty) = &self.value_type {
            let _ = writeln!(text, "read values: {ty} @4;\noutput out_values: {ty} @5;");
        }
        let more = format!("workgroup order: u32[{}] @0;\nworkgroup bases: u32[{digits}] @0;\n", lanes * items);
        text.push_str(&self.begin().replace("WORKGROUP\n", &more).replace("NAME", "move_keys"));
        text.push_str(&self.counting());
        // Counters become where the keys of an invocation go within the block: an exclusive scan, digit by digit.
        let _ = writeln!(
            text,
            "var sum: u32 = 0;\nfor k in 0..{digits} {{\nlet place = l * {digits} + k;\nlet count = counters[place];\n\
             counters[place] = sum;\nsum = sum + count;\n}}\nruns[l] = sum;\nbarrier;"
        );
        let (mut distance, mut from, mut to) = (1, 0, lanes);
        while distance < lanes {
            let _ = writeln!(
                text,
                "if l >= {distance} {{\nruns[l + {to}] = runs[l + {from}] + runs[l + {from} - {distance}];\n}} else {{\n\
                 runs[l + {to}] = runs[l + {from}];\n}}\nbarrier;"
            );
            distance *= 2;
            std::mem::swap(&mut from, &mut to);
        }
        let _ = writeln!(
            text,
            "if l > 0 {{\nlet before = runs[l + {from} - 1];\nfor k in 0..{digits} {{\nlet place = l * {digits} + k;\n\
             counters[place] = counters[place] + before;\n}}\n}}\nbarrier;\n\
             for d in l..{digits} step {lanes} {{\nbases[d] = starts[d * blocks + group] - counters[d * {lanes}];\n}}\nbarrier;"
        );
        let _ = writeln!(
            text,
            "for k in 0..{items} {{\nlet own = l * {items} + k;\nlet i = start + own;\nif i < n {{\nlet place = ({}) * {lanes} + l;\n\
             let at = counters[place];\ncounters[place] = at + 1;\norder[at] = own;\n}}\n}}\nbarrier;",
            self.digit("keys[i]")
        );
        let _ = writeln!(
            text,
            "let here = min(n - start, {});\nfor j in l..here step {lanes} {{\nlet from = start + order[j];\nlet key = keys[from];\n\
             let to = bases[{}] + j;\nout[to] = key;",
            lanes * items,
            self.digit("key")
        );
        if self.value_type.is_some() {
            text.push_str("out_values[to] = values[from];\n");
        }
        text.push_str("}\n}\n}\n");
        text
    }
}
