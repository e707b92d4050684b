//! One test for all ops of the registry: every type, every class of sizes, every backend, against the plain reference.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use vyre::expression::Term;
use vyre::{DataType, Engine, Error, codes::Class};
use vyre_ops::{Activation, Boundary, Numbers, Op, Output, Parameter, Parameters, Plain, Types, ops};

use crate::support::{Random, engines};

fn types_of(types: Types) -> &'static [DataType] {
    use DataType::{F16, F32, F64, I32, I64, U32, U64};
    match types {
        Types::Numbers => &[F32, U32, I32, F64, U64, I64, F16],
        Types::Floats => &[F32, F64],
        Types::AllFloats => &[F32, F64, F16],
        Types::Halves => &[F32, F16],
        Types::Singles => &[F32],
        Types::Keys => &[U32, F32, I32, U64, I64, F64],
        Types::AllKeys => &[U32, F32, I32, U64, I64, F64, F16],
        Types::Words => &[U32],
        Types::Messages => &[U32, DataType::U8],
        Types::Bytes => &[DataType::U8],
    }
}

fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::F16 | DataType::F32 | DataType::F64)
}

/// The bytes of elements, rounded to their type, and the elements as they then are.
fn stored(plain: &Plain) -> (Plain, Vec<u8>) {
    match &plain.numbers {
        Numbers::Float(all) => {
            let mut bytes = Vec::new();
            let mut rounded = Vec::new();
            for &number in all {
                match plain.ty {
                    DataType::F64 => {
                        bytes.extend(number.to_le_bytes());
                        rounded.push(number);
                    }
                    DataType::F16 => {
                        let number = half::f16::from_f64(number);
                        bytes.extend(number.to_le_bytes());
                        rounded.push(number.to_f64());
                    }
                    _ => {
                        bytes.extend((number as f32).to_le_bytes());
                        rounded.push(f64::from(number as f32));
                    }
                }
            }
            (Plain::float(plain.ty.clone(), plain.shape.clone(), rounded), bytes)
        }
        Numbers::Whole(all) => {
            let size = plain.ty.bits().unwrap_or(32) as usize / 8;
            let bytes = all.iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect();
            (plain.clone(), bytes)
        }
    }
}

