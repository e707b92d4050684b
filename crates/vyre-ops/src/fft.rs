//! The discrete Fourier transform of complex numbers, for lengths whose prime factors are 2, 3, 5 and 7.
//!
//! A workgroup takes one transform, or several short ones, and keeps it in workgroup memory between stages of radices 32, 16, 8, 4, 2, 7, 5 and 3
//! (Stockham's order, which needs no reversal of bits). The first stage reads from the buffer, the last one writes to it. Longer transforms are
//! tables: columns are transformed, turned by their place, and then rows (Bailey's four steps), in two passes. Where columns would be too long
//! for several of them to be in workgroup memory at once, rows are tables themselves, in three passes.

mod butterflies;
#[cfg(target_arch = "x86_64")]
mod host;
mod stages;

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};

use vyre::expression::Term;
use vyre::{Buffer, DataType, Diagnostic, Engine, Error, codes};

use crate::launch::{MOST, Traits, as_a_whole, engine, extents, magnitude, misfit, misfit_with, mistyped, room};
use crate::output::Output;
use stages::{Layout, Pass, Point};

/// Points of a transform that a workgroup keeps: with memory of this many bytes, and everywhere.
const LONG: (usize, u64) = (4096, 35 << 10);
const SHORT: usize = 1024;
/// The most points of a workgroup of a GPU, with memory of this many bytes: a whole multiprocessor's, and still faster than two passes.
const WHOLE: (usize, u64) = (16384, 128 << 10);
/// Points of several columns, with memory of this many bytes: three such workgroups are on a multiprocessor.
const COLUMNS: (usize, u64) = (8192, 3 * (64 << 10));
/// The longest columns of which enough are in workgroup memory at once for neighbours to fill what memory gives.
const LONG_COLUMN: usize = 2048;
/// Bytes of points between two passes for each thread of a processor, so that they stay in its own cache.
const BETWEEN: usize = 1 << 20;
/// Tables of angles that are remembered.
const MOST_TABLES: usize = 32;
/// Angles of the second pass are put together of two: the first of so many neighbours.
const NEIGHBOURS: usize = 4096;

/// Along the last axis but one of `[.., n, 2]`, real and imaginary parts side by side. The inverse is divided by `n`.
pub(crate) fn fft(term: &Term, inverse: bool) -> Result<Output, Error> {
    let ty = term.data_type().clone();
    if ty != DataType::F32 {
        return Err(mistyped(format!("the Fourier transform is of f32, not of {ty}")));
    }
    let shape = extents(term)?;
    let [batch @ .., n, 2] = &shape[..] else {
        let message = format!("the Fourier transform is of complex numbers, [.., n, 2], not of {shape:?}");
        return Err(misfit(message));
    };
    let (batches, n) = (batch.iter().product::<usize>(), *n);
    let engine = engine(term)?;
    if batches * n == 0 {
        return Ok(Output { buffer: room(&engine, &ty, 0), ty, shape });
    }
    if batches * n * 2 > MOST {
        return Err(misfit(format!("{} elements are more than are taken at once, which is {MOST}", batches * n * 2)));
    }
    // Transforms of as many stages, or nearly, take as long for each point.
    let op = || format!("fft of 2^{} and more", magnitude(n) / 4 * 4);
    let buffer = as_a_whole(op, &[term], batches * n, || transformed(&engine, term, inverse, [n, batches]))?;
    Ok(Output { buffer, ty, shape })
}

fn transformed(engine: &Engine, term: &Term, inverse: bool, [n, batches]: [usize; 2]) -> Result<Buffer, Error> {
    let traits = Traits::of(engine);
    let most = if traits.memory >= LONG.1 { LONG.0 } else { SHORT };
    let one_pass = match traits.is_gpu && traits.memory >= WHOLE.1 && n.is_power_of_two() {
        true => WHOLE.0,
        false => most,
    };
    // Several columns are kept at once.
    let room = match traits.memory {
        memory if traits.is_gpu && memory >= COLUMNS.1 => COLUMNS.0,
        memory if memory >= LONG.1 => LONG.0 * 3 / 2,
        _ => SHORT,
    };
    let source = term.evaluate()?;
    let transform = Transform { engine, traits, inverse, n, batches, room };
    if let (true, Some(radices)) = (n <= one_pass, radices(n)) {
        let pass = transform.pass(radices, [1, n], [Layout::rows(n); 2]);
        let scaled = Pass { scale: inverse.then_some(n), ..pass };
        return scaled.run(engine, &traits, &source, &table(engine, &[n])?, batches);
    }
    match factors(n, most) {
        Some(Factors::Two(both)) => transform.two(&source, both),
        Some(Factors::Three(all)) => transform.three(&source, all),
        // Another device may have more room.
        None if most < LONG.0 && engine.place().is_some() => {
            let message = format!("a transform of {n} points needs more workgroup memory than the device has");
            Err(Diagnostic::new(&codes::backend::UNSUPPORTED_FEATURE, message).into())
        }
        None => Err(no_transform(n, most)),
    }
}

