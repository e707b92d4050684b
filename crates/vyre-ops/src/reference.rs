//! What ops mean, in ordinary Rust: floats in f64, whole numbers wrapped to their type. Slow, and plain enough to be believed.

use vyre::DataType;

use crate::registry::Parameters;
use crate::stencil::Boundary;

/// Elements on the host, of any type.
#[derive(Clone, Debug, PartialEq)]
pub struct Plain {
    /// The type.
    pub ty: DataType,
    /// The extents, the slowest first.
    pub shape: Vec<usize>,
    /// The elements.
    pub numbers: Numbers,
}

/// Elements as the widest of their kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Whole numbers.
    Whole(Vec<i128>),
    /// Floats.
    Float(Vec<f64>),
}

/// Reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Sum,
    Product,
    Min,
    Max,
    Mean,
    Variance,
    ArgMin,
    ArgMax,
    Any,
    All,
}

impl Plain {
    /// Whole numbers, wrapped to a type.
    pub fn whole(ty: DataType, shape: Vec<usize>, numbers: Vec<i128>) -> Plain {
        let numbers = numbers.into_iter().map(|number| wrapped(&ty, number)).collect();
        Plain { ty, shape, numbers: Numbers::Whole(numbers) }
    }

    /// Floats.
    pub fn float(ty: DataType, shape: Vec<usize>, numbers: Vec<f64>) -> Plain {
        Plain { ty, shape, numbers: Numbers::Float(numbers) }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements at positions, in another shape.
    fn picked(&self, shape: Vec<usize>, at: &[Option<usize>]) -> Plain {
        let numbers = match &self.numbers {
            Numbers::Whole(all) => Numbers::Whole(at.iter().map(|at| at.map_or(0, |at| all[at])).collect()),
            Numbers::Float(all) => Numbers::Float(at.iter().map(|at| at.map_or(0.0, |at| all[at])).collect()),
        };
        Plain { ty: self.ty.clone(), shape, numbers }
    }

    fn compare(&self, a: usize, b: usize) -> std::cmp::Ordering {
        match &self.numbers {
            Numbers::Whole(all) => all[a].cmp(&all[b]),
            Numbers::Float(all) => all[a].total_cmp(&all[b]),
        }
    }
}

fn wrapped(ty: &DataType, number: i128) -> i128 {
    match ty {
        DataType::I32 => i128::from(number as i32),
        DataType::U64 => i128::from(number as u64),
        DataType::I64 => i128::from(number as i64),
        _ => i128::from(number as u32),
    }
}

fn largest(ty: &DataType) -> i128 {
    match ty {
        DataType::I32 => i128::from(i32::MAX),
        DataType::U64 => i128::from(u64::MAX),
        DataType::I64 => i128::from(i64::MAX),
        _ => i128::from(u32::MAX),
    }
}

fn smallest(ty: &DataType) -> i128 {
    match ty {
        DataType::I32 => i128::from(i32::MIN),
        DataType::I64 => i128::from(i64::MIN),
        _ => 0,
    }
}

/// The positions of the lines along an axis, or of all as one line, and the shape of what is left.
fn lines(shape: &[usize], axis: Option<usize>) -> (Vec<usize>, Vec<Vec<usize>>) {
    let Some(axis) = axis else { return (Vec::new(), vec![(0..shape.iter().product()).collect()]) };
    let (outer, along, inner): (usize, usize, usize) =
        (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product());
    let mut left = shape.to_vec();
    left.remove(axis);
    let mut lines = Vec::new();
    for o in 0..outer {
        for i in 0..inner {
            lines.push((0..along).map(|k| (o * along + k) * inner + i).collect());
        }
    }
    (left, lines)
}

pub(crate) fn reduce(x: &Plain, axis: Option<usize>, fold: Fold) -> Plain {
    let (shape, lines) = lines(&x.shape, axis);
    let words = |numbers: Vec<i128>| Plain::whole(DataType::U32, shape.clone(), numbers);
    let extreme = |line: &Vec<usize>, least: bool| {
        let better = |&a: &usize, &b: &usize| {
            let order = if least { x.compare(a, b) } else { x.compare(b, a) };
            order.then(a.cmp(&b))
        };
        line.iter().copied().min_by(better)
    };
    match fold {
        Fold::ArgMin | Fold::ArgMax => {
            let place = |line: &Vec<usize>| {
                let found = extreme(line, fold == Fold::ArgMin);
                found
                    .and_then(|at| line.iter().position(|&own| own == at))
                    .map_or(i128::from(u32::MAX), |at| at as i128)
            };
            return words(lines.iter().map(place).collect());
        }
        Fold::Any | Fold::All => {
            let is = |&at: &usize| match &x.numbers {
                Numbers::Whole(all) => all[at] != 0,
                Numbers::Float(all) => all[at] != 0.0,
            };
            let truth = |line: &Vec<usize>| if fold == Fold::Any { line.iter().any(is) } else { line.iter().all(is) };
            return words(lines.iter().map(|line| i128::from(truth(line))).collect());
        }
        _ => {}
    }
    match &x.numbers {
        Numbers::Whole(all) => {
            let one = |line: &Vec<usize>| {
                let numbers = line.iter().map(|&at| all[at]);
                match fold {
                    Fold::Sum => numbers.fold(0, |a, b| wrapped(&x.ty, a + b)),
                    Fold::Product => numbers.fold(1i128, |a, b| wrapped(&x.ty, a.wrapping_mul(b))),
                    Fold::Min => numbers.min().unwrap_or(largest(&x.ty)),
                    _ => numbers.max().unwrap_or(smallest(&x.ty)),
                }
            };
            Plain::whole(x.ty.clone(), shape, lines.iter().map(one).collect())
        }
        Numbers::Float(all) => {
            let one = |line: &Vec<usize>| {
                let numbers = || line.iter().map(|&at| all[at]);
                let count = line.len() as f64;
                match fold {
                    Fold::Sum => numbers().sum(),
                    Fold::Product => numbers().product(),
                    Fold::Min => numbers().fold(f64::INFINITY, f64::min),
                    Fold::Max => numbers().fold(f64::NEG_INFINITY, f64::max),
                    Fold::Mean => numbers().sum::<f64>() / count,
                    _ => {
                        let mean = numbers().sum::<f64>() / count;
                        numbers().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count
                    }
                }
            };
            Plain::float(x.ty.clone(), shape, lines.iter().map(one).collect())
        }
    }
}

pub(crate) fn scan(x: &Plain, axis: Option<usize>, inclusive: bool) -> Plain {
    let (_, lines) = lines(&x.shape, axis);
    match &x.numbers {
        Numbers::Whole(all) => {
            let mut sums = vec![0; all.len()];
            for line in &lines {
                let mut sum = 0;
                for &at in line {
                    let before = sum;
                    sum = wrapped(&x.ty, sum + all[at]);
                    sums[at] = if inclusive { sum } else { before };
                }
            }
            Plain::whole(x.ty.clone(), x.shape.clone(), sums)
        }
        Numbers::Float(all) => {
            let mut sums = vec![0.0; all.len()];
            for line in &lines {
                let mut sum = 0.0;
                for &at in line {
                    let before = sum;
                    sum += all[at];
                    sums[at] = if inclusive { sum } else { before };
                }
            }
            Plain::float(x.ty.clone(), x.shape.clone(), sums)
        }
    }
}

/// The rows along the first axis, from one to another.
fn part(x: &Plain, rows: std::ops::Range<usize>) -> Plain {
    let row: usize = x.shape[1..].iter().product();
    let mut shape = x.shape.clone();
    shape[0] = rows.len();
    x.picked(shape, &(rows.start * row..rows.end * row).map(Some).collect::<Vec<_>>())
}

/// One array behind the other along the first axis.
fn joined(parts: Vec<Plain>, ty: &DataType, shape: Vec<usize>) -> Plain {
    let (mut whole, mut float, mut is_float) = (Vec::new(), Vec::new(), false);
    for part in parts {
        match part.numbers {
            Numbers::Whole(all) => whole.extend(all),
            Numbers::Float(all) => {
                float.extend(all);
                is_float = true;
            }
        }
    }
    match is_float || crate::launch::is_float(ty) {
        true => Plain::float(ty.clone(), shape, float),
        false => Plain::whole(ty.clone(), shape, whole),
    }
}

fn whole(x: &Plain) -> Vec<usize> {
    match &x.numbers {
        Numbers::Whole(all) => all.iter().map(|&at| usize::try_from(at).unwrap_or(usize::MAX)).collect(),
        Numbers::Float(_) => Vec::new(),
    }
}

pub(crate) fn segments(x: &Plain, offsets: &Plain, fold: Fold) -> Plain {
    let bounds: Vec<usize> = whole(offsets).into_iter().map(|at| at.min(x.shape[0])).collect();
    let mut shape = x.shape.clone();
    shape[0] = bounds.len().saturating_sub(1);
    let one = |pair: &[usize]| reduce(&part(x, pair[0]..pair[1].max(pair[0])), Some(0), fold);
    joined(bounds.windows(2).map(one).collect(), &x.ty, shape)
}

pub(crate) fn scatter_add(x: &Plain, positions: &Plain, values: &Plain) -> Plain {
    let row: usize = x.shape[1..].iter().product();
    let mut result = x.clone();
    for (from, to) in whole(positions).into_iter().enumerate().filter(|&(_, to)| to < x.shape[0]) {
        for k in 0..row {
            match (&mut result.numbers, &values.numbers) {
                (Numbers::Whole(all), Numbers::Whole(more)) => {
                    all[to * row + k] = wrapped(&x.ty, all[to * row + k] + more[from * row + k]);
                }
                (Numbers::Float(all), Numbers::Float(more)) => all[to * row + k] += more[from * row + k],
                _ => {}
            }
        }
    }
    result
}

pub(crate) fn merge(a: &Plain, b: &Plain) -> Plain {
    let both = vec![a.len() + b.len()];
    sort(&joined(vec![a.clone(), b.clone()], &a.ty, both), false)
}

pub(crate) fn bounds(sorted: &Plain, x: &Plain, upper: bool) -> Plain {
    let is_before = |a: std::cmp::Ordering| a.is_lt() || upper && a.is_eq();
    let count = |at: usize| match (&sorted.numbers, &x.numbers) {
        (Numbers::Whole(all), Numbers::Whole(x)) => all.iter().filter(|own| is_before((**own).cmp(&x[at]))).count(),
        (Numbers::Float(all), Numbers::Float(x)) => all.iter().filter(|own| is_before(own.total_cmp(&x[at]))).count(),
        _ => 0,
    };
    Plain::whole(DataType::U32, x.shape.clone(), (0..x.len()).map(|at| count(at) as i128).collect())
}

fn order(x: &Plain, descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| if descending { x.compare(b, a) } else { x.compare(a, b) });
    order
}

