//! Functions of the processor give the bits of the kernels that they stand beside. They work on arrays as they are; expressions go to the kernels.

use vyre::{Array, Engine, Expression, Number};
use vyre_ops::{Boundary, Ops};

use crate::support::{Random, engines, lengths, read};

fn on_processors() -> impl Iterator<Item = &'static Engine> {
    engines().iter().filter(|(name, _)| name == "cpu").map(|(_, engine)| engine)
}

/// Numbers of all magnitudes, among them both zeros.
fn uneven(random: &mut Random, count: usize) -> Vec<f32> {
    let one = |random: &mut Random| match random.below(12) {
        0 => -0.0,
        1 => 0.0,
        2 => random.unit() * 1e20,
        3 => random.unit() * 1e-20,
        _ => random.unit(),
    };
    (0..count).map(|_| one(random)).collect()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    // Which bits a NaN has is not said.
    values.into_iter().map(|value| if value.is_nan() { u32::MAX } else { value.to_bits() }).collect()
}

/// All that scans give, of an array and of the same as an expression.
fn scans<T: Number + Into<f64> + PartialEq>(array: &Array<T>, same: &Expression<T>, told: &str) -> [Vec<T>; 4] {
    let last = array.shape().len() - 1;
    let of = [array.cumsum(), array.exclusive_sum(), array.cumsum_axis(last), array.exclusive_sum_axis(last)].map(read);
    let other = [same.cumsum(), same.exclusive_sum(), same.cumsum_axis(last), same.exclusive_sum_axis(last)].map(read);
    let [of, other] = [of, other].map(|all| all.map(|one| one.expect("it has the type")));
    for (way, (own, other)) in of.iter().zip(&other).enumerate() {
        let number = |value: &T| Into::<f64>::into(*value).to_bits();
        let differ = own.iter().zip(other).position(|(own, other)| number(own) != number(other));
        assert_eq!(differ, None, "{told}, way {way}");
    }
    of
}

#[test]
fn sums_of_all_are_those_of_kernels() {
    let mut random = Random(71);
    for engine in on_processors() {
        for length in [16_385, 32_768, 70_001, (1 << 20) - 1, (1 << 20) + 1, 256 * 16_384 + 300] {
            let mut x = uneven(&mut random, length);
            for nan in [None, Some(length - 1)] {
                nan.into_iter().for_each(|at| x[at] = f32::NAN);
                let array = engine.array(&x).expect("x");
                let [own, other] = [array.sum(), (&array * 1.0).sum()].map(|sum| bits(read(sum).expect("a number")));
                assert_eq!(own, other, "{length} {nan:?}");
            }
        }
    }
}

#[test]
fn scans_are_those_of_kernels() {
    let mut random = Random(70);
    for engine in on_processors() {
        for length in lengths("cpu").into_iter().chain([300_001, (1 << 20) - 1, (1 << 20) + 1]) {
            let x = uneven(&mut random, length);
            let array = engine.array(&x).expect("x");
            let finite = scans(&array, &(&array * 1.0), &format!("f32 {length}"));
            assert!(finite[0].iter().all(|sum| sum.is_finite()), "{length}");
            let wide: Vec<f64> = x.iter().map(|x| f64::from(*x) * 3.0).collect();
            let array = engine.array(&wide).expect("x");
            scans(&array, &(&array * 1.0), &format!("f64 {length}"));
            let array = engine.array(&random.words(length)).expect("x");
            scans(&array, &(&array * 1), &format!("u32 {length}"));
        }
        for rows in [[1, 9], [37, 2500], [400, 33], [3, 70_001]] {
            let array = engine.from_shape(rows, &uneven(&mut random, rows[0] * rows[1])).expect("x");
            scans(&array, &(&array * 1.0), &format!("{rows:?}"));
        }
        // Of nothing but -0 the sum is 0, and what is no number stays so.
        let found = read(engine.array(&[-0.0f32; 300]).expect("x").cumsum()).expect("f32");
        assert!(found.iter().all(|sum| sum.to_bits() == 0));
        let mut x = uneven(&mut random, 5000);
        x[3000] = f32::NAN;
        let found = read(engine.array(&x).expect("x").cumsum()).expect("f32");
        assert!(found[..3000].iter().all(|sum| !sum.is_nan()) && found[3000..].iter().all(|sum| sum.is_nan()));
    }
}