/// The elements of a result.
fn read(output: Output) -> Result<Plain, Error> {
    let bytes = output.buffer.to_vec()?;
    let size = output.ty.bits().unwrap_or(32) as usize / 8;
    let parts = bytes.chunks_exact(size);
    if is_float(&output.ty) {
        let number = |part: &[u8]| match *part {
            [a, b] => half::f16::from_le_bytes([a, b]).to_f64(),
            [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => f64::from_le_bytes(part.try_into().expect("eight bytes")),
        };
        return Ok(Plain::float(output.ty, output.shape, parts.map(number).collect()));
    }
    let number = |part: &[u8]| {
        let mut wide = [0; 16];
        wide[..size].copy_from_slice(part);
        i128::from_le_bytes(wide)
    };
    Ok(Plain::whole(output.ty, output.shape, parts.map(number).collect()))
}

fn numbers(random: &mut Random, ty: &DataType, shape: Vec<usize>, below: Option<usize>) -> Plain {
    let count: usize = shape.iter().product();
    if is_float(ty) {
        let all = (0..count).map(|_| f64::from(random.unit())).collect();
        return stored(&Plain::float(ty.clone(), shape, all)).0;
    }
    let all = (0..count).map(|_| match below {
        Some(below) => random.below(below) as i128,
        None => i128::from(random.bits()),
    });
    Plain::whole(ty.clone(), shape, all.collect())
}

/// Inputs of about so many elements.
fn inputs(op: &Op, ty: &DataType, size: usize, random: &mut Random) -> Vec<Plain> {
    let side = (size as f64).sqrt() as usize;
    match op.id {
        "transpose" | "softmax" | "log_softmax" | "layer_norm" | "rms_norm" => {
            let rows = [1, 3, side][random.below(3)];
            vec![numbers(random, ty, vec![rows, size / rows.max(1)], None)]
        }
        "gather" => {
            let rows = vec![size.div_ceil(3), 3];
            let positions = numbers(random, &DataType::U32, vec![2, size / 2], Some(size.div_ceil(3) + 2));
            vec![numbers(random, ty, rows, None), positions]
        }
        "scatter_add" => {
            let rows = size.div_ceil(9);
            let positions = numbers(random, &DataType::U32, vec![size / 3], Some(rows + 2));
            vec![numbers(random, ty, vec![rows, 3], None), positions, numbers(random, ty, vec![size / 3, 3], None)]
        }
        "lower_bound" | "upper_bound" | "merge" => {
            // The reference looks at everything for each one.
            let (sorted, x) = (numbers(random, ty, vec![size.min(3000)], Some(999)), vec![size.min(700)]);
            let x = numbers(random, ty, x, Some(999));
            let in_order = |x: &Plain| {
                vyre_ops::op("sort")
                    .expect("an op")
                    .reference(std::slice::from_ref(x), &Parameters::default())
                    .swap_remove(0)
            };
            if op.id == "merge" { vec![in_order(&sorted), in_order(&x)] } else { vec![in_order(&sorted), x] }
        }
        "segment_sum" | "segment_max" | "segment_cumsum" => {
            let (mean, row) = [(3, 2), (3, 1), (40, 1), (700, 1)][random.below(4)];
            let length = size / row;
            let mut offsets: Vec<i128> = (0..length / mean + 2).map(|_| random.below(length + 1) as i128).collect();
            offsets.sort_unstable();
            let offsets = Plain::whole(DataType::U32, vec![offsets.len()], offsets);
            vec![numbers(random, ty, vec![length, row], None), offsets]
        }
        "segment_sort" | "segment_sort_descending" => {
            let mut offsets: Vec<i128> = (0..size / 40 + 2).map(|_| random.below(size + 1) as i128).collect();
            offsets.sort_unstable();
            let offsets = Plain::whole(DataType::U32, vec![offsets.len()], offsets);
            vec![numbers(random, ty, vec![size], None), offsets]
        }
        "matmul" => {
            let side = side.min(70);
            let (m, k, n) = (side, side + 1, side + 3);
            vec![numbers(random, ty, vec![2, m, k], None), numbers(random, ty, vec![2, k, n], None)]
        }
        "linear" => {
            let side = side.min(90);
            let (m, k, n) = (side + 2, random.below(2) * side, side);
            [vec![2, m, k], vec![2, k, n], vec![n]].map(|shape| numbers(random, ty, shape, None)).into()
        }
        "attention" => {
            // The reference looks at every key for each query.
            let (dim, side) = ([16, 32, 20, 64, 128][random.below(5)], side.min(130));
            let [queries, keys] = [vec![2, side, dim], vec![2, side + 3, dim]];
            let keys = if size == 0 { queries.clone() } else { keys };
            [queries, keys.clone(), keys].map(|shape| numbers(random, ty, shape, None)).into()
        }
        "fft" => {
            let points = [1, 2, 3, 4, 5, 7, 8, 12, 35, 36, 210, 256, 600, 1024][random.below(14)];
            let points = if size == 0 { 0 } else { points };
            vec![numbers(random, ty, vec![(size / points.max(1)).min(20), points, 2], None)]
        }
        "stencil" => {
            let window = [vec![3, 3], vec![1, 5], vec![2, 4], vec![3, 3, 3], vec![5, 1, 2]][random.below(5)].clone();
            let table = vec![2, 3.min(side), side / 3, side.min(200)];
            vec![numbers(random, ty, table, None), numbers(random, ty, window, None)]
        }
        "convolution" => {
            let (side, kh, kw) = (side.min(40) + 3, 1 + random.below(3), 1 + random.below(3));
            match random.below(2) {
                0 => vec![numbers(random, ty, vec![side, side + 2], None), numbers(random, ty, vec![kh, kw], None)],
                _ => {
                    let (channels, outputs) = (1 + random.below(9), [4, 16, 70][random.below(3)]);
                    let images = vec![size.min(2), channels, side, side + 1];
                    let windows = vec![outputs, channels, kh, kw];
                    vec![numbers(random, ty, images, None), numbers(random, ty, windows, None)]
                }
            }
        }
        "crc32" | "sha256" => {
            let length = [0, 1, 13, 14, 15, 16, 30, 33][random.below(8)];
            let length = if *ty == DataType::U8 { [0, 3, 55, 56, 57, 63, 64, 121][random.below(8)] } else { length };
            vec![numbers(random, ty, vec![(size / 16).min(300), length], Some(1 << 32))]
        }
        // Few letters, so that much is found and much is nearly found.
        "find" => {
            let length = [1, 2, 3, 9][random.below(4)];
            vec![numbers(random, ty, vec![size], Some(3)), numbers(random, ty, vec![length], Some(3))]
        }
        "find_all" => {
            let lengths: Vec<usize> = (0..2 + random.below(6)).map(|_| 1 + random.below(7)).collect();
            let ends = lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end as i128)
            });
            let offsets: Vec<i128> = [0].into_iter().chain(ends).collect();
            let patterns = numbers(random, ty, vec![lengths.iter().sum()], Some(4));
            let offsets = Plain::whole(DataType::U32, vec![offsets.len()], offsets);
            vec![numbers(random, ty, vec![size], Some(4)), patterns, offsets]
        }
        "accelerations" => vec![numbers(random, ty, vec![size.min(700), 4], None)],
        "matvec" => {
            let along = size / 3;
            vec![numbers(random, ty, vec![3, along], None), numbers(random, ty, vec![along], None)]
        }
        "histogram" => vec![numbers(random, ty, vec![size], Some(260))],
        "unique" | "argmin" | "argmax" if !is_float(ty) => vec![numbers(random, ty, vec![size], Some(4))],
        _ => op.inputs.iter().map(|_| numbers(random, ty, vec![size], None)).collect(),
    }
}