fn no_transform(n: usize, most: usize) -> Error {
    let message = format!(
        "no Fourier transform of {n} points: it takes products of 2, 3, 5 and 7 of up to {most}, and products of two or three of these"
    );
    let takes = |next: &usize| radices(*next).is_some() && (*next <= most || factors(*next, most).is_some());
    let fix = match (n + 1..=MOST / 2).find(takes) {
        Some(next) => format!("Put zeros behind the points; the next length that it takes is {next}."),
        None => format!("Cut the points into transforms of up to {} each.", MOST / 2),
    };
    misfit_with(message, fix)
}

/// A long transform and what runs it.
struct Transform<'a> {
    engine: &'a Engine,
    traits: Traits,
    inverse: bool,
    n: usize,
    batches: usize,
    room: usize,
}

impl Transform<'_> {
    /// A pass with so many transforms in a batch of so many points, from one layout to another.
    fn pass(&self, radices: Vec<usize>, [per_batch, batch]: [usize; 2], [from, to]: [Layout; 2]) -> Pass {
        let (swapped, room) = (self.inverse, self.room);
        Pass { radices, per_batch, batch, from, to, turned: None, swapped, scale: None, room }
    }

    /// Columns of tables with `long` rows of `short`, turned by their place.
    fn columns_pass(&self, long: usize, short: usize) -> Result<Pass, Error> {
        let n = long * short;
        let column = Layout { transform: 1, index: short, by_index: false, runs: None };
        Ok(Pass { turned: Some(n), ..self.pass(self.radices(long)?, [short, n], [column; 2]) })
    }

    fn columns(&self, source: &Buffer, long: usize, short: usize, tables: usize) -> Result<Buffer, Error> {
        let n = long * short;
        let pass = self.columns_pass(long, short)?;
        pass.run(self.engine, &self.traits, source, &table(self.engine, &[long, n])?, tables * short)
    }

    /// The last pass: rows of so many points, whose results lie apart.
    fn rows_pass(&self, points: usize, from: Layout) -> Result<Pass, Error> {
        let all = self.n / points;
        let to = Layout { transform: 1, index: all, by_index: false, runs: None };
        let pass = self.pass(self.radices(points)?, [all, self.n], [from, to]);
        Ok(Pass { scale: self.inverse.then_some(self.n), ..pass })
    }

    fn rows(&self, source: &Buffer, points: usize, from: Layout) -> Result<Buffer, Error> {
        let pass = self.rows_pass(points, from)?;
        let transforms = self.batches * (self.n / points);
        pass.run(self.engine, &self.traits, source, &table(self.engine, &[points])?, transforms)
    }

    fn two(&self, source: &Buffer, [long, short]: [usize; 2]) -> Result<Buffer, Error> {
        let together = (BETWEEN * self.traits.threads / (self.n * size_of::<Point>())).max(1);
        if !self.traits.is_gpu && self.traits.threads > 0 && together < self.batches {
            return self.two_in_turn(source, [long, short], together);
        }
        let turned = self.columns(source, long, short, self.batches)?;
        self.rows(&turned, short, Layout::rows(short))
    }

    /// Both passes for some of the batches at a time, so that what is between them stays in the caches.
    fn two_in_turn(&self, source: &Buffer, [long, short]: [usize; 2], together: usize) -> Result<Buffer, Error> {
        let Transform { engine, traits, n, batches, .. } = self;
        let (columns, rows) = (self.columns_pass(long, short)?, self.rows_pass(short, Layout::rows(short))?);
        let tables = [table(engine, &[long, *n])?, table(engine, &[short])?];
        let x = source.clone().into_array::<Point>()?;
        let points = |batches: usize| room(engine, &DataType::F32, batches * n * 2).into_array::<Point>();
        let (mut turned, mut out) = (points(together)?, points(*batches)?);
        for first in (0..*batches).step_by(together) {
            let count = together.min(batches - first);
            let own = first * n..(first + count) * n;
            columns.run_between(engine, traits, x.slice(own.clone())?, &tables[0], turned.slice_mut(..count * n)?)?;
            rows.run_between(engine, traits, turned.slice(..count * n)?, &tables[1], out.slice_mut(own)?)?;
        }
        Ok(out.into_buffer())
    }

    /// Rows of the first table are tables themselves. Rows of those that have the same number lie beside each other in the result.
    fn three(&self, source: &Buffer, [first, long, short]: [usize; 3]) -> Result<Buffer, Error> {
        let turned = self.columns(source, first, long * short, self.batches)?;
        let again = self.columns(&turned, long, short, self.batches * first)?;
        let from = Layout { transform: long * short, index: 1, by_index: true, runs: Some((first, short)) };
        self.rows(&again, short, from)
    }

    fn radices(&self, points: usize) -> Result<Vec<usize>, Error> {
        radices(points).ok_or_else(|| misfit(format!("no radices of {points}")))
    }
}

