//! More elements than a u32 can count: only when asked for, with `VYRE_OPS_HUGE=1`, because it takes 25 GB.

use vyre::{Array, Expression, Number};
use vyre_ops::Ops;

use crate::support::engines;

const COUNT: usize = (1 << 32) + 77;

fn cast<T: Number>(bytes: &Array<u8>) -> Expression<T> {
    Expression::of(bytes.lazy().term().cast(&T::data_type().expect("a number")))
}

#[test]
fn more_than_a_u32_can_count() {
    if std::env::var_os("VYRE_OPS_HUGE").is_none() {
        return;
    }
    for (name, engine) in engines().iter().filter(|(name, _)| name == "cpu" || name.starts_with("cuda")) {
        let mut bytes: Array<u8> = engine.zeros(COUNT).expect("4 GB");
        // At both ends and on either side of what a u32 counts.
        let places = [0, 5, (1 << 30) - 1, 1 << 30, (1 << 32) - 1, 1 << 32, COUNT - 1];
        for (place, value) in places.into_iter().zip(1u8..) {
            bytes.slice_mut(place..=place).and_then(|mut one| one.write(&[value])).expect("a byte");
        }
        let total: u64 = (1..=places.len() as u64).sum();
        let wide = cast::<u64>(&bytes);
        assert_eq!(wide.sum().and_then(|sum| sum.value()).expect("a sum"), total, "{name}");
        let most = cast::<u32>(&bytes).max().and_then(|most| most.value());
        assert_eq!(most.expect("a maximum"), places.len() as u32, "{name}");
        // Cast, mapped, and looked at where the ends of launches are.
        let mapped = (cast::<f32>(&bytes) * 2.0 + 1.0).eval().expect("16 GB");
        for (place, value) in places.into_iter().zip(1u8..) {
            let found = mapped.slice(place..=place).and_then(|one| one.to_vec()).expect("an element");
            assert_eq!(found, [f32::from(value) * 2.0 + 1.0], "{name} at {place}");
        }
        assert_eq!(mapped.slice(COUNT - 3..COUNT - 1).and_then(|two| two.to_vec()).expect("two"), [1.0, 1.0], "{name}");
        drop(mapped);
        let filled = engine.full(COUNT, 3u32).expect("16 GB");
        let sum = filled.lazy().cast::<u64>().sum().and_then(|sum| sum.value()).expect("a sum");
        assert_eq!(sum, 3 * COUNT as u64, "{name}");
        // What can't count so many says so.
        let told = filled.sort().err().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(told.contains("more than are sorted"), "{name}: {told}");
        let told = filled.argmax().err().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(told.contains("more than a u32 can count"), "{name}: {told}");
        println!("{name}: {COUNT} elements");
    }
}
