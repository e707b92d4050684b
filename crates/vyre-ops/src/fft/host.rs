//! A pass as processors make it: as many transforms side by side as a register has numbers, in place, with the arithmetic of the kernels.

#![allow(
    unsafe_code,
    reason = "instructions that not every processor has, and results whose parts lie between those of others"
)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "blocks in unsafe functions stand on what their callers promise")]
#![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

use std::arch::x86_64::{__m256, __m512};
use std::cell::RefCell;
use std::sync::OnceLock;

use vyre::variant::{HostSlice, Variant, Workers};

use super::stages::{Layout, Pass};
use super::{BETWEEN, NEIGHBOURS, angle};
use crate::host::{pieces_of_a_part, room_for, variant, words};
use crate::lanes::{Lanes, Shared, goes_past, soon_read, written};

/// Points of a transform that are worth it.
const FEWEST: usize = 16;
/// The largest butterflies that there are functions for.
const MOST_RADIX: usize = 32;
/// The most points of a table whose turns are all kept.
const MOST_TURNS: usize = 1 << 17;

/// The pass as a function, where the processor has registers for it.
pub(super) fn side_by_side(pass: &Pass) -> Option<Variant> {
    let plan = Plan::of(pass)?;
    let run = if __m512::are_here() {
        run_wide
    } else if __m256::are_here() {
        run_narrow
    } else {
        return None;
    };
    Some(variant("transforms side by side", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        let [x, _, sizes, out] = buffers else { panic!("a pass has four buffers, not {}", buffers.len()) };
        let transforms = words(sizes.bytes()).next().unwrap_or(0) as usize;
        let bytes = transforms.div_ceil(plan.per_batch) * plan.batch * size_of::<[f32; 2]>();
        assert!(x.bytes().len() >= bytes && out.bytes().len() >= bytes, "{transforms} transforms need {bytes} bytes");
        let (x, out) =
            (Shared::of(x.bytes().as_ptr().cast_mut().cast()), Shared::of(out.bytes_mut().as_mut_ptr().cast()));
        // SAFETY: the processor has the instructions; both have as many points as transforms have, of which no two share any in `out`, which is
        // this function's alone.
        unsafe { run(&plan, x, out, transforms, workers) };
    }))
}

/// What is known of a pass before there are points.
struct Plan {
    points: usize,
    per_batch: usize,
    batch: usize,
    from: Layout,
    to: Layout,
    swapped: bool,
    scale: Option<f32>,
    stages: Vec<Stage>,
    /// Where each result is, as stages write to where they read.
    places: Vec<u32>,
    turned: Option<Turned>,
}

/// Butterflies of one radix.
struct Stage {
    radix: usize,
    before: usize,
    /// Where the points of each butterfly are.
    places: Vec<u32>,
    /// The powers of its angle from 1 on, for each place among the butterflies before; none in the first stage.
    turns: Vec<[f32; 2]>,
}

/// By what results are turned: angles of neighbours, and of steps over these.
struct Turned {
    near: Vec<[f32; 2]>,
    far: Vec<[f32; 2]>,
    /// For so many columns and each of their results, where there are not too many.
    known: OnceLock<Vec<f32>>,
}

impl Plan {
    fn of(pass: &Pass) -> Option<Plan> {
        let n: usize = pass.radices.iter().product();
        let Pass { per_batch, batch, from, to, .. } = *pass;
        let fits = |layout: Layout| layout.furthest(per_batch) + (n - 1) * layout.index < batch;
        let knows = |radix: &usize| *radix <= MOST_RADIX;
        if n < FEWEST || !pass.radices.iter().all(knows) || !fits(from) || !fits(to) || to.runs.is_some() {
            return None;
        }
        let mut places: Vec<u32> = (0..n as u32).collect();
        let (mut before, mut stages) = (1, Vec::new());
        for &radix in &pass.radices {
            let mut next = places.clone();
            let mut of_butterflies = Vec::with_capacity(n);
            for j in 0..n / radix {
                let k = j % before;
                for i in 0..radix {
                    let place = places[j + i * (n / radix)];
                    of_butterflies.push(place);
                    next[(j - k) * radix + k + i * before] = place;
                }
            }
            let turns = match before {
                1 => Vec::new(),
                _ => (0..before).flat_map(|k| powers(k * (n / (before * radix)), n, radix)).collect(),
            };
            stages.push(Stage { radix, before, places: of_butterflies, turns });
            places = next;
            before *= radix;
        }
        let turned = pass.turned.map(Turned::of);
        let scale = pass.scale.map(|count| (1.0 / count as f64) as f32);
        Some(Plan { points: n, per_batch, batch, from, to, swapped: pass.swapped, scale, stages, places, turned })
    }