impl Layout {
    /// Transforms of so many points, one behind the other.
    fn rows(points: usize) -> Layout {
        Layout { transform: points, index: 1, by_index: true, runs: None }
    }
}

/// The radices of the stages, where there are some. Long transforms have fewer stages, of 16 points.
fn radices(n: usize) -> Option<Vec<usize>> {
    match n {
        2048 => return Some(vec![8, 16, 16]),
        // Of 32 points: fewer exchanges and angles.
        4096 => return Some(vec![4, 32, 32]),
        8192 => return Some(vec![8, 32, 32]),
        16384 => return Some(vec![16, 32, 32]),
        _ => {}
    }
    let (mut rest, mut all) = (n, Vec::new());
    for prime in [7, 5, 3] {
        while rest.is_multiple_of(prime) {
            rest /= prime;
            all.push(prime);
        }
    }
    if !rest.is_power_of_two() {
        return None;
    }
    let twos = rest.trailing_zeros() as usize;
    let (eights, fours, two) = match twos % 3 {
        0 => (twos / 3, 0, 0),
        1 if twos > 1 => (twos / 3 - 1, 2, 0),
        1 => (0, 0, 1),
        _ => (twos / 3, 1, 0),
    };
    all.extend([2].repeat(two));
    all.extend([4].repeat(fours));
    all.extend([8].repeat(eights));
    if all.is_empty() {
        all.push(1);
    }
    Some(all)
}

/// Of a length that is too long for one pass.
enum Factors {
    Two([usize; 2]),
    Three([usize; 3]),
}

/// Two factors, or three where columns would be too long or two would be too large.
fn factors(n: usize, most: usize) -> Option<Factors> {
    let two = split(n, most);
    match two {
        Some(two) if two[0] <= LONG_COLUMN => Some(Factors::Two(two)),
        _ => three(n, LONG_COLUMN.min(most)).map(Factors::Three).or(two.map(Factors::Two)),
    }
}

/// Two factors of about the same size that have radices.
fn split(n: usize, most: usize) -> Option<[usize; 2]> {
    let first = (1..=most).rfind(|one| n.is_multiple_of(*one) && one * one <= n)?;
    let both = [n / first, first];
    (both[0] <= most && both.iter().all(|one| radices(*one).is_some())).then_some(both)
}

/// Three factors of about the same size that have radices.
fn three(n: usize, most: usize) -> Option<[usize; 3]> {
    let fits = |one: &usize| n.is_multiple_of(*one) && one * one * one <= n && radices(*one).is_some();
    (1..=most).rev().filter(fits).find_map(|one| split(n / one, most).map(|[long, short]| [one, long, short]))
}

/// Angles `exp(-2πi·m/n)`: all of the first length; of the second one so many neighbours, and then steps over these.
fn table(engine: &Engine, lengths: &[usize]) -> Result<Buffer, Error> {
    static KNOWN: Mutex<BTreeMap<Vec<usize>, Arc<[f32]>>> = Mutex::new(BTreeMap::new());
    // Whole tables are put in and taken out, so a panic elsewhere leaves none that is wrong.
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known().get(lengths).cloned();
    let table = found.unwrap_or_else(|| {
        let mut all: Vec<f32> = (0..lengths[0]).flat_map(|m| angle(m, lengths[0])).collect();
        if let Some(&n) = lengths.get(1) {
            all.extend((0..NEIGHBOURS).flat_map(|m| angle(m, n)));
            all.extend((0..=n / NEIGHBOURS).flat_map(|m| angle(m * NEIGHBOURS, n)));
        }
        let table: Arc<[f32]> = all.into();
        let mut known = known();
        if known.len() >= MOST_TABLES {
            known.clear();
        }
        known.insert(lengths.to_vec(), table.clone());
        table
    });
    Ok(engine.array(&table)?.into_buffer())
}

/// `exp(-2πi·m/n)`.
fn angle(m: usize, n: usize) -> [f32; 2] {
    let turn = -2.0 * PI * m as f64 / n as f64;
    [turn.cos() as f32, turn.sin() as f32]
}
