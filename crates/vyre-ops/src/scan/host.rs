//! Sums of arrays as processors scan them, in the order of the kernels: of 32 neighbouring runs the values are put together by doubling distances,
//! everything else from first to last.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::yield_now;

use vyre::DataType;
use vyre::variant::{HostSlice, Variant, Workers};

use super::{Before, Cut, ITEMS, SPAN, SUBGROUP, Scan};
use crate::fold::Kind;
use crate::host::{Cell, in_chunks, pieces_of_a_part, variant, words};
use crate::launch::grid;

/// Elements of a group of runs.
pub(super) const GROUP: usize = ITEMS * SUBGROUP;

/// The scans that there are functions for, of arrays as they are.
pub(super) fn takes(scan: &Scan<'_>) -> bool {
    let each = match scan.fold.ty {
        DataType::F32 => "out[AT] = PREFIX + 0.0;",
        DataType::F64 => "out[AT] = PREFIX + 0.0f64;",
        DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 => "out[AT] = PREFIX;",
        _ => return false,
    };
    scan.fold.kind == Kind::Sum && scan.terms.len() == 1 && scan.each == each && scan.end.is_empty()
}

/// The sum of each chunk.
pub(super) fn totals(ty: &DataType, cut: Cut) -> Variant {
    let function = match ty {
        DataType::F32 => totals_of::<4, f32>,
        DataType::F64 => totals_of::<8, f64>,
        DataType::U64 | DataType::I64 => totals_of::<8, u64>,
        _ => totals_of::<4, u32>,
    };
    variant("sums of groups", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        function(buffers, workers, cut);
    })
}

/// The sum up to each element, where those before each chunk are known, or found on the way.
pub(super) fn scanned(scan: &Scan<'_>, cut: Cut, before: Before) -> Variant {
    if before == Before::LookBack {
        let function = match (&scan.fold.ty, scan.inclusive) {
            (DataType::F32, true) => scan_once::<f32, true>,
            (DataType::F32, false) => scan_once::<f32, false>,
            (_, true) => scan_once::<u32, true>,
            (_, false) => scan_once::<u32, false>,
        };
        return variant("scan in one pass", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
            function(buffers, workers, cut);
        });
    }
    let function = match (&scan.fold.ty, scan.inclusive) {
        (DataType::F32, true) => scan_of::<4, f32, true>,
        (DataType::F32, false) => scan_of::<4, f32, false>,
        (DataType::F64, true) => scan_of::<8, f64, true>,
        (DataType::F64, false) => scan_of::<8, f64, false>,
        (DataType::U64 | DataType::I64, true) => scan_of::<8, u64, true>,
        (DataType::U64 | DataType::I64, false) => scan_of::<8, u64, false>,
        (_, true) => scan_of::<4, u32, true>,
        (_, false) => scan_of::<4, u32, false>,
    };
    variant("scan of groups", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        function(buffers, workers, cut);
    })
}

/// A number of `N` bytes that is summed.
pub(super) trait Number<const N: usize>: Copy + Send + Sync {
    /// What changes nothing when it is put to something.
    const NEUTRAL: Self;

    fn of(bytes: [u8; N]) -> Self;

    fn bytes(self) -> [u8; N];

    fn plus(self, other: Self) -> Self;

    /// As it is stored: the sum of nothing is 0.
    fn stored(self) -> [u8; N];

    /// The sum of a chunk.
    fn chunk_total(x: &[[u8; N]], cut: Cut) -> Self {
        plain_total(x, cut)
    }

    /// Scans a chunk behind what is before it.
    fn scan_chunk<const INCLUSIVE: bool>(x: &[[u8; N]], carry: Self, cut: Cut, out: &mut [[u8; N]]) {
        plain_scan::<N, Self, INCLUSIVE>(x, carry, cut, out);
    }
}

macro_rules! float {
    ($ty:ty, $bytes:literal $(, $wide:item)*) => {
        impl Number<$bytes> for $ty {
            const NEUTRAL: $ty = -0.0;

            fn of(bytes: [u8; $bytes]) -> $ty {
                <$ty>::from_le_bytes(bytes)
            }

            fn bytes(self) -> [u8; $bytes] {
                self.to_le_bytes()
            }

            fn plus(self, other: $ty) -> $ty {
                self + other
            }

            fn stored(self) -> [u8; $bytes] {
                (self + 0.0).to_le_bytes()
            }

            $(
                #[cfg(target_arch = "x86_64")]
                $wide
            )*
        }
    };
}