pub(crate) fn sort(x: &Plain, descending: bool) -> Plain {
    let at: Vec<Option<usize>> = order(x, descending).into_iter().map(Some).collect();
    x.picked(vec![x.len()], &at)
}

pub(crate) fn top_k(x: &Plain, count: usize, axis: Option<usize>) -> Vec<Plain> {
    let mut shape = vec![count];
    if let Some(axis) = axis {
        shape = x.shape.clone();
        shape[axis] = count;
    }
    // How far apart neighbours along the axis are in the result.
    let inner: usize = axis.map_or(1, |axis| x.shape[axis + 1..].iter().product());
    let (mut at, mut positions) = (vec![None; shape.iter().product()], vec![0; shape.iter().product()]);
    for (number, line) in lines(&x.shape, axis).1.iter().enumerate() {
        let mut order: Vec<usize> = (0..line.len()).collect();
        order.sort_by(|&a, &b| x.compare(line[b], line[a]));
        for (place, &own) in order[..count].iter().enumerate() {
            let to = (number / inner * count + place) * inner + number % inner;
            (at[to], positions[to]) = (Some(line[own]), own as i128);
        }
    }
    vec![x.picked(shape.clone(), &at), Plain::whole(DataType::U32, shape, positions)]
}

pub(crate) fn unique(x: &Plain) -> Vec<Plain> {
    let is_first = |at: &usize| {
        *at == 0
            || match &x.numbers {
                Numbers::Whole(all) => all[*at] != all[*at - 1],
                Numbers::Float(all) => all[*at] != all[*at - 1],
            }
    };
    let firsts: Vec<usize> = (0..x.len()).filter(is_first).collect();
    let mut at: Vec<Option<usize>> = firsts.iter().copied().map(Some).collect();
    at.resize(x.len(), None);
    vec![x.picked(vec![x.len()], &at), Plain::whole(DataType::U32, Vec::new(), vec![firsts.len() as i128])]
}

