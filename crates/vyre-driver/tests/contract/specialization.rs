//! Section 5.

use std::collections::HashSet;

use proptest::prelude::*;
use vyre_driver::backend::{DispatchConfig, NullBackend, VyreBackend};
use vyre_driver::specialization::{
    SpecCacheKey, SpecMap, SpecValue, versioned_specialization_artifact_key, vsa_specialization_key,
};
use vyre_foundation::ir::{DataType, Literal};

use crate::{program_with_constants, store_program};

fn map(values: &[(&str, SpecValue)]) -> SpecMap {
    let mut map = SpecMap::new();
    for (name, value) in values {
        map.insert(*name, value.clone());
    }
    map
}

#[test]
fn values_are_numbers_for_pipelines() {
    assert_eq!(SpecValue::U32(u32::MAX).as_pipeline_f64(), 4294967295.0);
    assert_eq!(SpecValue::I32(-5).as_pipeline_f64(), -5.0);
    assert_eq!(SpecValue::F32(0.1).as_pipeline_f64(), f64::from(0.1f32));
    assert_eq!(SpecValue::Bool(true).as_pipeline_f64(), 1.0);
    assert_eq!(SpecValue::DType(DataType::F32).as_pipeline_f64(), 11.0);
}

#[test]
fn values_hash_by_type_and_bits() {
    let vector = |element| DataType::Vec { element: Box::new(element), count: 4 };
    let values = [
        SpecValue::U32(0),
        SpecValue::U32(1),
        SpecValue::I32(0),
        SpecValue::I32(1),
        SpecValue::F32(0.0),
        SpecValue::F32(-0.0),
        SpecValue::F32(f32::from_bits(0x7fc0_0000)),
        SpecValue::F32(f32::from_bits(0x7fc0_0001)),
        SpecValue::Bool(false),
        SpecValue::Bool(true),
        SpecValue::DType(DataType::F32),
        SpecValue::DType(vector(DataType::F32)),
        SpecValue::DType(vector(DataType::U32)),
    ];
    let hashes: HashSet<u64> = values.iter().map(SpecValue::cache_hash).collect();
    assert_eq!(hashes.len(), values.len());
    for value in &values {
        assert_eq!(value.cache_hash(), value.clone().cache_hash());
        assert_eq!(value, &value.clone(), "also a NaN is itself");
    }
}

#[test]
fn maps_are_sorted_and_counted() {
    let map = map(&[("b", SpecValue::U32(2)), ("a", SpecValue::Bool(true)), ("c", SpecValue::F32(0.5))]);
    assert_eq!((map.len(), map.is_empty(), SpecMap::new().is_empty()), (3, false, true));
    assert_eq!(map.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "b", "c"]);
    let numbers = map.to_numeric_constants();
    assert_eq!((numbers.len(), numbers["a"], numbers["b"], numbers["c"]), (3, 1.0, 2.0, 0.5));
}

#[test]
fn names_and_values_are_delimited() {
    let one = map(&[("ab", SpecValue::U32(1))]);
    let two = map(&[("a", SpecValue::U32(1)), ("b", SpecValue::U32(1))]);
    let three = map(&[("a", SpecValue::U32(1)), ("b", SpecValue::I32(1))]);
    let hashes = HashSet::from([one.cache_hash(), two.cache_hash(), three.cache_hash(), SpecMap::new().cache_hash()]);
    assert_eq!(hashes.len(), 4);
    // The 256-bit digest starts with the 64-bit hash, so they are of the same material.
    assert_eq!(one.digest()[..8], one.cache_hash().to_le_bytes());
}

fn any_value() -> impl Strategy<Value = SpecValue> {
    prop_oneof![
        any::<u32>().prop_map(SpecValue::U32),
        any::<i32>().prop_map(SpecValue::I32),
        any::<u32>().prop_map(|bits| SpecValue::F32(f32::from_bits(bits))),
        any::<bool>().prop_map(SpecValue::Bool),
    ]
}

proptest! {
    #[test]
    fn insertion_order_never_matters(values in prop::collection::btree_map("[a-c]{1,3}", any_value(), 0..6)) {
        let forward: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        prop_assert_eq!(map(&forward), map(&backward));
        prop_assert_eq!(map(&forward).cache_hash(), map(&backward).cache_hash());
        prop_assert_eq!(map(&forward).digest(), map(&backward).digest());
    }

    #[test]
    fn different_maps_have_different_digests(
        a in prop::collection::btree_map("[ab]{0,2}", any_value(), 0..4),
        b in prop::collection::btree_map("[ab]{0,2}", any_value(), 0..4),
    ) {
        let a: SpecMap = a.into_iter().collect();
        let b: SpecMap = b.into_iter().collect();
        prop_assert_eq!(a == b, a.digest() == b.digest());
    }

    #[test]
    fn artifact_keys_delimit_their_texts(a in ".{0,6}", b in ".{0,6}", c in ".{0,6}", d in ".{0,6}") {
        let same = (&a, &b) == (&c, &d);
        prop_assert_eq!(same, versioned_specialization_artifact_key(1, &a, &b) == versioned_specialization_artifact_key(1, &c, &d));
    }
}