macro_rules! whole {
    ($ty:ty, $bytes:literal) => {
        impl Number<$bytes> for $ty {
            const NEUTRAL: $ty = 0;

            fn of(bytes: [u8; $bytes]) -> $ty {
                <$ty>::from_le_bytes(bytes)
            }

            fn bytes(self) -> [u8; $bytes] {
                self.to_le_bytes()
            }

            fn plus(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }

            fn stored(self) -> [u8; $bytes] {
                self.to_le_bytes()
            }
        }
    };
}

float!(
    f32,
    4,
    fn chunk_total(x: &[[u8; 4]], cut: Cut) -> f32 {
        super::wide::chunk_total(x, cut)
    },
    fn scan_chunk<const INCLUSIVE: bool>(x: &[[u8; 4]], carry: f32, cut: Cut, out: &mut [[u8; 4]]) {
        super::wide::scan_chunk::<INCLUSIVE>(x, carry, cut, out);
    }
);
float!(f64, 8);
whole!(u32, 4);
whole!(u64, 8);

/// Rows and the chunks that they are cut into.
struct Rows {
    along: usize,
    chunks: usize,
    /// Chunks of all rows.
    all: usize,
    chunk: usize,
}

impl Rows {
    fn of(sizes: &[u8], cut: Cut) -> Option<Rows> {
        let mut sizes = words(sizes).map(|size| size as usize);
        Some(Rows { along: sizes.next()?, chunks: sizes.next()?, all: sizes.next()?, chunk: cut.chunk() })
    }

    /// Where a chunk begins, or the last one ends.
    fn start(&self, chunk: usize) -> usize {
        chunk / self.chunks * self.along + chunk % self.chunks * self.chunk
    }

    fn elements(&self) -> usize {
        self.all / self.chunks * self.along
    }

    /// The results of each so many chunks. Each part is locked once, by whom its number was given to.
    fn parts<'a, T>(&self, mut out: &'a mut [T], each: usize) -> Vec<Mutex<&'a mut [T]>> {
        let mut parts = Vec::new();
        for first in (0..self.all).step_by(each) {
            let (part, rest) = out.split_at_mut(self.start(self.all.min(first + each)) - self.start(first));
            parts.push(Mutex::new(part));
            out = rest;
        }
        parts
    }
}

/// Bytes of a part that is read, waits for the part before it, and is read again, so that it is still in the caches.
const IN_CACHE: usize = 256 << 10;
/// How often a thread looks whether the part before is done, before it lets others work.
const LOOKS: usize = 1 << 10;

/// One pass: parts are taken in their order, and each is told by the one before it what is before it. A part adds up its chunks before it waits,
/// and tells the next before it scans them, so that only a few additions are done one after the other.
fn scan_once<T: Number<4>, const INCLUSIVE: bool>(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, cut: Cut) {
    let [x, sizes, states, out] = buffers else { panic!("a scan has four buffers, not {}", buffers.len()) };
    let spans = words(sizes.bytes()).nth(3).unwrap_or(0) as usize;
    let Some(rows) = Rows::of(sizes.bytes(), cut) else { panic!("a scan has four sizes") };
    let x = &x.bytes().as_chunks::<4>().0[..rows.elements()];
    let out = &mut out.bytes_mut().as_chunks_mut::<4>().0[..rows.elements()];
    let states = AtomicU64::all(states.bytes_mut());
    // What the kernel leaves there: how many chunks were taken, the value of each chunk, and that of everything up to each whole span.
    let told = |at: usize, known: u64, value: T| {
        states[at].put((known << 32 | u64::from(u32::from_le_bytes(value.bytes()))).to_le_bytes());
    };
    states[0].put(grid(rows.all).iter().map(|&groups| u64::from(groups)).product::<u64>().to_le_bytes());
    let each = pieces_of_a_part(rows.all, rows.chunk * 4, workers).min((IN_CACHE / (rows.chunk * 4)).max(1));
    let parts = rows.parts(out, each);
    let (next, carried) = (AtomicUsize::new(0), parts.iter().map(|_| Carried::default()).collect::<Vec<_>>());
    workers.run(parts.len(), &|_| {
        // Whoever has a number goes on to its end, so that all before it are done at some time.
        let part = next.fetch_add(1, Ordering::Relaxed);
        let tells = Tells(&carried[part]);
        let chunks = part * each..rows.all.min((part + 1) * each);
        let x_of = |chunk: usize| &x[rows.start(chunk)..rows.start(chunk + 1)];
        let mut carries: Vec<T> = chunks.clone().map(|chunk| T::chunk_total(x_of(chunk), cut)).collect();
        let [mut before, mut inside] = match part {
            0 => [T::NEUTRAL; 2],
            _ => carried[part - 1].wait(),
        };
        for (chunk, carry) in chunks.clone().zip(&mut carries) {
            let (row, own) = (chunk / rows.chunks, chunk % rows.chunks);
            if own == 0 {
                [before, inside] = [T::NEUTRAL; 2];
            }
            let total = std::mem::replace(carry, before.plus(inside));
            told(chunk + 1, 1, total);
            inside = inside.plus(total);
            if own % SPAN == SPAN - 1 {
                before = before.plus(inside);
                inside = T::NEUTRAL;
                told(rows.all + 1 + row * spans + own / SPAN, 2, before);
            }
        }
        tells.that([before, inside]);
        let mut out = parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        let first = rows.start(chunks.start);
        for (chunk, carry) in chunks.zip(carries) {
            let (start, end) = (rows.start(chunk) - first, rows.start(chunk + 1) - first);
            T::scan_chunk::<INCLUSIVE>(x_of(chunk), carry, cut, &mut out[start..end]);
        }
    });
}