pub(crate) fn histogram(x: &Plain, bins: usize) -> Plain {
    let mut counts = vec![0; bins];
    if let Numbers::Whole(all) = &x.numbers {
        for &number in all {
            if let Some(count) = usize::try_from(number).ok().and_then(|bin| counts.get_mut(bin)) {
                *count += 1;
            }
        }
    }
    Plain::whole(DataType::U32, vec![bins], counts)
}

/// Each row along the last axis by itself; of floats.
fn rows(x: &Plain, each: impl Fn(&[f64]) -> Vec<f64>) -> Plain {
    let Numbers::Float(all) = &x.numbers else { return x.clone() };
    let along = x.shape.last().copied().unwrap_or(1).max(1);
    let numbers = all.chunks(along).flat_map(each).collect();
    Plain::float(x.ty.clone(), x.shape.clone(), numbers)
}

pub(crate) fn softmax(x: &Plain, log: bool) -> Plain {
    rows(x, |row| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| if log { x - most - sum.ln() } else { (x - most).exp() / sum }).collect()
    })
}

pub(crate) fn norm(x: &Plain, epsilon: f64, centred: bool) -> Plain {
    rows(x, |row| {
        let count = row.len() as f64;
        let mean = if centred { row.iter().sum::<f64>() / count } else { 0.0 };
        let square = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        row.iter().map(|x| (x - mean) / (square + epsilon).sqrt()).collect()
    })
}