#[test]
fn cache_keys_follow_every_part() {
    let (a, b) = (map(&[("K", SpecValue::U32(1))]), map(&[("K", SpecValue::U32(2))]));
    let base = SpecCacheKey::new(1, 2, [64, 1, 1], &a);
    assert_eq!(
        base,
        SpecCacheKey { shader_hash: 1, binding_sig: 2, workgroup_size: [64, 1, 1], spec_hash: a.cache_hash() }
    );
    let keys = HashSet::from([
        base,
        SpecCacheKey::new(1, 2, [64, 1, 1], &b),
        SpecCacheKey::new(2, 2, [64, 1, 1], &a),
        SpecCacheKey::new(1, 1, [64, 1, 1], &a),
        SpecCacheKey::new(1, 2, [1, 64, 1], &a),
    ]);
    assert_eq!(keys.len(), 5);
}

#[test]
fn vsa_keys_have_program_and_specialization_in_their_halves() {
    let key = vsa_specialization_key(&store_program(1), 7);
    assert_eq!(key as u64, 7);
    assert_eq!((vsa_specialization_key(&store_program(1), u64::MAX) >> 64), key >> 64);
    assert_ne!((vsa_specialization_key(&store_program(2), 7) >> 64), key >> 64);
    assert_eq!(vsa_specialization_key(&store_program(2), 9) as u64, 9);
}

#[test]
fn artifact_keys_are_64_hex_digits() {
    let key = versioned_specialization_artifact_key(1, "ab", "cd");
    assert_eq!(key.len(), 64);
    assert!(key.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    assert_ne!(key, versioned_specialization_artifact_key(1, "abc", "d"));
    assert_ne!(key, versioned_specialization_artifact_key(2, "ab", "cd"));
}

#[test]
fn constants_are_set_by_name_and_type() {
    let program = program_with_constants();
    let values = map(&[
        ("tile", SpecValue::U32(8)),
        ("signed", SpecValue::I32(-3)),
        ("scale", SpecValue::F32(0.25)),
        ("flag", SpecValue::Bool(true)),
        ("half", SpecValue::F32(0.5)),
    ]);
    let resolved = values.resolve(&program).unwrap();
    assert_eq!(resolved["tile"], Literal::U32(8));
    assert_eq!(resolved["signed"], Literal::I32(-3));
    assert_eq!(resolved["scale"], Literal::F32(0.25));
    assert_eq!(resolved["flag"], Literal::Bool(true));
    assert_eq!(resolved["half"], Literal::F16(half::f16::from_f32(0.5)));
    // A number of the other signedness is taken where it is the same number.
    assert_eq!(map(&[("tile", SpecValue::I32(8))]).resolve(&program).unwrap()["tile"], Literal::U32(8));
}

#[test]
fn unknown_names_and_wrong_types_are_refused() {
    let program = program_with_constants();
    let code = |name: &str, value: SpecValue| map(&[(name, value)]).resolve(&program).unwrap_err().code.id;
    assert_eq!(code("tyle", SpecValue::U32(8)), "V0901");
    let wrong = [
        ("tile", SpecValue::F32(8.0)),
        ("tile", SpecValue::I32(-1)),
        ("tile", SpecValue::Bool(true)),
        ("tile", SpecValue::DType(DataType::U32)),
        ("signed", SpecValue::U32(u32::MAX)),
        ("scale", SpecValue::U32(1)),
        ("flag", SpecValue::U32(1)),
        // Not a number of 16 bits.
        ("half", SpecValue::F32(0.1)),
        ("half", SpecValue::F32(1e9)),
    ];
    for (name, value) in wrong {
        assert_eq!(code(name, value.clone()), "V0902", "{name}: {value:?}");
    }
    let error = map(&[("tyle", SpecValue::U32(8))]).resolve(&program).unwrap_err();
    assert!(error.message.contains("tile"), "the message names what there is: {}", error.message);
    // And a dispatch with such a map fails with that diagnostic, on any backend that plans.
    let mut config = DispatchConfig::default();
    config.specialization.insert("tyle", 8u32);
    assert_eq!(NullBackend::new().dispatch(&program, &[], &config).unwrap_err().code(), "V0901");
}

#[test]
fn constants_fold_and_a_false_branch_leaves_no_code() {
    use vyre_foundation::ir::{Expr, Node, SpecConstant};
    use vyre_foundation::kernel::{Inst, Options, lower};
    let program = store_program(1)
        .with_constants(vec![SpecConstant { name: "extra".into(), default: true.into() }])
        .with_body(vec![
            Node::store("out", Expr::global_id(0), Expr::u32(1)),
            Node::if_then(Expr::constant("extra"), vec![Node::store("out", Expr::u32(3), Expr::u32(99))]),
        ]);
    let stores = |specialization: SpecMap| {
        let options = Options { specialization: specialization.resolve(&program).unwrap(), ..Options::default() };
        let kernel = lower(&program.validate().unwrap(), &options).unwrap();
        assert!(!kernel.body.insts.iter().any(|inst| matches!(inst, Inst::If { .. })), "the branch is folded");
        kernel.body.insts.iter().filter(|inst| matches!(inst, Inst::Store { .. })).count()
    };
    assert_eq!(stores(SpecMap::new()), 2);
    assert_eq!(stores(map(&[("extra", SpecValue::Bool(false))])), 1);
}