/// What is before the next part: the spans before its own, and the chunks before it in its own.
#[derive(Default)]
struct Carried {
    state: AtomicU8,
    values: AtomicU64,
}

const KNOWN: u8 = 1;
const BROKEN: u8 = 2;

impl Carried {
    fn wait<T: Number<4>>(&self) -> [T; 2] {
        for look in 0.. {
            match self.state.load(Ordering::Acquire) {
                KNOWN => break,
                BROKEN => panic!("the part before this one was not scanned"),
                _ if look % LOOKS == LOOKS - 1 => yield_now(),
                _ => spin_loop(),
            }
        }
        let [a, b, c, d, e, f, g, h] = self.values.load(Ordering::Relaxed).to_le_bytes();
        [T::of([a, b, c, d]), T::of([e, f, g, h])]
    }
}

/// Tells the next part, or that it never will.
struct Tells<'a>(&'a Carried);

impl Tells<'_> {
    fn that<T: Number<4>>(self, values: [T; 2]) {
        let [low, high] = values.map(|value| u64::from(u32::from_le_bytes(value.bytes())));
        self.0.values.store(high << 32 | low, Ordering::Relaxed);
        self.0.state.store(KNOWN, Ordering::Release);
    }
}

impl Drop for Tells<'_> {
    fn drop(&mut self) {
        // Nobody else writes it.
        if self.0.state.load(Ordering::Relaxed) != KNOWN {
            self.0.state.store(BROKEN, Ordering::Release);
        }
    }
}

fn totals_of<const N: usize, T: Number<N>>(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, cut: Cut) {
    let [x, sizes, totals] = buffers else { return };
    let Some(rows) = Rows::of(sizes.bytes(), cut) else { return };
    let Some(x) = x.bytes().as_chunks::<N>().0.get(..rows.elements()) else { return };
    let Some(totals) = totals.bytes_mut().as_chunks_mut::<N>().0.get_mut(..rows.all) else { return };
    let each = pieces_of_a_part(rows.all, rows.chunk * N, workers);
    in_chunks(totals, each, workers, |part, totals| {
        for (chunk, total) in (part * each..).zip(totals) {
            *total = T::chunk_total(&x[rows.start(chunk)..rows.start(chunk + 1)], cut).bytes();
        }
    });
}

/// Tiles are put together from first to last, and so are the groups of a tile.
pub(super) fn plain_total<const N: usize, T: Number<N>>(x: &[[u8; N]], cut: Cut) -> T {
    x.chunks(cut.tile()).fold(T::NEUTRAL, |before, tile| {
        let (groups, rest) = tile.as_chunks::<GROUP>();
        let mut sum = groups.iter().fold(T::NEUTRAL, |sum, group| sum.plus(group_total(group)));
        if !rest.is_empty() {
            sum = sum.plus(group_total::<N, T>(&padded::<N, T>(rest)));
        }
        before.plus(sum)
    })
}

/// A group with neutral values behind what there is of it.
pub(super) fn padded<const N: usize, T: Number<N>>(rest: &[[u8; N]]) -> [[u8; N]; GROUP] {
    let mut group = [T::NEUTRAL.bytes(); GROUP];
    group[..rest.len()].copy_from_slice(rest);
    group
}

fn run_total<const N: usize, T: Number<N>>(run: &[[u8; N]; ITEMS]) -> T {
    run[1..].iter().fold(T::of(run[0]), |sum, value| sum.plus(T::of(*value)))
}

/// What doubling distances give for the last run: neighbours in pairs.
fn group_total<const N: usize, T: Number<N>>(group: &[[u8; N]; GROUP]) -> T {
    let runs = group.as_chunks::<ITEMS>().0;
    let mut sums: [T; SUBGROUP] = std::array::from_fn(|run| run_total(&runs[run]));
    let mut half = SUBGROUP / 2;
    while half > 0 {
        for at in 0..half {
            sums[at] = sums[2 * at].plus(sums[2 * at + 1]);
        }
        half /= 2;
    }
    sums[0]
}