/// What a float may differ by: rounding of its type, once for every element that it depends on.
fn tolerance(ty: &DataType, elements: usize, expected: f64) -> f64 {
    let unit = match ty {
        DataType::F64 => f64::EPSILON,
        DataType::F16 => 1e-3,
        _ => f64::from(f32::EPSILON),
    };
    unit * (16 + elements) as f64 * expected.abs().max(1.0)
}

fn agrees(found: &Plain, expected: &Plain, elements: usize) -> Result<(), String> {
    if found.shape != expected.shape || found.ty != expected.ty {
        return Err(format!("{} of {:?} instead of {} of {:?}", found.ty, found.shape, expected.ty, expected.shape));
    }
    match (&found.numbers, &expected.numbers) {
        (Numbers::Whole(found), Numbers::Whole(expected)) => match found.iter().zip(expected).position(|(a, b)| a != b)
        {
            Some(at) => Err(format!("element {at} is {} instead of {}", found[at], expected[at])),
            None => Ok(()),
        },
        (Numbers::Float(all), Numbers::Float(wanted)) => {
            let differs = |(a, b): (&f64, &f64)| {
                let same = a == b || a.is_nan() && b.is_nan();
                // A difference that is no number is not near.
                let near = (a - b).abs() <= tolerance(&found.ty, elements, *b);
                !same && !near
            };
            match all.iter().zip(wanted).position(differs) {
                Some(at) => Err(format!("element {at} is {} instead of {}", all[at], wanted[at])),
                None => Ok(()),
            }
        }
        _ => Err("whole numbers and floats".to_owned()),
    }
}

/// Runs an op and compares it; false where the device has not the type.
fn check(
    engine: &Engine,
    op: &Op,
    ty: &DataType,
    size: usize,
    axis: Option<usize>,
    random: &mut Random,
) -> Result<bool, String> {
    let mut inputs = inputs(op, ty, size, random);
    if let (Some(_), [x]) = (axis, &mut inputs[..]) {
        // Something before the axis and something behind it.
        let along = size / 6;
        *x = numbers(random, ty, vec![2, along, 3], Some(5));
    }
    let count = match op.id {
        "top_k" => Some(axis.map_or(size, |_| size / 6).min(7)),
        "find" | "find_all" => [None, Some(0), Some(50), Some(5000)][random.below(4)],
        _ => op.parameters.contains(&Parameter::Count).then_some(257),
    };
    let boundaries = [Boundary::Zero, Boundary::Edge, Boundary::Wrap, Boundary::Reflect];
    let activations = [Activation::None, Activation::Relu, Activation::Gelu];
    let parameters = Parameters {
        activation: activations[random.below(3)],
        axis,
        boundary: boundaries[random.below(4)],
        causal: random.below(2) == 1,
        count,
        epsilon: (op.id == "accelerations").then_some(0.1),
        inverse: random.below(2) == 1,
        padding: random.below(3),
        scale: [None, Some(0.125)][random.below(2)],
        stride: Some(1 + random.below(2)),
    };
    let terms: Vec<Term> = inputs
        .iter()
        .map(|plain| {
            let buffer = engine.buffer_of(&stored(plain).1).expect("a buffer");
            Term::array(buffer, plain.ty.clone(), (&plain.shape[..]).into())
        })
        .collect();
    let found = op.run(&terms, &parameters).and_then(|all| all.into_iter().map(read).collect::<Result<Vec<_>, _>>());
    let found = match found {
        Ok(found) => found,
        Err(error) if error.class() == Class::Program && *ty != DataType::F32 => return Ok(false),
        Err(error) => return Err(format!("{error:?}")),
    };
    let expected = op.reference(&inputs, &parameters);
    assert_eq!(found.len(), op.outputs.len());
    for ((found, expected), name) in found.iter().zip(&expected).zip(op.outputs) {
        agrees(found, expected, size).map_err(|told| format!("{name}: {told}"))?;
    }
    Ok(true)
}

