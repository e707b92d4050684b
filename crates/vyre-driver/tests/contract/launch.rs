//! Section 8, launch.

use std::time::Duration;

use vyre_driver::DispatchConfig;
use vyre_driver::launch::{compile_options, plan, plan_sizes, program_vsa_fingerprint_words};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Literal, Node, Program};

use crate::{program_with_constants, store_program};

#[test]
fn fingerprint_words_are_little_endian() {
    let program = store_program(3);
    let words = program_vsa_fingerprint_words(&program);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(bytes, program.fingerprint());
    assert_ne!(words, program_vsa_fingerprint_words(&store_program(4)));
}

#[test]
fn plans_follow_the_configuration() {
    let program = store_program(1).validate().unwrap();
    let mut config = DispatchConfig::default();
    let base = plan(&program, &[], &config).unwrap();
    assert_eq!((base.grid, base.workgroup_size, &base.buffer_bytes[..]), ([1, 1, 1], [64, 1, 1], &[16][..]));
    config.workgroup_override = Some([2, 1, 1]);
    assert_eq!(plan(&program, &[], &config).unwrap().grid, [2, 1, 1]);
    config.grid_override = Some([5, 6, 7]);
    assert_eq!(plan(&program, &[], &config).unwrap().grid, [5, 6, 7]);
    config.workgroup_override = Some([0, 1, 1]);
    assert_eq!(plan(&program, &[], &config).unwrap_err().code.id, "V0194");
}

#[test]
fn open_results_take_their_length_from_the_configuration() {
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::u32(1))],
    )
    .validate()
    .unwrap();
    let mut config = DispatchConfig::default();
    assert_eq!(plan_sizes(&program, &[], &config).unwrap_err().code.id, "V0190");
    config.output_elements.insert("out".to_owned(), 1000);
    let planned = plan_sizes(&program, &[], &config).unwrap();
    assert_eq!((&planned.buffer_bytes[..], planned.grid), (&[4000][..], [16, 1, 1]));
    // A huge request is refused by the limit before anything is allocated.
    config.output_elements.insert("out".to_owned(), u64::MAX / 8);
    config.max_output_bytes = Some(1 << 30);
    config.grid_override = Some([1; 3]);
    assert_eq!(plan_sizes(&program, &[], &config).unwrap_err().code.id, "V0710");
}

#[test]
fn compile_options_hold_what_changes_the_code() {
    let mut config = DispatchConfig::default();
    config.specialization.insert("tile", 8u32);
    config.workgroup_override = Some([32, 1, 1]);
    config.ulp_budget = Some(2);
    config.profile = Some("fast".to_owned());
    config.timeout = Some(Duration::from_secs(1));
    let options = compile_options(&program_with_constants(), &config).unwrap();
    assert_eq!(options.specialization["tile"], Literal::U32(8));
    assert_eq!((options.workgroup_size, options.ulp_budget), (Some([32, 1, 1]), Some(2)));
    assert_eq!((options.profile.as_deref(), options.interruptible), (Some("fast"), true));
    assert!(compile_options(&store_program(1), &config).is_err(), "it has no such constant");
}