fn scan_of<const N: usize, T: Number<N>, const INCLUSIVE: bool>(
    buffers: &mut [HostSlice<'_>],
    workers: &dyn Workers,
    cut: Cut,
) {
    let (x, sizes, offsets, out) = match buffers {
        [x, sizes, out] => (x, sizes, None, out),
        [x, sizes, offsets, out] => (x, sizes, Some(offsets.bytes().as_chunks::<N>().0), out),
        _ => return,
    };
    let Some(rows) = Rows::of(sizes.bytes(), cut) else { return };
    let Some(x) = x.bytes().as_chunks::<N>().0.get(..rows.elements()) else { return };
    let Some(out) = out.bytes_mut().as_chunks_mut::<N>().0.get_mut(..rows.elements()) else { return };
    if offsets.is_some_and(|offsets| offsets.len() < rows.all) {
        return;
    }
    let each = pieces_of_a_part(rows.all, rows.chunk * N, workers);
    let parts = rows.parts(out, each);
    workers.run(parts.len(), &|part| {
        let mut out = parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        let first = rows.start(part * each);
        for chunk in part * each..rows.all.min((part + 1) * each) {
            let (start, end) = (rows.start(chunk), rows.start(chunk + 1));
            let carry = offsets.map_or(T::NEUTRAL, |offsets| T::of(offsets[chunk]));
            T::scan_chunk::<INCLUSIVE>(&x[start..end], carry, cut, &mut out[start - first..end - first]);
        }
    });
}

pub(super) fn plain_scan<const N: usize, T: Number<N>, const INCLUSIVE: bool>(
    x: &[[u8; N]],
    carry: T,
    cut: Cut,
    out: &mut [[u8; N]],
) {
    let mut tiles = T::NEUTRAL;
    for (tile, out) in x.chunks(cut.tile()).zip(out.chunks_mut(cut.tile())) {
        let before = carry.plus(tiles);
        let mut groups = T::NEUTRAL;
        let (whole, rest) = tile.as_chunks::<GROUP>();
        let (whole_out, rest_out) = out.as_chunks_mut::<GROUP>();
        for (group, out) in whole.iter().zip(whole_out) {
            groups = groups.plus(scan_group::<N, T, INCLUSIVE>(group, before.plus(groups), out));
        }
        if !rest.is_empty() {
            let mut last = [T::NEUTRAL.bytes(); GROUP];
            let sum = scan_group::<N, T, INCLUSIVE>(&padded::<N, T>(rest), before.plus(groups), &mut last);
            rest_out.copy_from_slice(&last[..rest.len()]);
            groups = groups.plus(sum);
        }
        tiles = tiles.plus(groups);
    }
}

/// Puts the sum at a distance before each to it.
fn doubled<const N: usize, T: Number<N>>(from: &[T; 2 * SUBGROUP], to: &mut [T; 2 * SUBGROUP], distance: usize) {
    for at in SUBGROUP..2 * SUBGROUP {
        to[at] = from[at - distance].plus(from[at]);
    }
}

/// Scans a group behind what is before it, and gives its sum.
fn scan_group<const N: usize, T: Number<N>, const INCLUSIVE: bool>(
    group: &[[u8; N]; GROUP],
    before: T,
    out: &mut [[u8; N]; GROUP],
) -> T {
    // Neutral values stand before the runs, so that none has to ask whether there is one at a distance.
    let mut sums = [[T::NEUTRAL; 2 * SUBGROUP]; 2];
    let runs = group.as_chunks::<ITEMS>().0;
    for (sum, run) in sums[0][SUBGROUP..].iter_mut().zip(runs) {
        *sum = run_total(run);
    }
    let [one, other] = &mut sums;
    for distances in [[1, 2], [4, 8]] {
        doubled(one, other, distances[0]);
        doubled(other, one, distances[1]);
    }
    doubled(one, other, SUBGROUP / 2);
    let sums = other;
    for ((run, out), earlier) in runs.iter().zip(out.as_chunks_mut::<ITEMS>().0).zip(&sums[SUBGROUP - 1..]) {
        let before = before.plus(*earlier);
        let mut sum = T::of(run[0]);
        out[0] = if INCLUSIVE { before.plus(sum).stored() } else { before.stored() };
        for (at, value) in run.iter().enumerate().skip(1) {
            if !INCLUSIVE {
                out[at] = before.plus(sum).stored();
            }
            sum = sum.plus(T::of(*value));
            if INCLUSIVE {
                out[at] = before.plus(sum).stored();
            }
        }
    }
    sums[2 * SUBGROUP - 1]
}