    /// Where a transform begins.
    fn start(&self, layout: &Layout, transform: usize) -> usize {
        transform / self.per_batch * self.batch + layout.begin(transform % self.per_batch)
    }
}

impl Layout {
    /// Where a transform of a batch begins.
    fn begin(&self, transform: usize) -> usize {
        match self.runs {
            None => transform * self.transform,
            Some((count, step)) => transform % count * self.transform + transform / count * step,
        }
    }

    /// The last of the places where so many transforms begin.
    fn furthest(&self, transforms: usize) -> usize {
        match self.runs {
            None => (transforms - 1) * self.transform,
            Some((count, step)) => (count - 1) * self.transform + (transforms - 1) / count * step,
        }
    }
}

/// As kernels multiply complex numbers.
fn product([a, b]: [f32; 2], [c, d]: [f32; 2]) -> [f32; 2] {
    [a.mul_add(c, -(b * d)), a.mul_add(d, b * c)]
}

/// The powers from 1 on of an angle: those of 1, 2, 4 and 8 are exact, and others are products of these.
fn powers(m: usize, n: usize, count: usize) -> Vec<[f32; 2]> {
    let mut all: Vec<[f32; 2]> = vec![[1.0, 0.0]];
    for power in 1..count {
        let highest = 1 << power.ilog2();
        all.push(if power == highest { angle(m * power, n) } else { product(all[highest], all[power - highest]) });
    }
    all.split_off(1)
}