pub(crate) fn transpose(x: &Plain) -> Plain {
    let axes = x.shape.len();
    let (rows, columns) = (x.shape[axes - 2], x.shape[axes - 1]);
    let mut shape = x.shape.clone();
    shape.swap(axes - 1, axes - 2);
    let from = |at: usize| {
        let (matrix, within) = (at / (rows * columns), at % (rows * columns));
        Some(matrix * rows * columns + within % rows * columns + within / rows)
    };
    x.picked(shape, &(0..x.len()).map(from).collect::<Vec<_>>())
}

pub(crate) fn gather(x: &Plain, positions: &Plain) -> Plain {
    let row: usize = x.shape[1..].iter().product();
    let mut shape = positions.shape.clone();
    shape.extend(&x.shape[1..]);
    let Numbers::Whole(positions) = &positions.numbers else { return x.clone() };
    let at = positions.iter().flat_map(|&at| {
        (0..row).map(move |k| usize::try_from(at).ok().filter(|&at| at < x.shape[0]).map(|at| at * row + k))
    });
    x.picked(shape, &at.collect::<Vec<_>>())
}

pub(crate) fn matmul(a: &Plain, b: &Plain, bias: Option<&Plain>, parameters: &Parameters) -> Plain {
    let bias = |column: usize| match bias.map(|bias| &bias.numbers) {
        Some(Numbers::Float(bias)) => bias[column],
        _ => 0.0,
    };
    let scale = parameters.scale.unwrap_or(1.0);
    let (Numbers::Float(x), Numbers::Float(y)) = (&a.numbers, &b.numbers) else { return a.clone() };
    let axes = a.shape.len();
    let (m, k, n) = (a.shape[axes - 2], a.shape[axes - 1], b.shape[axes - 1]);
    let batches: usize = a.shape[..axes - 2].iter().product();
    let mut numbers = Vec::new();
    for batch in 0..batches {
        for row in 0..m {
            for column in 0..n {
                let products = (0..k).map(|d| x[(batch * m + row) * k + d] * y[(batch * k + d) * n + column]);
                let sum: f64 = products.sum();
                numbers.push(parameters.activation.plain(scale * sum + bias(column)));
            }
        }
    }
    let mut shape = a.shape[..axes - 2].to_vec();
    shape.extend([m, n]);
    Plain::float(a.ty.clone(), shape, numbers)
}

