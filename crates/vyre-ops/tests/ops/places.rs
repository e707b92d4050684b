//! An engine with several devices runs each op in the form that suits the one it goes to, and gives what each of them gives alone.

use vyre::{Array, Engine, Error};
use vyre_ops::Ops;

use crate::support::{Random, engines};

type Op = fn(&Array<f32>) -> Result<Array<f32>, Error>;

const OPS: [(&str, Op); 6] = [
    ("sum", |x| x.sum()),
    ("cumsum", |x| x.cumsum()),
    ("sort", |x| x.sort()),
    ("softmax", |x| x.softmax()),
    ("matmul", |x| x.matmul(x)),
    ("transpose", |x| x.transpose()),
];

#[test]
fn ops_of_an_engine_with_all_devices_give_what_each_gives_alone() {
    let mixed = Engine::builder().without_disk().open().expect("the engine opens");
    for side in [3usize, 150] {
        let values = Random(side as u64).units(side * side);
        let there = mixed.from_shape([side, side], &values).expect("an array");
        for (name, op) in OPS {
            let alone: Vec<Vec<u32>> = engines()
                .iter()
                .filter(|(id, _)| id == "cpu")
                .map(|(_, engine)| bits(op(&engine.from_shape([side, side], &values).expect("an array"))))
                .collect();
            // More often than the router asks for: it tries devices meanwhile.
            for _ in 0..12 {
                let given = bits(op(&there));
                assert!(alone.iter().all(|alone| *alone == given), "{name} of {side} x {side}");
            }
            assert_eq!(mixed.place(), None, "{name}");
        }
    }
}

fn bits(result: Result<Array<f32>, Error>) -> Vec<u32> {
    result.and_then(|array| array.to_vec()).expect("it is computed").into_iter().map(f32::to_bits).collect()
}

/// Every device does the whole of an op by itself where it is told to, with its own kernels under the same keys.
#[test]
fn each_device_has_kernels_of_its_own() {
    let mixed = Engine::builder().without_disk().open().expect("the engine opens");
    let values = Random(7).words(5000);
    let mut sorted = values.clone();
    sorted.sort_unstable();
    let mut sum = 0u32;
    let mut add = |x: &u32| {
        sum = sum.wrapping_add(*x);
        sum
    };
    let expected: Vec<u32> = values.iter().map(&mut add).collect();
    for (id, _) in engines() {
        // Whatever else there is has refused it.
        let array = mixed.array(&values).expect("an array");
        let mut places = Vec::new();
        let (sorts, sums) = mixed
            .as_a_whole(&format!("both on {id}"), 1, &[], || {
                let place = mixed.place().map(|place| place.to_string());
                places.push(place.clone());
                match place {
                    Some(place) if place != *id => Err(vyre::Diagnostic::new(
                        &vyre::codes::backend::UNSUPPORTED_FEATURE,
                        "not this one".to_owned(),
                    )
                    .into()),
                    _ => Ok((array.sort()?.to_vec()?, array.cumsum()?.to_vec()?)),
                }
            })
            .expect("one device does it");
        assert_eq!(places.last(), Some(&Some(id.clone())), "{places:?}");
        assert!(sorts == sorted && sums == expected, "{id}");
    }
}