#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn run_wide(plan: &Plan, x: Shared, out: Shared, transforms: usize, workers: &dyn Workers) {
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn groups(work: &Work<'_>, transforms: std::ops::Range<usize>) {
        unsafe { work.groups::<__m512>(transforms) }
    }
    // SAFETY: what the caller has promised.
    unsafe { in_parts::<__m512>(Work { plan, x, out, past: false }, transforms, workers, groups) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn run_narrow(plan: &Plan, x: Shared, out: Shared, transforms: usize, workers: &dyn Workers) {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn groups(work: &Work<'_>, transforms: std::ops::Range<usize>) {
        unsafe { work.groups::<__m256>(transforms) }
    }
    // SAFETY: what the caller has promised.
    unsafe { in_parts::<__m256>(Work { plan, x, out, past: false }, transforms, workers, groups) }
}

/// Gives parts of the transforms to threads.
unsafe fn in_parts<V: Lanes>(
    work: Work<'_>,
    transforms: usize,
    workers: &dyn Workers,
    groups: unsafe fn(&Work<'_>, std::ops::Range<usize>),
) {
    let bytes = work.plan.points * size_of::<[f32; 2]>();
    // What is turned is read again by the next pass.
    // Results of rows that lie apart are part of a larger one where they are as many as are made at a time.
    let is_part = work.plan.to.index != 1 && transforms * bytes >= BETWEEN * workers.threads();
    let past = work.plan.turned.is_none() && (is_part || goes_past(transforms * bytes, workers.threads()));
    let work = Work { past: past && work.out.is_at_line(), ..work };
    let each = pieces_of_a_part(transforms.div_ceil(V::COUNT), V::COUNT * bytes, workers) * V::COUNT;
    workers.run(transforms.div_ceil(each), &|part| {
        // SAFETY: these transforms are this part's alone.
        unsafe { groups(&work, part * each..transforms.min((part + 1) * each)) }
        written();
    });
}

struct Work<'a> {
    plan: &'a Plan,
    x: Shared,
    out: Shared,
    /// Results go past the caches.
    past: bool,
}

/// Transforms side by side.
struct Group {
    first: usize,
    /// As many as there are; lanes behind them have the last one.
    count: usize,
    /// What comes next.
    next: usize,
}

thread_local! {
    /// Room for the points of a group, and for their turns.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Numbers of a line of memory.
const LINE: usize = 16;

impl Work<'_> {
    /// Nothing that works on registers is in a closure, because those are not compiled for their instructions.
    #[inline(always)]
    unsafe fn groups<V: Lanes>(&self, transforms: std::ops::Range<usize>) {
        let numbers = 2 * V::COUNT * self.plan.points;
        let mut room = ROOM.take();
        if room.len() < 2 * numbers + LINE {
            room = room_for(0.0, 2 * numbers + LINE);
        }
        let skipped = room.as_ptr().align_offset(4 * LINE).min(LINE);
        let (points, turns) = room[skipped..].split_at_mut(numbers);
        for first in transforms.clone().step_by(V::COUNT) {
            let next = if first + 2 * V::COUNT <= transforms.end { first + V::COUNT } else { first };
            let group = Group { first, count: V::COUNT.min(transforms.end - first), next };
            unsafe { self.group::<V>(&group, points, turns) }
        }
        ROOM.set(room);
    }

    #[inline(always)]
    unsafe fn group<V: Lanes>(&self, group: &Group, points: &mut [f32], turns: &mut [f32]) {
        let plan = self.plan;
        let room = points.as_mut_ptr();
        unsafe {
            self.read::<V>(group, room);
            #[allow(clippy::manual_map, reason = "not in a closure, see above")]
            let turns = match &plan.turned {
                Some(turned) => Some(turned.of_group::<V>(plan, group, turns)),
                None => None,
            };
            let last = plan.stages.len() - 1;
            for (at, stage) in plan.stages.iter().enumerate() {
                let end = End { turns: turns.filter(|_| at == last), scale: plan.scale.filter(|_| at == last) };
                match stage.radix {
                    2 => stage.run::<V, 2>(room, &end, two),
                    3 => stage.run::<V, 3>(room, &end, odd),
                    4 => stage.run::<V, 4>(room, &end, four),
                    5 => stage.run::<V, 5>(room, &end, odd),
                    7 => stage.run::<V, 7>(room, &end, odd),
                    8 => stage.run::<V, 8>(room, &end, eight),
                    16 => stage.run::<V, 16>(room, &end, sixteen),
                    _ => stage.run::<V, 32>(room, &end, thirty_two),
                }
            }
            self.write::<V>(group, room);
        }
    }

    /// Where the transforms of a group begin.
    #[inline(always)]
    fn starts<V: Lanes>(&self, group: &Group, layout: &Layout) -> [usize; 16] {
        let mut starts = [0; 16];
        for (lane, start) in starts.iter_mut().enumerate().take(V::COUNT) {
            *start = self.plan.start(layout, group.first + lane.min(group.count - 1));
        }
        starts
    }

    /// All points of a group, real parts of all transforms before imaginary ones.
    #[inline(always)]
    unsafe fn read<V: Lanes>(&self, group: &Group, room: *mut f32) {
        let Plan { points, from, .. } = *self.plan;
        let starts = self.starts::<V>(group, &from);
        let next = self.starts::<V>(&Group { first: group.next, ..*group }, &from);
        let (n, half) = (V::COUNT, V::COUNT / 2);
        // Where real and imaginary parts change places.
        let [real, imaginary] = if self.plan.swapped { [n, 0] } else { [0, n] };
        unsafe {
            if from.index == 1 {
                for at in (0..points / half * half).step_by(half) {
                    let mut rows = [V::splat(0.0); 16];
                    for lane in 0..n {
                        rows[lane] = V::load(self.x.at(2 * (starts[lane] + at)));
                        soon_read(self.x.at(2 * (next[lane] + at)));
                    }
                    V::transpose(&mut rows);
                    for i in 0..half {
                        let to = room.add(2 * n * (at + i));
                        rows[2 * i].store(to.add(real));
                        rows[2 * i + 1].store(to.add(imaginary));
                    }
                }
            } else if are_neighbours::<V>(group, &starts) {
                for at in 0..points {
                    let start = self.x.at(2 * (starts[0] + at * from.index));
                    let [re, im] = V::apart(V::load(start), V::load(start.add(n)));
                    let soon = self.x.at(2 * (next[0] + at * from.index));
                    soon_read(soon);
                    soon_read(soon.add(n));
                    let to = room.add(2 * n * at);
                    re.store(to.add(real));
                    im.store(to.add(imaginary));
                }
            }
            for at in rest::<V>(group, &starts, &from, points) {
                for (lane, start) in starts.iter().enumerate().take(n) {
                    let (point, to) = (self.x.at(2 * (start + at * from.index)), room.add(2 * n * at + lane));
                    *to.add(real) = *point;
                    *to.add(imaginary) = *point.add(1);
                }
            }
        }
    }

    /// All results of a group to their places.
    #[inline(always)]
    unsafe fn write<V: Lanes>(&self, group: &Group, room: *const f32) {
        let Plan { points, to, ref places, .. } = *self.plan;
        let starts = self.starts::<V>(group, &to);
        let (n, half) = (V::COUNT, V::COUNT / 2);
        let [real, imaginary] = if self.plan.swapped { [n, 0] } else { [0, n] };
        let past = self.past
            && starts[..n].iter().take(if to.index == 1 { n } else { 1 }).all(|start| start.is_multiple_of(LINE / 2))
            && (to.index == 1 || to.index.is_multiple_of(LINE / 2));
        unsafe {
            let place = |at: usize| room.add(2 * n * *places.get_unchecked(at) as usize);
            if to.index == 1 {
                for at in (0..points / half * half).step_by(half) {
                    let mut rows = [V::splat(0.0); 16];
                    for i in 0..half {
                        let from = place(at + i);
                        rows[2 * i] = V::load(from.add(real));
                        rows[2 * i + 1] = V::load(from.add(imaginary));
                    }
                    V::transpose(&mut rows);
                    for lane in 0..group.count {
                        let row = self.out.at(2 * (starts[lane] + at));
                        if past { rows[lane].store_past(row) } else { rows[lane].store(row) }
                    }
                }
            } else if are_neighbours::<V>(group, &starts) {
                for at in 0..points {
                    let from = place(at);
                    let [low, high] = V::in_turn(V::load(from.add(real)), V::load(from.add(imaginary)));
                    let start = self.out.at(2 * (starts[0] + at * to.index));
                    if past {
                        low.store_past(start);
                        high.store_past(start.add(n));
                    } else {
                        low.store(start);
                        high.store(start.add(n));
                    }
                }
            }
            for at in rest::<V>(group, &starts, &to, points) {
                for (lane, start) in starts.iter().enumerate().take(group.count) {
                    let (from, point) = (place(at).add(lane), self.out.at(2 * (start + at * to.index)));
                    *point = *from.add(real);
                    *point.add(1) = *from.add(imaginary);
                }
            }
        }
    }
}

/// The points of a group's transforms lie side by side.
fn are_neighbours<V: Lanes>(group: &Group, starts: &[usize; 16]) -> bool {
    group.count == V::COUNT && starts[..V::COUNT].iter().enumerate().all(|(lane, start)| *start == starts[0] + lane)
}

/// Points that are not moved as whole registers.
fn rest<V: Lanes>(group: &Group, starts: &[usize; 16], layout: &Layout, points: usize) -> std::ops::Range<usize> {
    let half = V::COUNT / 2;
    match layout.index {
        1 => points / half * half..points,
        _ if are_neighbours::<V>(group, starts) => points..points,
        _ => 0..points,
    }
}

impl Turned {
    fn of(all: usize) -> Turned {
        let near = (0..NEIGHBOURS).map(|m| angle(m, all)).collect();
        let far = (0..=all / NEIGHBOURS).map(|m| angle(m * NEIGHBOURS, all)).collect();
        Turned { near, far, known: OnceLock::new() }
    }

    /// By what the results of a group are turned: real and imaginary parts for all lanes, result after result.
    #[inline(always)]
    unsafe fn of_group<V: Lanes>(&self, plan: &Plan, group: &Group, room: &mut [f32]) -> *const f32 {
        let per_group = 2 * V::COUNT * plan.points;
        let column = group.first % plan.per_batch;
        let is_kept = plan.per_batch * plan.points <= MOST_TURNS && plan.per_batch.is_multiple_of(V::COUNT);
        if !is_kept || !column.is_multiple_of(V::COUNT) {
            unsafe { self.fill::<V>(plan, column, &mut room[..per_group]) };
            return room.as_ptr();
        }
        if self.known.get().is_none() {
            let mut all = room_for(0.0, 2 * plan.per_batch * plan.points);
            for (at, all) in all.chunks_mut(per_group).enumerate() {
                unsafe { self.fill::<V>(plan, at * V::COUNT, all) };
            }
            // Where several threads begin, all have the same.
            let _ = self.known.set(all);
        }
        match self.known.get() {
            Some(known) => known[column / V::COUNT * per_group..][..per_group].as_ptr(),
            None => unreachable!("it was set"),
        }
    }

    /// Turned by the first place of a butterfly, and by as many steps as there are between it and their own.
    #[inline(always)]
    unsafe fn fill<V: Lanes>(&self, plan: &Plan, column: usize, to: &mut [f32]) {
        let Some(Stage { radix, before, .. }) = plan.stages.last() else { return };
        let mut columns = [0; 16];
        for (lane, own) in columns.iter_mut().enumerate() {
            *own = (column + lane) % plan.per_batch;
        }
        unsafe {
            let mut steps = [Complex::zero(); 4];
            for (bit, step) in steps.iter_mut().enumerate().filter(|(bit, _)| 1 << bit < *radix) {
                *step = self.angle::<V>(&columns, before << bit);
            }
            for j in 0..*before {
                let first = self.angle::<V>(&columns, j);
                for i in 0..*radix {
                    let mut turn = first;
                    for (bit, step) in steps.iter().enumerate() {
                        if i >> bit & 1 == 1 {
                            turn = turn.times(*step);
                        }
                    }
                    turn.store(to[2 * V::COUNT * (j + i * before)..][..2 * V::COUNT].as_mut_ptr());
                }
            }
        }
    }

    /// The angles of columns, so many times.
    #[inline(always)]
    unsafe fn angle<V: Lanes>(&self, columns: &[usize; 16], by: usize) -> Complex<V> {
        let mut parts = [[0.0f32; 16]; 4];
        for (lane, column) in columns.iter().enumerate().take(V::COUNT) {
            let (near, far) = (self.near[column * by % NEIGHBOURS], self.far[column * by / NEIGHBOURS]);
            parts[0][lane] = near[0];
            parts[1][lane] = near[1];
            parts[2][lane] = far[0];
            parts[3][lane] = far[1];
        }
        unsafe {
            let [a, b, c, d] = [0, 1, 2, 3].map(|part| parts[part].as_ptr());
            let (near, far) = (Complex { re: V::load(a), im: V::load(b) }, Complex { re: V::load(c), im: V::load(d) });
            near.times(far)
        }
    }
}

/// What is done to the results of the last stage.
struct End {
    turns: Option<*const f32>,
    scale: Option<f32>,
}

impl Stage {
    #[inline(always)]
    unsafe fn run<V: Lanes, const R: usize>(
        &self,
        room: *mut f32,
        end: &End,
        transform: impl Fn([Complex<V>; R]) -> [Complex<V>; R],
    ) {
        let mut k = 0;
        for (j, places) in self.places.as_chunks::<R>().0.iter().enumerate() {
            unsafe {
                let place = |i: usize| room.add(2 * V::COUNT * places[i] as usize);
                let mut points = [Complex::zero(); R];
                for i in 0..R {
                    points[i] = Complex::load(place(i));
                }
                if !self.turns.is_empty() {
                    let turns = self.turns.as_ptr().add(k * (R - 1));
                    for i in 1..R {
                        points[i] = points[i].times(Complex::splat(*turns.add(i - 1)));
                    }
                }
                let mut points = transform(points);
                if let Some(turns) = end.turns {
                    for i in 0..R {
                        points[i] = points[i].times(Complex::load(turns.add(2 * V::COUNT * (j + i * self.before))));
                    }
                }
                if let Some(scale) = end.scale {
                    let scale = V::splat(scale);
                    for point in &mut points {
                        *point = Complex { re: point.re.times(scale), im: point.im.times(scale) };
                    }
                }
                for i in 0..R {
                    points[i].store(place(i));
                }
            }
            k = if k + 1 == self.before { 0 } else { k + 1 };
        }
    }
}

/// Complex numbers of several transforms.
#[derive(Clone, Copy)]
struct Complex<V> {
    re: V,
    im: V,
}

/// As kernels compute. Callers promise what [`Lanes`] asks for.
impl<V: Lanes> Complex<V> {
    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Complex { re: V::splat(0.0), im: V::splat(0.0) } }
    }

    #[inline(always)]
    unsafe fn splat([re, im]: [f32; 2]) -> Self {
        unsafe { Complex { re: V::splat(re), im: V::splat(im) } }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        unsafe { Complex { re: V::load(from), im: V::load(from.add(V::COUNT)) } }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe {
            self.re.store(to);
            self.im.store(to.add(V::COUNT));
        }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        unsafe { Complex { re: self.re.plus(other.re), im: self.im.plus(other.im) } }
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        unsafe { Complex { re: self.re.minus(other.re), im: self.im.minus(other.im) } }
    }

    #[inline(always)]
    unsafe fn times(self, by: Self) -> Self {
        unsafe {
            Complex {
                re: self.re.times_minus(by.re, self.im.times(by.im)),
                im: self.re.times_plus(by.im, self.im.times(by.re)),
            }
        }
    }

    /// Times `exp(-2πi/4)`.
    #[inline(always)]
    unsafe fn quarter(self) -> Self {
        unsafe { Complex { re: self.im, im: self.re.negated() } }
    }

    /// Sums and differences of two halves.
    #[inline(always)]
    unsafe fn halves<const H: usize, const N: usize>(even: [Self; H], odd: [Self; H]) -> [Self; N] {
        unsafe {
            let mut all = [Self::zero(); N];
            for m in 0..H {
                all[m] = even[m].plus(odd[m]);
                all[H + m] = even[m].minus(odd[m]);
            }
            all
        }
    }
}

