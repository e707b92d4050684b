use vyre_ops::{Ops, Parameters, Plain};

use crate::support::{Random, engines, read};

fn expected_of(inputs: [(&[f32], [usize; 3]); 3], causal: bool) -> Vec<f64> {
    let plain = inputs.map(|(values, shape)| {
        Plain::float(vyre::DataType::F64, shape.to_vec(), values.iter().map(|x| f64::from(*x)).collect())
    });
    let parameters = Parameters { causal, ..Parameters::default() };
    let found = vyre_ops::op("attention").expect("an op").reference(&plain, &parameters).swap_remove(0);
    match found.numbers {
        vyre_ops::Numbers::Float(all) => all,
        vyre_ops::Numbers::Whole(_) => panic!("attention is of floats"),
    }
}

#[test]
fn queries_find_values() {
    let mut random = Random(40);
    // Batches, queries, keys, dim.
    let shapes: &[[usize; 4]] = &[
        [1, 1, 1, 16],
        [2, 33, 33, 16],
        [1, 65, 129, 32],
        [3, 1, 200, 64],
        [1, 200, 1, 64],
        [1, 130, 70, 128],
        [2, 64, 64, 96],
        [1, 9, 12, 7],
        [1, 20, 31, 80],
        [1, 5, 0, 16],
        [0, 5, 3, 16],
        // Larger tiles.
        [130, 127, 5, 32],
        [256, 130, 67, 16],
    ];
    for &[batches, m, n, dim] in shapes {
        let (a, b) = ([batches, m, dim], [batches, n, dim]);
        // Numbers that f16 has, and scores that differ by much.
        let mut halves = |count: usize| -> Vec<f32> {
            (0..count).map(|_| half::f16::from_f32(3.0 * random.unit()).to_f32()).collect()
        };
        let (q, k, v) = (halves(batches * m * dim), halves(batches * n * dim), halves(batches * n * dim));
        for causal in [false, true] {
            let expected = expected_of([(&q, a), (&k, b), (&v, b)], causal);
            let mut first: Option<Vec<f32>> = None;
            for (name, engine) in engines() {
                // Software compiles a kernel for each length of rows, slowly.
                if name != "cpu" && !name.starts_with("cuda") && (dim != 7 || causal) {
                    continue;
                }
                let told = format!("{name} {batches} {m} {n} {dim} {causal}");
                let [x, y, z] = [(&q, a), (&k, b), (&v, b)]
                    .map(|(values, shape)| engine.from_shape(shape, values).expect("an array"));
                let found = read(x.attention(&y, &z, causal)).expect("f32 is everywhere");
                for (at, (found, wanted)) in found.iter().zip(&expected).enumerate() {
                    assert!((f64::from(*found) - wanted).abs() < 1e-5, "{told}: element {at} is {found}, not {wanted}");
                }
                assert_eq!(found.len(), expected.len());
                // The same bits everywhere.
                assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{told}");
                let [x, y, z] = [x, y, z].map(|array| array.lazy().cast::<half::f16>());
                let Some(found) = read(x.attention(&y, &z, causal)) else { continue };
                for (at, (found, wanted)) in found.iter().zip(&expected).enumerate() {
                    assert!(
                        (found.to_f64() - wanted).abs() < 4e-3,
                        "{told} f16: element {at} is {found}, not {wanted}"
                    );
                }
                // Halves are rounded, so what is expected is not of these numbers.
                let round = |values: &[f32]| values.iter().map(|x| half::bf16::from_f32(*x)).collect::<Vec<_>>();
                let [x, y, z] = [(&q, a), (&k, b), (&v, b)].map(|(values, shape)| (round(values), shape));
                let widened = [&x, &y, &z].map(|(values, _)| values.iter().map(|x| x.to_f32()).collect::<Vec<_>>());
                let wanted = expected_of([(&widened[0], a), (&widened[1], b), (&widened[2], b)], causal);
                let [x, y, z] = [x, y, z].map(|(values, shape)| {
                    engine.array(&values).and_then(|array| array.shaped(shape)).expect("an array")
                });
                let Some(found) = read(vyre_ops::attention_bf16(&x, &y, &z, causal)) else { continue };
                for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                    assert!(
                        (found.to_f64() - wanted).abs() < 3e-2,
                        "{told} bf16: element {at} is {found}, not {wanted}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (_, engine) = &engines()[0];
    let array = |shape: [usize; 2]| engine.full(shape, 1.0f32).expect("an array");
    let (x, longer, wide) = (array([4, 16]), array([4, 17]), array([4, 129]));
    assert!(x.attention(&longer, &longer, false).is_err());
    assert!(x.attention(&x, &array([5, 16]), false).is_err());
    assert!(wide.attention(&wide, &wide, false).is_err());
    let words = engine.full([4usize, 16], 1u32).expect("an array");
    assert!(words.attention(&words, &words, false).is_err());
}