#[test]
fn sums_down_rows_are_those_of_kernels() {
    let mut random = Random(71);
    for engine in on_processors() {
        for shape in [vec![256, 2048], vec![300, 2050], vec![16_390, 1040], vec![3, 257, 777], vec![2, 20_000, 65]] {
            let elements = shape.iter().product();
            let mut x = uneven(&mut random, elements);
            x[elements / 2] = f32::NAN;
            x[elements / 3] = f32::INFINITY;
            let array = engine.from_shape(&shape[..], &x).expect("x");
            let axis = shape.len() - 2;
            let own = bits(read(array.sum_axis(axis)).expect("f32"));
            assert!(own == bits(read((&array * 1.0).sum_axis(axis)).expect("f32")), "{shape:?}");
        }
        let none = engine.from_shape([256, 2048], &vec![-0.0f32; 256 * 2048]).expect("x");
        assert!(read(none.sum_axis(0)).expect("f32").iter().all(|sum| sum.to_bits() == 0));
    }
}

#[test]
fn stencils_are_those_of_kernels() {
    let mut random = Random(72);
    for engine in on_processors() {
        for (shape, sides) in [
            (vec![1, 1], vec![3, 3]),
            (vec![2, 3, 1, 70], vec![3, 5]),
            (vec![65, 64], vec![5, 3]),
            (vec![33, 131], vec![1, 9]),
            (vec![4, 7, 200], vec![3, 3, 3]),
        ] {
            let x = uneven(&mut random, shape.iter().product());
            let weights: Vec<f64> = (0..sides.iter().product()).map(|_| f64::from(random.unit())).collect();
            let array = engine.from_shape(&shape[..], &x).expect("x");
            for boundary in [Boundary::Zero, Boundary::Edge, Boundary::Wrap, Boundary::Reflect] {
                let own = bits(read(array.stencil(&weights, &sides, boundary)).expect("f32"));
                let other = bits(read((&array * 1.0).stencil(&weights, &sides, boundary)).expect("f32"));
                assert!(own == other, "{shape:?} {sides:?} {boundary:?}");
            }
        }
    }
}

#[test]
fn histograms_are_those_of_kernels() {
    let mut random = Random(73);
    for engine in on_processors() {
        for length in [1, 33, 70_001, (1 << 20) + 1] {
            for bins in [1, 256, 2049, 70_000] {
                let x: Vec<u32> = (0..length).map(|_| random.below(bins + bins / 8 + 1) as u32).collect();
                let array = engine.array(&x).expect("x");
                let own = read(array.histogram(bins)).expect("u32");
                assert!(own == read((&array * 1).histogram(bins)).expect("u32"), "{length} {bins}");
            }
        }
    }
}

/// Where launches are tuned, everything that a function leaves in its buffers is held against what the kernel leaves there.
#[test]
fn functions_agree_where_they_are_tuned() {
    let mut random = Random(75);
    for own in on_processors() {
        let cpu = own.backend("cpu").expect("it is the one");
        let builder = Engine::builder().without_disk().tuner(vyre::tuner::Mode::On).without_default_backends();
        let engine = builder.with_backend(cpu, 1).open().expect("the engine opens");
        let x = engine.array(&uneven(&mut random, 300_001)).expect("x");
        let whole = engine.array(&random.words(300_001)).expect("x");
        for found in [x.cumsum(), x.exclusive_sum()] {
            read(found).expect("f32");
        }
        read(whole.cumsum()).expect("u32");
        let text: Vec<u8> = random.words(70_000).iter().map(|word| b'a' + (word % 3) as u8).collect();
        let text = engine.array(&text).expect("a text");
        for (pattern, most) in [(&b"a"[..], 100_000), (b"abc", 5), (b"zz", 100)] {
            vyre_ops::find_bytes(&text, pattern, most).and_then(|found| found.to_vec()).expect("it runs");
        }
        let waves = engine.from_shape([40, 64, 2], &random.units(40 * 64 * 2)).expect("waves");
        read(waves.fft()).expect("f32");
        let square = engine.from_shape([128, 128], &random.units(128 * 128)).expect("a matrix");
        read(square.matmul(&square)).expect("f32");
        let told: Vec<String> = engine.take_notices().iter().map(|notice| notice.to_string()).collect();
        assert!(!told.iter().any(|notice| notice.contains("is not used")), "{told:?}");
    }
}