// Transforms of a few points, as the kernels make them: those of even and of odd points, the latter turned.

#[inline(always)]
fn two<V: Lanes>([a, b]: [Complex<V>; 2]) -> [Complex<V>; 2] {
    // SAFETY: this and what follows is called by a stage alone, whose caller has promised it.
    unsafe { [a.plus(b), a.minus(b)] }
}

#[inline(always)]
fn four<V: Lanes>([a, b, c, d]: [Complex<V>; 4]) -> [Complex<V>; 4] {
    let (even, [zero, one]) = (two([a, c]), two([b, d]));
    // SAFETY: as above.
    unsafe { Complex::halves(even, [zero, one.quarter()]) }
}

#[inline(always)]
fn eight<V: Lanes>([a, b, c, d, e, f, g, h]: [Complex<V>; 8]) -> [Complex<V>; 8] {
    let (even, mut odd) = (four([a, c, e, g]), four([b, d, f, h]));
    // SAFETY: as above.
    unsafe {
        odd[1] = odd[1].times(Complex::splat(EIGHTHS[1]));
        odd[2] = odd[2].quarter();
        odd[3] = odd[3].times(Complex::splat(EIGHTHS[3]));
        Complex::halves(even, odd)
    }
}

#[inline(always)]
fn sixteen<V: Lanes>(all: [Complex<V>; 16]) -> [Complex<V>; 16] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = all;
    let (even, mut odd) = (eight([a, c, e, g, i, k, m, o]), eight([b, d, f, h, j, l, n, p]));
    // SAFETY: as above.
    unsafe {
        for m in 1..8 {
            odd[m] = if m == 4 { odd[m].quarter() } else { odd[m].times(Complex::splat(SIXTEENTHS[m])) };
        }
        Complex::halves(even, odd)
    }
}