/// Element by element, with the second one repeated.
fn times(a: &Plain, b: &Plain) -> Plain {
    let count = b.len().max(1);
    match (&a.numbers, &b.numbers) {
        (Numbers::Whole(x), Numbers::Whole(y)) => {
            let products = x.iter().enumerate().map(|(at, x)| x.wrapping_mul(y[at % count])).collect();
            Plain::whole(a.ty.clone(), a.shape.clone(), products)
        }
        (Numbers::Float(x), Numbers::Float(y)) => {
            let products = x.iter().enumerate().map(|(at, x)| x * y[at % count]).collect();
            Plain::float(a.ty.clone(), a.shape.clone(), products)
        }
        _ => a.clone(),
    }
}

pub(crate) fn matvec(a: &Plain, x: &Plain) -> Plain {
    reduce(&times(a, x), Some(a.shape.len() - 1), Fold::Sum)
}

pub(crate) fn dot(a: &Plain, b: &Plain) -> Plain {
    reduce(&times(a, b), None, Fold::Sum)
}

pub(crate) fn attention(q: &Plain, k: &Plain, v: &Plain, causal: bool) -> Plain {
    let (Numbers::Float(queries), Numbers::Float(keys), Numbers::Float(values)) = (&q.numbers, &k.numbers, &v.numbers)
    else {
        return q.clone();
    };
    let axes = q.shape.len();
    let (m, n, dim) = (q.shape[axes - 2], k.shape[axes - 2], q.shape[axes - 1]);
    let mut numbers = Vec::with_capacity(queries.len());
    for (at, query) in queries.chunks(dim.max(1)).enumerate() {
        let start = at / m.max(1) * n;
        let seen = if causal { n.min(at % m.max(1) + 1) } else { n };
        let row = |of: &[f64], key: usize| of[(start + key) * dim..(start + key + 1) * dim].to_vec();
        let product = |key: usize| row(keys, key).iter().zip(query).map(|(a, b)| a * b).sum::<f64>();
        let scores: Vec<f64> = (0..seen).map(|key| product(key) / (dim as f64).sqrt()).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
        let mut result = vec![0.0; dim];
        for (key, score) in scores.iter().enumerate() {
            for (result, value) in result.iter_mut().zip(row(values, key)) {
                *result += (score - most).exp() / sum * value;
            }
        }
        numbers.extend(result);
    }
    Plain::float(q.ty.clone(), q.shape.clone(), numbers)
}

