//! What strangers give: shapes that don't fit, numbers that are none, and nothing at all.

use vyre::{Array, Error};
use vyre_ops::{Boundary, Ops, Patterns};

use crate::support::{Random, engines, read};

/// A refusal of a shape, whose cure says more than the code's own.
#[track_caller]
fn refused<T>(result: Result<T, Error>, fix: &str) {
    let error = result.err().expect("it does not fit");
    assert_eq!(error.code(), "V1311", "{error:?}");
    assert!(error.to_string().contains(fix), "{error}");
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_a_cure() {
    for (_, engine) in engines() {
        let table = engine.from_shape([3, 4], &[1.0f32; 12]).expect("a table");
        let [three, one] = [vec![1.0f32; 3], vec![2.0]].map(|all| engine.array(&all).expect("a row"));
        refused(table.sum_axis(2), "the last one is 1");
        refused(table.cumsum_axis(7), "the last one is 1");
        refused(table.variance_axis(2), "the last one is 1");
        refused(table.argmax_axis(usize::MAX), "the last one is 1");
        refused(table.sum().and_then(|all| all.sum_axis(0)), "a single number has none");
        // What fits as it would in an expression would be the product with another vector.
        refused(table.matvec(&one), "a vector [k]");
        refused(table.matvec(&three), "a vector [k]");
        refused(table.matvec(&table), "a vector [k]");
        refused(three.dot(&one), "of one shape");
        refused(table.dot(&engine.array(&[1.0f32; 4]).expect("a row")), "of one shape");
        refused(table.matmul(&table), "[.., k, n]");
        refused(table.top_k(13), "Ask for 12 at most");
        refused(table.convolution(&engine.from_shape([5, 5], &[1.0f32; 25]).expect("a window"), 1, 0), "more padding");
        let window = engine.from_shape([1, 1], &[1.0f32]).expect("a window");
        refused(table.convolution(&window, 1, usize::MAX), "padding is up to");
        refused(table.convolution(&window, 0, 0), "step by 1 or more");
        for (points, fix) in [(11usize, "12"), (4097, "4116"), (13 * 1009, "13122")] {
            let waves = engine.from_shape([points, 2], &vec![0.0f32; 2 * points]).expect("points");
            refused(waves.fft(), &format!("the next length that it takes is {fix}"));
        }
        refused(Patterns::new(engine, &[b"ab", b""]), "Leave empty patterns out");
        refused(Patterns::new(engine, &[]), "one pattern at least");
        let error = engine.array(&[1i32, 2]).expect("numbers").mean().expect_err("whole numbers");
        assert!(error.code() == "V1314" && error.to_string().contains("cast::<f32>"), "{error}");
    }
}

/// A mask that would be repeated along an axis chooses something else than was meant, or writes behind the end.
#[test]
fn a_mask_has_the_shape_of_what_it_chooses_from() {
    for (_, engine) in engines() {
        let row = engine.from_shape([1, 4], &[1u32, 2, 3, 4]).expect("a row");
        let column = engine.from_shape([4, 1], &[1u32, 0, 1, 1]).expect("a column");
        let flat = engine.array(&[1u32]).expect("a number");
        for mask in [&column, &flat] {
            refused(row.compact(&mask.lazy().gt(0)), "of the shape");
            refused(row.partition(&mask.lazy().gt(0)), "of the shape");
        }
        let mask = engine.from_shape([1, 4], &[1u32, 0, 1, 1]).expect("a mask");
        assert_eq!(row.compact(&mask.lazy().gt(0)).and_then(|kept| kept.to_vec()).expect("kept"), [1, 3, 4]);
    }
}

/// As in NumPy, whoever is last. Rows are written whole, also where many go to one.
#[test]
fn of_what_is_scattered_to_one_place_the_last_is_there() {
    let mut random = Random(5);
    for (name, engine) in engines() {
        for (count, rows, row) in [(5usize, 3usize, 1usize), (2000, 7, 1), (3000, 11, 3), (40_000, 5, 2), (4, 0, 2)] {
            let positions: Vec<u32> = (0..count).map(|_| random.below(rows + 2) as u32).collect();
            let values: Vec<f32> = (0..count * row).map(|at| at as f32).collect();
            let mut expected = vec![-1.0; rows * row];
            for (at, &position) in positions.iter().enumerate().filter(|(_, position)| (**position as usize) < rows) {
                let to = position as usize * row;
                expected[to..to + row].copy_from_slice(&values[at * row..(at + 1) * row]);
            }
            let base = engine.from_shape([rows, row], &vec![-1.0f32; rows * row]).expect("base");
            let values = engine.from_shape([count, row], &values).expect("values");
            let positions = engine.array(&positions).expect("positions");
            let found = read(base.scatter(&positions, &values)).expect("f32");
            assert!(found == expected, "{name}: {count} to {rows} of {row}");
        }
    }
}

#[test]
fn nothing_and_single_numbers() {
    for (name, engine) in engines() {
        let none: Array<f32> = engine.array(&[]).expect("nothing");
        assert_eq!(none.sum().and_then(|sum| sum.value()).expect("a sum"), 0.0, "{name}");
        assert_eq!(none.min().and_then(|least| least.value()).expect("a minimum"), f32::INFINITY, "{name}");
        assert!(none.mean().and_then(|mean| mean.value()).expect("a mean").is_nan(), "{name}");
        assert!(none.variance().and_then(|mean| mean.value()).expect("a variance").is_nan(), "{name}");
        assert_eq!(none.argmax().and_then(|place| place.value()).expect("a place"), u32::MAX, "{name}");
        for result in [none.sort(), none.cumsum(), none.softmax(), none.sort_descending()] {
            assert_eq!(read(result).expect("f32"), [0.0; 0], "{name}");
        }
        assert_eq!(read(none.top_k(0).map(|top| top.0)).expect("f32"), [0.0; 0], "{name}");
        assert_eq!(none.unique().and_then(|unique| unique.to_vec()).expect("runs"), [0.0; 0], "{name}");
        assert_eq!(read(none.argsort()).expect("u32"), [0; 0], "{name}");
        assert_eq!(read(engine.array::<u32>(&[]).expect("nothing").histogram(3)).expect("u32"), [0; 3], "{name}");
        let outside = engine.array(&[3u32, 4, u32::MAX]).expect("numbers");
        assert_eq!(read(outside.histogram(3)).expect("u32"), [0; 3], "{name}");
        assert_eq!(read(outside.histogram(0)).expect("u32"), [0; 0], "{name}");
        let (wide, tall) =
            (engine.from_shape([3, 0], &[]).expect("[3, 0]"), engine.from_shape([0, 4], &[]).expect("[0, 4]"));
        let product: Array<f32> = wide.matmul(&tall).expect("a product");
        assert_eq!((product.shape(), product.to_vec().expect("zeros")), (&[3usize, 4][..], vec![0.0; 12]), "{name}");
        let one = engine.array(&[3.5f32]).expect("a number");
        assert_eq!(one.variance().and_then(|all| all.value()).expect("a variance"), 0.0, "{name}");
        assert_eq!(read(one.softmax()).expect("f32"), [1.0], "{name}");
        assert_eq!(read(one.sort()).expect("f32"), [3.5], "{name}");
        let point = engine.from_shape([1, 2], &[2.5f32, -1.0]).expect("a point");
        assert_eq!(read(point.fft()).expect("f32"), [2.5, -1.0], "{name}");
        assert_eq!(read(point.inverse_fft()).expect("f32"), [2.5, -1.0], "{name}");
        let same = engine.array(&vec![0.1f32; 10_000]).expect("one number often");
        assert!(same.variance().and_then(|all| all.value()).expect("a variance") < 1e-12, "{name}");
        let text: Array<u8> = engine.array(&[]).expect("no text");
        let found = Patterns::new(engine, &[b"a"]).and_then(|search| search.find(&text, 9)).expect("it searches");
        assert!(found.positions.is_empty().expect("a count"), "{name}");
    }
}

#[test]
fn numbers_that_are_none_and_both_zeros() {
    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;
    for (name, engine) in engines() {
        for length in [6usize, 33, 1025, 40_000] {
            let mut x = vec![0.5f32; length];
            x[..6].copy_from_slice(&[0.0, -0.0, INF, -INF, 1.0, NAN]);
            let array = engine.array(&x).expect("numbers");
            for found in [array.sum(), array.min(), array.max(), array.mean(), array.variance()] {
                assert!(read(found).expect("f32")[0].is_nan(), "{name} {length}");
            }
            assert_eq!(read(array.argmin()).expect("u32"), [5], "{name} {length}");
            assert_eq!(read(array.argmax()).expect("u32"), [5], "{name} {length}");
            let sorted = read(array.sort()).expect("f32");
            assert_eq!(sorted[0], -INF, "{name} {length}");
            assert!(sorted[1].is_sign_negative() && sorted[1] == 0.0, "{name} {length}: {:?}", &sorted[..3]);
            assert!(sorted[2].is_sign_positive() && sorted[2] == 0.0, "{name} {length}: {:?}", &sorted[..3]);
            assert!(sorted[length - 1].is_nan() && sorted[length - 2] == INF, "{name} {length}");
            let (values, places) = array.top_k(2).expect("two");
            let (values, places) = (values.to_vec().expect("values"), places.to_vec().expect("places"));
            assert!(values[0].is_nan() && values[1] == INF, "{name} {length}: {values:?}");
            assert_eq!(places, [5, 2], "{name} {length}");
            let zeros = engine.array(&[-0.0f32, 0.0, -0.0]).expect("zeros");
            assert_eq!(zeros.unique().and_then(|runs| runs.to_vec()).expect("runs"), [0.0], "{name}");
            assert!(read(zeros.sum()).expect("f32")[0].is_sign_positive(), "{name}");
        }
        let finite = engine.array(&[1.0f32, INF, 2.0]).expect("numbers");
        assert_eq!(read(finite.max()).expect("f32"), [INF], "{name}");
        assert!(read(finite.softmax()).expect("f32").iter().all(|x| x.is_nan() || *x == 0.0), "{name}");
        let below = engine.array(&[-INF, 0.0, -INF]).expect("numbers");
        assert_eq!(read(below.softmax()).expect("f32"), [0.0, 1.0, 0.0], "{name}: what is masked out");
    }
}

/// Whole numbers wrap, narrow ones are computed as 32 bits.
#[test]
fn sums_that_overflow() {
    for (name, engine) in engines() {
        let bytes = engine.array(&[255u8; 1000]).expect("bytes");
        let sum = vyre_ops::op("sum").and_then(|op| op.run(&[bytes.lazy().term().clone()], &Default::default()));
        assert_eq!(read(sum.and_then(|mut all| all.remove(0).typed::<u32>())).expect("u32"), [255_000], "{name}");
        let signed = engine.array(&[-128i8; 1000]).expect("bytes");
        let sum = vyre_ops::op("sum").and_then(|op| op.run(&[signed.lazy().term().clone()], &Default::default()));
        assert_eq!(read(sum.and_then(|mut all| all.remove(0).typed::<i32>())).expect("i32"), [-128_000], "{name}");
        let words = engine.array(&[u32::MAX, 2]).expect("words");
        assert_eq!(read(words.sum()).expect("u32"), [1], "{name}");
        if let Some(sum) = read(engine.array(&[i64::MAX, 1]).expect("wide").sum()) {
            assert_eq!(sum, [i64::MIN], "{name}");
        }
    }
}

/// Views reach the ops as what they show.
#[test]
fn strided_and_transposed_inputs() {
    let mut random = Random(8);
    for (name, engine) in engines() {
        let (rows, columns) = (33usize, 31usize);
        let x = random.units(rows * columns);
        let table = engine.from_shape([rows, columns], &x).expect("a table");
        let turned: Vec<f32> =
            (0..columns).flat_map(|c| (0..rows).map(move |r| (r, c))).map(|(r, c)| x[r * columns + c]).collect();
        let copied = engine.from_shape([columns, rows], &turned).expect("a copy");
        let view = table.view();
        let view = view.permuted(&[1, 0]).expect("turned");
        assert_eq!(read(view.sum_axis(0)), read(copied.sum_axis(0)), "{name}");
        assert_eq!(read(view.sum_axis(1)), read(copied.sum_axis(1)), "{name}");
        assert_eq!(read(view.softmax()), read(copied.softmax()), "{name}");
        assert_eq!(read(view.argmax_axis(0)), read(copied.argmax_axis(0)), "{name}");
        assert_eq!(read(view.sort()), read(copied.sort()), "{name}");
        assert_eq!(read(view.matmul(&table)), read(copied.matmul(&table)), "{name}");
        let weights = [0.0, 1.0, 0.0, 1.0, -4.0, 1.0, 0.0, 1.0, 0.0];
        let spread = |result: Result<Array<f32>, Error>| read(result);
        assert_eq!(
            spread(view.stencil(&weights, &[3, 3], Boundary::Edge)),
            spread(copied.stencil(&weights, &[3, 3], Boundary::Edge)),
            "{name}"
        );
        let view = table.view();
        let every = view.slice_axis(1, .., 3).expect("every third");
        let kept: Vec<f32> = (0..rows)
            .flat_map(|r| (0..columns).step_by(3).map(move |c| (r, c)))
            .map(|(r, c)| x[r * columns + c])
            .collect();
        let copied = engine.from_shape([rows, columns.div_ceil(3)], &kept).expect("a copy");
        assert_eq!(read(every.sum_axis(1)), read(copied.sum_axis(1)), "{name}");
        assert_eq!(read(every.cumsum()), read(copied.cumsum()), "{name}");
        assert_eq!(read(every.transpose()), read(copied.transpose()), "{name}");
    }
}

#[test]
fn duplicates_among_what_is_searched_and_offsets_that_lie() {
    for (name, engine) in engines() {
        let sorted = engine.array(&[1.0f32, 2.0, 2.0, 2.0, 3.0, f32::NAN]).expect("sorted");
        let wanted = engine.array(&[2.0f32, 0.0, 4.0, f32::NAN, -0.0]).expect("wanted");
        assert_eq!(read(sorted.lower_bound(&wanted)).expect("u32"), [1, 0, 5, 5, 0], "{name}");
        assert_eq!(read(sorted.upper_bound(&wanted)).expect("u32"), [4, 0, 5, 6, 0], "{name}");
        let none: Array<f32> = engine.array(&[]).expect("nothing");
        assert_eq!(read(none.lower_bound(&wanted)).expect("u32"), [0; 5], "{name}");
        assert_eq!(read(none.merge(&sorted).and_then(|all| all.lower_bound(&wanted))).expect("u32"), [1, 0, 5, 5, 0]);
        let x = engine.array(&(0..100u32).collect::<Vec<_>>()).expect("numbers");
        let offsets = engine.array(&[90u32, 200, 3, 5, u32::MAX, 50]).expect("offsets");
        let expected = [(90..100).sum::<u32>(), 0, 3 + 4, (5..100).sum(), 0];
        assert_eq!(read(x.segment_sum(&offsets)).expect("u32"), expected, "{name}");
        assert_eq!(read(x.segment_max(&offsets)).expect("u32"), [99, 0, 4, 99, 0], "{name}");
        let base = engine.zeros::<f32>(3).expect("base");
        let at = engine.array(&[2u32, 2, u32::MAX, 3, 0]).expect("positions");
        let values = engine.array(&[1.0f32, 2.0, 4.0, 8.0, 16.0]).expect("values");
        assert_eq!(read(base.scatter_add(&at, &values)).expect("f32"), [16.0, 0.0, 3.0], "{name}");
    }
}