#[inline(always)]
fn thirty_two<V: Lanes>(all: [Complex<V>; 32]) -> [Complex<V>; 32] {
    // SAFETY: as above.
    unsafe {
        let (mut even, mut odd) = ([Complex::zero(); 16], [Complex::zero(); 16]);
        for m in 0..16 {
            even[m] = all[2 * m];
            odd[m] = all[2 * m + 1];
        }
        (even, odd) = (sixteen(even), sixteen(odd));
        for m in 1..16 {
            odd[m] = if m == 8 { odd[m].quarter() } else { odd[m].times(Complex::splat(THIRTY_SECONDS[m])) };
        }
        Complex::halves(even, odd)
    }
}

/// Points that stand opposite each other share their products.
#[inline(always)]
fn odd<V: Lanes, const N: usize>(points: [Complex<V>; N]) -> [Complex<V>; N] {
    // SAFETY: as above.
    unsafe {
        let (mut sums, mut differences) = ([Complex::zero(); 3], [Complex::zero(); 3]);
        for j in 1..=N / 2 {
            sums[j - 1] = points[j].plus(points[N - j]);
            differences[j - 1] = points[j].minus(points[N - j]);
        }
        let mut all = points;
        for sum in &sums[..N / 2] {
            all[0] = all[0].plus(*sum);
        }
        for k in 1..=N / 2 {
            let (mut near, mut far) = (points[0], Complex::zero());
            for j in 0..N / 2 {
                let [cos, sin] = match N {
                    3 => THIRDS[(j + 1) * k % N],
                    5 => FIFTHS[(j + 1) * k % N],
                    _ => SEVENTHS[(j + 1) * k % N],
                };
                let (cos, sin) = (V::splat(cos), V::splat(sin));
                let (sum, difference) = (sums[j], differences[j]);
                near = Complex { re: cos.times_plus(sum.re, near.re), im: cos.times_plus(sum.im, near.im) };
                far = match j {
                    0 => Complex { re: sin.times(difference.re), im: sin.times(difference.im) },
                    _ => {
                        Complex { re: sin.times_plus(difference.re, far.re), im: sin.times_plus(difference.im, far.im) }
                    }
                };
            }
            // `near - i·far` and its mirror image.
            all[k] = Complex { re: near.re.plus(far.im), im: near.im.minus(far.re) };
            all[N - k] = Complex { re: near.re.minus(far.im), im: near.im.plus(far.re) };
        }
        all
    }
}