/// By its definition, but that the angles are those of a table.
pub(crate) fn fft(x: &Plain, inverse: bool) -> Plain {
    let Numbers::Float(all) = &x.numbers else { return x.clone() };
    let n = x.shape[x.shape.len() - 2];
    let way = if inverse { 1.0 } else { -1.0 };
    let turns: Vec<(f64, f64)> =
        (0..n).map(|m| (way * std::f64::consts::TAU * m as f64 / n as f64).sin_cos()).collect();
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    let mut numbers = Vec::with_capacity(all.len());
    for row in all.chunks(2 * n.max(1)) {
        for k in 0..n {
            let (mut re, mut im) = (0.0, 0.0);
            for (j, point) in row.chunks(2).enumerate() {
                let (sin, cos) = turns[j * k % n];
                re += point[0] * cos - point[1] * sin;
                im += point[0] * sin + point[1] * cos;
            }
            numbers.extend([re * scale, im * scale]);
        }
    }
    Plain::float(x.ty.clone(), x.shape.clone(), numbers)
}

/// Where a place is that may be outside, along an axis of so many.
pub(crate) fn inside(place: isize, end: usize, boundary: Boundary) -> Option<usize> {
    let last = end as isize - 1;
    match boundary {
        Boundary::Zero => usize::try_from(place).ok().filter(|place| *place < end),
        Boundary::Edge => Some(place.clamp(0, last) as usize),
        Boundary::Wrap => Some(place.rem_euclid(end as isize) as usize),
        Boundary::Reflect if last == 0 => Some(0),
        Boundary::Reflect => {
            let within = place.rem_euclid(2 * last);
            Some(within.min(2 * last - within) as usize)
        }
    }
}

pub(crate) fn stencil(x: &Plain, weights: &Plain, boundary: Boundary) -> Plain {
    let (Numbers::Float(all), Numbers::Float(by)) = (&x.numbers, &weights.numbers) else { return x.clone() };
    let three = |shape: &[usize]| match shape {
        [.., d, h, w] if weights.shape.len() == 3 => [*d, *h, *w],
        [.., h, w] => [1, *h, *w],
        _ => [1, 1, 1],
    };
    let ([d, h, w], [kd, kh, kw]) = (three(&x.shape), three(&weights.shape));
    let sum = |at: usize| {
        let (start, own) = (at / (d * h * w) * d * h * w, [at / (h * w) % d, at / w % h, at % w]);
        let mut sum = 0.0;
        for (k, weight) in by.iter().enumerate() {
            let from = [k / (kh * kw), k / kw % kh, k % kw];
            let place = |axis: usize, window: usize, end: usize| {
                inside(own[axis] as isize + from[axis] as isize - (window / 2) as isize, end, boundary)
            };
            if let (Some(z), Some(y), Some(x)) = (place(0, kd, d), place(1, kh, h), place(2, kw, w)) {
                sum += weight * all[start + (z * h + y) * w + x];
            }
        }
        sum
    };
    Plain::float(x.ty.clone(), x.shape.clone(), (0..all.len()).map(sum).collect())
}

pub(crate) fn convolution(x: &Plain, weights: &Plain, stride: usize, padding: usize) -> Plain {
    let (Numbers::Float(all), Numbers::Float(by)) = (&x.numbers, &weights.numbers) else { return x.clone() };
    let four = |shape: &[usize]| match *shape {
        [a, b, c, d] => [a, b, c, d],
        [.., c, d] => [1, 1, c, d],
        _ => [1, 1, 1, 1],
    };
    let ([n, c, h, w], [o, _, kh, kw]) = (four(&x.shape), four(&weights.shape));
    let (down, across) = ((h + 2 * padding - kh) / stride + 1, (w + 2 * padding - kw) / stride + 1);
    let mut numbers = Vec::new();
    for at in 0..n * o * down * across {
        let (image, output) = (at / (o * down * across), at / (down * across) % o);
        let mut sum = 0.0;
        for k in 0..c * kh * kw {
            let (channel, ky, kx) = (k / (kh * kw), k / kw % kh, k % kw);
            let y = (at / across % down * stride + ky).checked_sub(padding).filter(|y| *y < h);
            let x = (at % across * stride + kx).checked_sub(padding).filter(|x| *x < w);
            if let (Some(y), Some(x)) = (y, x) {
                sum += by[output * c * kh * kw + k] * all[((image * c + channel) * h + y) * w + x];
            }
        }
        numbers.push(sum);
    }
    let shape = if x.shape.len() == 2 { vec![down, across] } else { vec![n, o, down, across] };
    Plain::float(x.ty.clone(), shape, numbers)
}

