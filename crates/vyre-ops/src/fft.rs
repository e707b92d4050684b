//! The discrete Fourier transform of complex numbers, for lengths whose prime factors are 2, 3, 5 and 7.
//!
//! A workgroup takes one transform, or several short ones, and keeps it in workgroup memory between stages of radices 8, 4, 2, 7, 5 and 3
//! (Stockham's order, which needs no reversal of bits). The first stage reads from the buffer, the last one writes to it. Longer transforms are
//! tables: columns are transformed, turned by their place, and then rows (Bailey's four steps), in two passes.

mod butterflies;
mod stages;

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex, PoisonError};

use vyre::expression::Term;
use vyre::{Buffer, DataType, Engine, Error};

use crate::launch::{self, MOST, Traits, engine, extents, misfit, misfit_with, mistyped};
use crate::output::Output;
use stages::{Layout, Pass};

/// Points of a transform that a workgroup keeps: with memory of this many bytes, and everywhere.
const LONG: (usize, u64) = (4096, 35 << 10);
const SHORT: usize = 1024;
/// Points of several columns, with memory of this many bytes: three such workgroups are on a multiprocessor.
const COLUMNS: (usize, u64) = (8192, 3 * (64 << 10));
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
        return Ok(Output { buffer: launch::room(&engine, &ty, 0), ty, shape });
    }
    if batches * n * 2 > MOST {
        return Err(misfit(format!("{} elements are more than are taken at once, which is {MOST}", batches * n * 2)));
    }
    let traits = Traits::of(&engine);
    let most = if traits.memory >= LONG.1 { LONG.0 } else { SHORT };
    // Several columns are kept at once.
    let room = match traits.memory {
        memory if traits.is_gpu && memory >= COLUMNS.1 => COLUMNS.0,
        memory if memory >= LONG.1 => LONG.0 * 3 / 2,
        _ => SHORT,
    };
    let source = term.evaluate()?;
    if let (true, Some(radices)) = (n <= most, radices(n)) {
        let row = Layout { transform: n, index: 1, by_index: true };
        let pass = Pass {
            radices,
            per_batch: 1,
            batch: n,
            from: row,
            to: row,
            turned: None,
            swapped: inverse,
            scale: inverse.then_some(n),
            room,
        };
        let out = pass.run(&engine, &traits, &source, &table(&engine, &[n])?, batches)?;
        return Ok(Output { buffer: out, ty, shape });
    }
    let Some([long, short]) = split(n, most) else {
        let message = format!(
            "no Fourier transform of {n} points: it takes products of 2, 3, 5 and 7 of up to {most}, and products of two of these"
        );
        let takes = |next: &usize| (*next <= most && radices(*next).is_some()) || split(*next, most).is_some();
        let fix = match (n + 1..=most * most).find(takes) {
            Some(next) => format!("Put zeros behind the points; the next length that it takes is {next}."),
            None => format!("Cut the points into transforms of up to {} each.", most * most),
        };
        return Err(misfit_with(message, fix));
    };
    let (Some(a), Some(b)) = (radices(long), radices(short)) else { return Err(misfit(format!("no radices of {n}"))) };
    // Columns of a table with `long` rows of `short`, then its rows.
    let column = Layout { transform: 1, index: short, by_index: false };
    let pass = Pass {
        radices: a,
        per_batch: short,
        batch: n,
        from: column,
        to: column,
        turned: Some(n),
        swapped: inverse,
        scale: None,
        room,
    };
    let turned = pass.run(&engine, &traits, &source, &table(&engine, &[long, n])?, batches * short)?;
    let (from, to) =
        (Layout { transform: short, index: 1, by_index: true }, Layout { transform: 1, index: long, by_index: false });
    let pass = Pass {
        radices: b,
        per_batch: long,
        batch: n,
        from,
        to,
        turned: None,
        swapped: inverse,
        scale: inverse.then_some(n),
        room,
    };
    let out = pass.run(&engine, &traits, &turned, &table(&engine, &[short])?, batches * long)?;
    Ok(Output { buffer: out, ty, shape })
}

/// The radices of the stages, where there are some.
fn radices(n: usize) -> Option<Vec<usize>> {
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

/// Two factors of about the same size that have radices.
fn split(n: usize, most: usize) -> Option<[usize; 2]> {
    let first = (1..=most).rfind(|one| n.is_multiple_of(*one) && one * one <= n)?;
    let both = [n / first, first];
    (both[0] <= most && both.iter().all(|one| radices(*one).is_some())).then_some(both)
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