/// `exp(-2πi·m/n)`, for those `m` that butterflies have.
const EIGHTHS: [[f32; 2]; 4] = [[1.0, 0.0], [0.70710677, -0.70710677], [0.0, -1.0], [-0.70710677, -0.70710677]];
const SIXTEENTHS: [[f32; 2]; 8] = [
    [1.0, 0.0],
    [0.9238795, -0.38268343],
    [0.70710677, -0.70710677],
    [0.38268343, -0.9238795],
    [0.0, -1.0],
    [-0.38268343, -0.9238795],
    [-0.70710677, -0.70710677],
    [-0.9238795, -0.38268343],
];
const THIRTY_SECONDS: [[f32; 2]; 16] = [
    [1.0, 0.0],
    [0.98078525, -0.19509032],
    [0.9238795, -0.38268343],
    [0.8314696, -0.55557024],
    [0.70710677, -0.70710677],
    [0.55557024, -0.8314696],
    [0.38268343, -0.9238795],
    [0.19509032, -0.98078525],
    [0.0, -1.0],
    [-0.19509032, -0.98078525],
    [-0.38268343, -0.9238795],
    [-0.55557024, -0.8314696],
    [-0.70710677, -0.70710677],
    [-0.8314696, -0.55557024],
    [-0.9238795, -0.38268343],
    [-0.98078525, -0.19509032],
];
/// `exp(2πi·m/n)`.
const THIRDS: [[f32; 2]; 3] = [[1.0, 0.0], [-0.5, 0.8660254], [-0.5, -0.8660254]];
const FIFTHS: [[f32; 2]; 5] =
    [[1.0, 0.0], [0.309017, 0.95105654], [-0.809017, 0.58778524], [-0.809017, -0.58778524], [0.309017, -0.95105654]];