pub(crate) fn accelerations(bodies: &Plain, epsilon: f64) -> Plain {
    let Numbers::Float(all) = &bodies.numbers else { return bodies.clone() };
    let mut numbers = Vec::new();
    for own in all.chunks(4) {
        let mut sum = [0.0; 3];
        for other in all.chunks(4) {
            let to = [0, 1, 2].map(|axis| other[axis] - own[axis]);
            let far = to.iter().map(|d| d * d).sum::<f64>() + epsilon * epsilon;
            let by = if far > 0.0 { other[3] / (far * far.sqrt()) } else { 0.0 };
            sum.iter_mut().zip(to).for_each(|(sum, d)| *sum += d * by);
        }
        numbers.extend(sum);
    }
    Plain::float(bodies.ty.clone(), vec![bodies.shape[0], 3], numbers)
}

pub(crate) fn scan_segments(x: &Plain, offsets: &Plain) -> Plain {
    let bounds: Vec<usize> = whole(offsets).into_iter().map(|at| at.min(x.shape[0])).collect();
    let row: usize = x.shape[1..].iter().product();
    let mut found = x.clone();
    match &mut found.numbers {
        Numbers::Whole(all) => all.fill(0),
        Numbers::Float(all) => all.fill(0.0),
    }
    for pair in bounds.windows(2) {
        let sums = scan(&part(x, pair[0]..pair[1].max(pair[0])), Some(0), true);
        match (&mut found.numbers, sums.numbers) {
            (Numbers::Whole(all), Numbers::Whole(sums)) => all[pair[0] * row..][..sums.len()].copy_from_slice(&sums),
            (Numbers::Float(all), Numbers::Float(sums)) => all[pair[0] * row..][..sums.len()].copy_from_slice(&sums),
            _ => {}
        }
    }
    found
}

/// The elements of each segment in order; zeros elsewhere.
pub(crate) fn sort_segments(x: &Plain, offsets: &Plain, descending: bool) -> Plain {
    let bounds: Vec<usize> = whole(offsets).into_iter().map(|at| at.min(x.len())).collect();
    let mut at = vec![None; x.len()];
    for pair in bounds.windows(2).filter(|pair| pair[0] < pair[1]) {
        let order = order(&part(x, pair[0]..pair[1]), descending);
        for (to, from) in at[pair[0]..pair[1]].iter_mut().zip(order) {
            *to = Some(pair[0] + from);
        }
    }
    x.picked(vec![x.len()], &at)
}

/// Elements of bytes.
fn bytes_of(x: &Plain) -> Vec<u8> {
    let Numbers::Whole(all) = &x.numbers else { return Vec::new() };
    all.iter().map(|byte| *byte as u8).collect()
}

/// Where patterns begin, which of them do, the longest, and how many there are; so many at most.
pub(crate) fn find(x: &Plain, patterns: &[Vec<u8>], most: usize) -> Vec<Plain> {
    let bytes = bytes_of(x);
    let shortest = patterns.iter().map(Vec::len).min().unwrap_or(0);
    let room = most.min((bytes.len() + 1).saturating_sub(shortest));
    let (mut positions, mut which) = (Vec::new(), Vec::new());
    for at in 0..bytes.len() {
        let begins = (0..patterns.len()).filter(|&one| bytes[at..].starts_with(&patterns[one]));
        // Of equal lengths, which are equal patterns, the first.
        if let Some(longest) = begins.rev().max_by_key(|&one| (patterns[one].len(), std::cmp::Reverse(one))) {
            positions.push(at as i128);
            which.push(longest as i128);
        }
    }
    let count = positions.len().min(room);
    positions.resize(room, 0);
    which.resize(room, 0);
    for list in [&mut positions, &mut which] {
        list[count..].fill(0);
    }
    let of = |list: Vec<i128>| Plain::whole(DataType::U32, vec![room], list);
    vec![of(positions), of(which), Plain::whole(DataType::U32, Vec::new(), vec![count as i128])]
}