/// Which of several processes this is, and how many there are: `VYRE_OPS_PART=0/16` is the first of sixteen. A driver compiles for the threads of
/// one process in turn, so that several are done sooner.
fn part() -> [usize; 2] {
    let Ok(told) = std::env::var("VYRE_OPS_PART") else { return [0, 1] };
    let numbers = told.split_once('/').and_then(|(part, parts)| Some([part.parse().ok()?, parts.parse().ok()?]));
    let numbers = numbers.filter(|[part, parts]| part < parts);
    numbers.unwrap_or_else(|| panic!("VYRE_OPS_PART is such as 0/16, not {told}"))
}

#[test]
fn every_op_means_what_its_reference_says() {
    let long = std::env::var_os("VYRE_OPS_LONG").is_some();
    let [part, parts] = part();
    let wrong = Mutex::new(Vec::new());
    for (name, engine) in engines() {
        let is_slow = name != "cpu" && !name.starts_with("cuda");
        let sizes: &[usize] = match (is_slow, long) {
            (true, _) => &[1, 1000],
            (false, false) => &[0, 1, 31, 33, 1000, 20_000],
            (false, true) => &[0, 1, 31, 33, 1000, 20_000, (1 << 20) - 1, (1 << 20) + 1],
        };
        let works: Vec<(usize, &Op, &DataType)> = ops()
            .iter()
            .flat_map(|op| types_of(op.types).iter().take(if is_slow { 1 } else { usize::MAX }).map(move |ty| (op, ty)))
            .enumerate()
            .map(|(at, (op, ty))| (at, op, ty))
            .filter(|(at, ..)| at % parts == part)
            .collect();
        let (compared, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let one = |at: usize, op: &Op, ty: &DataType| {
            let mut random = Random(99 + at as u64);
            for &size in sizes {
                let along = op.parameters.contains(&Parameter::Axis) && size >= 6;
                for axis in [None, Some(1)].into_iter().take(1 + usize::from(along)) {
                    let told = match check(engine, op, ty, size, axis, &mut random) {
                        Ok(true) => {
                            compared.fetch_add(1, SeqCst);
                            continue;
                        }
                        Ok(false) if name != "cpu" => {
                            refused.fetch_add(1, SeqCst);
                            continue;
                        }
                        Ok(false) => format!("{name} {} {ty}: refused", op.id),
                        Err(told) => format!("{name} {} {ty} {size} {axis:?}: {told}", op.id),
                    };
                    wrong.lock().expect("the others go on").push(told);
                }
            }
        };
        // Ops have nothing to do with each other, so all threads of the host check them.
        let (began, next, longest) = (Instant::now(), AtomicUsize::new(0), Mutex::new((Duration::ZERO, String::new())));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(parts).max(2);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(works.len()) {
                scope.spawn(|| {
                    while let Some(&(at, op, ty)) = works.get(next.fetch_add(1, SeqCst)) {
                        let began = Instant::now();
                        one(at, op, ty);
                        let took = (began.elapsed(), format!("{} {ty}", op.id));
                        if parts > 1 {
                            println!("{name} {}: {:.2?}", took.1, took.0);
                        }
                        let mut longest = longest.lock().expect("the others go on");
                        *longest = took.max(std::mem::take(&mut *longest));
                    }
                });
            }
        });
        let (compared, refused) = (compared.into_inner(), refused.into_inner());
        let (took, longest) = longest.into_inner().expect("all are done");
        println!(
            "{name}, part {part} of {parts}: {} ops with a type, {compared} runs compared, {refused} refused, {:.1?} (longest: {longest}, {took:.1?})",
            works.len(),
            began.elapsed(),
        );
        assert!(works.is_empty() || compared > 0, "{name} refused everything");
    }
    let wrong = wrong.into_inner().expect("all are done");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