const SEVENTHS: [[f32; 2]; 7] = [
    [1.0, 0.0],
    [0.6234898, 0.7818315],
    [-0.22252093, 0.9749279],
    [-0.90096885, 0.43388373],
    [-0.90096885, -0.43388373],
    [-0.22252093, -0.9749279],
    [0.6234898, -0.7818315],
];

#[cfg(test)]
mod tests {
    use super::super::{radices, table};
    use super::*;
    use crate::host::Several;

    #[test]
    fn angles_are_those_of_kernels() {
        let near = |found: [f32; 2], m: usize, n: usize, sign: f64| {
            let turn = sign * 2.0 * std::f64::consts::PI * m as f64 / n as f64;
            let is_quarter = (4 * m).is_multiple_of(n);
            assert!(is_quarter || found == [turn.cos() as f32, turn.sin() as f32], "{m} of {n}: {found:?}");
        };
        for (all, n, sign) in [
            (&EIGHTHS[..], 8, -1.0),
            (&SIXTEENTHS[..], 16, -1.0),
            (&THIRTY_SECONDS[..], 32, -1.0),
            (&THIRDS[..], 3, 1.0),
            (&FIFTHS[..], 5, 1.0),
            (&SEVENTHS[..], 7, 1.0),
        ] {
            all.iter().enumerate().for_each(|(m, found)| near(*found, m, n, sign));
        }
    }