/// One pattern, as bytes.
pub(crate) fn find_one(x: &Plain, pattern: &Plain, most: usize) -> Vec<Plain> {
    let mut found = find(x, &[bytes_of(pattern)], most);
    found.remove(1);
    found
}

/// Many, one after another, with offsets.
pub(crate) fn find_all(x: &Plain, patterns: &Plain, offsets: &Plain, most: usize) -> Vec<Plain> {
    let Numbers::Whole(ends) = &offsets.numbers else { return Vec::new() };
    let all = bytes_of(patterns);
    let parts: Vec<Vec<u8>> = ends.windows(2).map(|ends| all[ends[0] as usize..ends[1] as usize].to_vec()).collect();
    find(x, &parts, most)
}

/// The messages along the last axis, as bytes.
fn messages(x: &Plain) -> Vec<Vec<u8>> {
    let Numbers::Whole(all) = &x.numbers else { return Vec::new() };
    let Some((length, rows)) = x.shape.split_last() else { return Vec::new() };
    let size = if x.ty == DataType::U8 { 1 } else { 4 };
    let bytes = |word: &i128| word.to_le_bytes()[..size].to_vec();
    let message = |row: usize| all[row * length..(row + 1) * length].iter().flat_map(bytes).collect();
    (0..rows.iter().product()).map(message).collect()
}

pub(crate) fn crc32(x: &Plain) -> Plain {
    let of = |message: Vec<u8>| {
        let mut c = u32::MAX;
        for byte in message {
            c ^= u32::from(byte);
            for _ in 0..8 {
                c = if c & 1 == 1 { (c >> 1) ^ 0xedb8_8320 } else { c >> 1 };
            }
        }
        i128::from(!c)
    };
    let shape = x.shape[..x.shape.len() - 1].to_vec();
    Plain::whole(DataType::U32, shape, messages(x).into_iter().map(of).collect())
}

pub(crate) fn sha256(x: &Plain) -> Plain {
    let of = |mut message: Vec<u8>| {
        let bits = message.len() as u64 * 8;
        message.push(0x80);
        message.resize((message.len() + 8).next_multiple_of(64) - 8, 0);
        message.extend(bits.to_be_bytes());
        let mut state = SHA256_FIRST;
        for block in message.chunks(64) {
            let mut w: Vec<u32> = block.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
            for t in 16..64 {
                let (a, b) = (w[t - 15], w[t - 2]);
                let a = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
                let b = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
                w.push(w[t - 16].wrapping_add(a).wrapping_add(w[t - 7]).wrapping_add(b));
            }
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
            for (w, constant) in w.iter().zip(SHA256_ROUNDS) {
                let mix = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
                let chosen = (e & f) ^ (!e & g);
                let one = [mix, chosen, constant, *w].into_iter().fold(h, u32::wrapping_add);
                let mix = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
                let two = mix.wrapping_add((a & b) ^ (a & c) ^ (b & c));
                (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(one), c, b, a, one.wrapping_add(two));
            }
            for (state, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *state = state.wrapping_add(more);
            }
        }
        state.map(i128::from)
    };
    let mut shape = x.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = 8;
    }
    Plain::whole(DataType::U32, shape, messages(x).into_iter().flat_map(of).collect())
}

const SHA256_FIRST: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
const SHA256_ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];