    /// Numbers of several magnitudes, and both zeros.
    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 0x9e37_79b9u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        let number = |at: usize, unit: f32| match at % 11 {
            0 => 0.0,
            3 => -0.0,
            5 => unit * 1e10,
            _ => unit,
        };
        (0..count).map(|at| number(at, next())).collect()
    }

    type Run = unsafe fn(&Plan, Shared, Shared, usize, &dyn Workers);

    fn check(pass: &Pass, transforms: usize, lengths: &[usize]) {
        let engine = vyre::Engine::builder().without_disk().open().expect("the engine opens");
        let traits = crate::launch::Traits { is_gpu: false, ..crate::launch::Traits::of(&engine) };
        let x = numbers(transforms.div_ceil(pass.per_batch) * pass.batch * 2);
        let given = engine.array(&x).expect("x").into_buffer();
        let angles = table(&engine, lengths).expect("angles");
        let expected = pass.run_with(&engine, &traits, &given, &angles, transforms, false).expect("it runs");
        let expected: Vec<u32> = words(&expected.to_vec().expect("results")).collect();
        let ways: [(bool, Run); 2] = [(__m512::are_here(), run_wide), (__m256::are_here(), run_narrow)];
        for (_, run) in ways.into_iter().filter(|(is_here, _)| *is_here) {
            // Turns are kept for registers of one width.
            let plan = Plan::of(pass).expect("a plan");
            for threads in [1, 3] {
                let mut out = vec![f32::NAN; x.len()];
                let [from, to] = [x.as_ptr().cast_mut(), out.as_mut_ptr()].map(Shared::of);
                // SAFETY: there are as many points as transforms have, and the instructions.
                unsafe { run(&plan, from, to, transforms, &Several(threads)) };
                let differ = out.iter().zip(&expected).position(|(out, wanted)| out.to_bits() != *wanted);
                assert_eq!(differ, None, "{transforms} of {pass:?}");
            }
        }
    }

    fn pass(n: usize, [per_batch, batch]: [usize; 2], [from, to]: [Layout; 2]) -> Pass {
        let radices = radices(n).expect("radices");
        Pass { radices, per_batch, batch, from, to, turned: None, swapped: false, scale: None, room: 6144 }
    }

    #[test]
    fn rows_have_the_bits_of_kernels() {
        for n in [16, 20, 25, 49, 64, 81, 105, 128, 256, 600, 1024, 2048, 4096] {
            let rows = pass(n, [1, n], [Layout::rows(n); 2]);
            check(&rows, 16, &[n]);
            check(&Pass { swapped: true, scale: Some(n), ..rows }, 37, &[n]);
        }
    }

    #[test]
    fn columns_have_the_bits_of_kernels() {
        for (long, short) in [(16, 16), (128, 128), (60, 45), (256, 1024), (2048, 48)] {
            let n = long * short;
            let column = Layout { transform: 1, index: short, by_index: false, runs: None };
            let columns = Pass { turned: Some(n), ..pass(long, [short, n], [column; 2]) };
            check(&columns, short, &[long, n]);
            check(&Pass { swapped: true, ..columns }, 3 * short, &[long, n]);
            let to = Layout { transform: 1, index: long, by_index: false, runs: None };
            if short >= FEWEST {
                check(&pass(short, [long, n], [Layout::rows(short), to]), 2 * long, &[short]);
            }
        }
        // The last pass of three.
        let [first, long, short] = [20, 16, 24];
        let from = Layout { transform: long * short, index: 1, by_index: true, runs: Some((first, short)) };
        let to = Layout { transform: 1, index: first * long, by_index: false, runs: None };
        check(&pass(short, [first * long, first * long * short], [from, to]), 2 * first * long, &[short]);
    }
}
