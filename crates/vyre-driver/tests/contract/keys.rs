//! Section 4: constants, flags, keys, fingerprints.

use std::collections::HashSet;
use std::time::Duration;

use vyre_driver::DispatchConfig;
use vyre_driver::backend::{Capabilities, CompileOptions, NullBackend, VyreBackend};
use vyre_driver::pipeline::{
    CURRENT_PIPELINE_CACHE_KEY_VERSION, DEFAULT_1D_WORKGROUP_SIZE, MAX_DISK_PIPELINE_BLOB_BYTES, PipelineCacheKey,
    PipelineDeviceFingerprint, PipelineFeatureFlags, PipelineKey, dispatch_policy_cache_string, hex_encode,
    normalized_program_cache_digest,
};
use vyre_driver::specialization::{SpecMap, SpecValue};
use vyre_foundation::ir::{BufferDecl, Builtin, DataType, Expr, Literal, Node, Program, SpecConstant, SubgroupOp};
use vyre_foundation::kernel::{Features, Options, lower};
use vyre_spec::BackendId;

use crate::store_program;

#[test]
fn constants_have_their_values() {
    assert_eq!(DEFAULT_1D_WORKGROUP_SIZE, [64, 1, 1]);
    assert_eq!(MAX_DISK_PIPELINE_BLOB_BYTES, 64 * 1024 * 1024);
    let _: u32 = CURRENT_PIPELINE_CACHE_KEY_VERSION;
}

#[test]
fn feature_bits_are_frozen() {
    use PipelineFeatureFlags as F;
    let all = [
        F::SUBGROUP_OPS,
        F::F16,
        F::BF16,
        F::TENSOR_CORES,
        F::ASYNC_COMPUTE,
        F::PUSH_CONSTANTS,
        F::INDIRECT_DISPATCH,
        F::SPECULATIVE,
        F::PERSISTENT_THREAD,
    ];
    for (bit, flag) in all.iter().enumerate() {
        assert_eq!(flag.bits(), 1 << bit);
        assert_eq!(*flag, F(1 << bit));
        assert!(!F::empty().contains(*flag));
        assert!(F::empty().union(*flag).contains(*flag));
    }
    let both = F::F16.union(F::BF16);
    assert!(both.contains(F::F16) && both.contains(both) && !F::F16.contains(both) && both.contains(F::empty()));
    let text = serde_json::to_string(&both).unwrap();
    assert_eq!(text, "6");
    assert_eq!(serde_json::from_str::<F>(&text).unwrap(), both);
}

#[test]
fn feature_flags_are_read_off_program_and_device() {
    let flags = |program: &Program, capabilities: &Capabilities| {
        let flags = PipelineFeatureFlags::of(program, capabilities);
        // What the optimiser finds is what was read off the program.
        let kernel = lower(&program.validate().unwrap(), &Options::default()).unwrap();
        for (feature, flag) in
            [(Features::SUBGROUP, PipelineFeatureFlags::SUBGROUP_OPS), (Features::F16, PipelineFeatureFlags::F16)]
        {
            let has = capabilities.pipeline_features.contains(flag) && kernel.features.contains(feature);
            assert_eq!(flags.contains(flag), has, "{flag:?}");
        }
        flags
    };
    let mut device = Capabilities::default();
    device.pipeline_features = PipelineFeatureFlags(u32::MAX);
    assert_eq!(flags(&store_program(1), &device), PipelineFeatureFlags::empty());
    let copy = |ty: DataType| {
        Program::wrapped(
            vec![BufferDecl::read("a", 0, ty.clone()), BufferDecl::output("b", 1, ty)],
            [64, 1, 1],
            vec![Node::store("b", Expr::global_id(0), Expr::load("a", Expr::global_id(0)))],
        )
    };
    assert_eq!(flags(&copy(DataType::F16), &device), PipelineFeatureFlags::F16);
    assert_eq!(flags(&copy(DataType::BF16), &device), PipelineFeatureFlags::BF16);
    let sum = Expr::Subgroup { op: SubgroupOp::Add, value: Box::new(Expr::u32(1)), argument: None };
    let subgroup = store_program(1).with_body(vec![Node::store("out", Expr::global_id(0), sum)]);
    assert_eq!(flags(&subgroup, &device), PipelineFeatureFlags::SUBGROUP_OPS);
    let lane = store_program(1).with_body(vec![Node::If {
        cond: Expr::bool(true),
        then: vec![Node::store("out", Expr::global_id(0), Expr::Builtin(Builtin::SubgroupLane))],
        otherwise: Vec::new(),
    }]);
    assert_eq!(flags(&lane, &device), PipelineFeatureFlags::SUBGROUP_OPS);
    let rounded = Expr::u32(3).cast(DataType::F16).cast(DataType::U32);
    let half = store_program(1).with_body(vec![Node::store("out", Expr::global_id(0), rounded)]);
    assert_eq!(PipelineFeatureFlags::of(&half, &device), PipelineFeatureFlags::F16);
    // What the device has not, no pipeline on it uses.
    assert_eq!(flags(&copy(DataType::BF16), &Capabilities::default()), PipelineFeatureFlags::empty());
    assert!(NullBackend::new().capabilities().pipeline_features.contains(PipelineFeatureFlags::SUBGROUP_OPS));
}

#[test]
fn pipelines_that_must_not_be_exchanged_have_different_keys() {
    let base = || PipelineCacheKey::new([1; 32], [2; 32], 16, [64, 1, 1], PipelineFeatureFlags::F16, "cpu");
    assert_eq!(base(), base());
    assert_eq!(base().digest(), base().digest());
    assert_eq!(base().version, CURRENT_PIPELINE_CACHE_KEY_VERSION);
    assert_eq!(base().backend_id, BackendId::from("cpu"));
    type Change = fn(&mut PipelineCacheKey);
    let changes: [Change; 7] = [
        |key| key.shader_hash = [3; 32],
        |key| key.bind_group_layout_hash = [3; 32],
        |key| key.push_constant_size = 17,
        |key| key.workgroup_size = [1, 64, 1],
        |key| key.feature_flags = PipelineFeatureFlags::BF16,
        |key| key.backend_id = BackendId::from("cuda"),
        |key| key.version += 1,
    ];
    let mut keys = HashSet::from([base()]);
    let mut digests = HashSet::from([base().digest()]);
    for change in changes {
        let mut key = base();
        change(&mut key);
        digests.insert(key.digest());
        keys.insert(key);
    }
    assert_eq!(keys.len(), 8);
    assert_eq!(digests.len(), 8);
}

#[test]
fn device_fingerprints_delimit_their_parts() {
    let from = PipelineDeviceFingerprint::from_parts;
    let base = from(1, 2, "ab", "cd");
    let copied = base;
    assert_eq!((copied.vendor, copied.device), (1, 2));
    assert_eq!(base, from(1, 2, "ab", "cd"));
    let all = [base, from(1, 2, "abc", "d"), from(1, 2, "", "abcd"), from(1, 2, "abcd", ""), from(1, 2, "cd", "ab")];
    let digests: HashSet<_> = all.iter().map(|fingerprint| fingerprint.driver_digest).collect();
    assert_eq!(digests.len(), all.len());
    let keys = [
        base.cache_key([0; 32]),
        base.cache_key([1; 32]),
        from(2, 1, "ab", "cd").cache_key([0; 32]),
        from(1, 2, "abc", "d").cache_key([0; 32]),
        from(1, 3, "ab", "cd").cache_key([0; 32]),
    ];
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
}

#[test]
fn program_digests_follow_the_program() {
    assert_eq!(normalized_program_cache_digest(&store_program(7)), normalized_program_cache_digest(&store_program(7)));
    assert_ne!(normalized_program_cache_digest(&store_program(7)), normalized_program_cache_digest(&store_program(8)));
    let resized = store_program(7).with_workgroup_size([32, 1, 1]);
    assert_ne!(normalized_program_cache_digest(&store_program(7)), normalized_program_cache_digest(&resized));
    assert_ne!(normalized_program_cache_digest(&Program::empty()), [0; 32]);
}

#[test]
fn policy_text_follows_what_changes_the_code() {
    let base = DispatchConfig::default();
    type Change = fn(&mut DispatchConfig);
    let code: [Change; 7] = [
        |config| config.ulp_budget = Some(1),
        |config| config.ulp_budget = Some(2),
        |config| config.workgroup_override = Some([64, 1, 1]),
        |config| config.profile = Some("fast".to_owned()),
        // Text that imitates the other parts stays within its own.
        |config| config.profile = Some("fast\":interruptible".to_owned()),
        |config| config.timeout = Some(Duration::from_secs(1)),
        |config| config.specialization = [("tile", SpecValue::U32(8))].into_iter().collect::<SpecMap>(),
    ];
    let mut texts = HashSet::from([dispatch_policy_cache_string(&base)]);
    for change in code {
        let mut config = base.clone();
        change(&mut config);
        assert_eq!(dispatch_policy_cache_string(&config), dispatch_policy_cache_string(&config.clone()));
        assert!(texts.insert(dispatch_policy_cache_string(&config)), "{config:?}");
    }
    let same: [Change; 4] = [
        |config| config.label = Some("x".to_owned()),
        |config| config.max_output_bytes = Some(7),
        |config| config.grid_override = Some([1, 1, 1]),
        |config| config.output_elements = [("out".to_owned(), 3)].into(),
    ];
    for change in same {
        let mut config = base.clone();
        change(&mut config);
        assert_eq!(dispatch_policy_cache_string(&config), dispatch_policy_cache_string(&base));
    }
}

#[test]
fn hex_is_lower_case() {
    assert_eq!(hex_encode(&[]), "");
    assert_eq!(hex_encode(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
}

#[test]
fn the_key_of_a_pipeline_knows_everything_that_changes_its_code() {
    let width = Literal::U32(4);
    let program = store_program(1).with_constants(vec![SpecConstant { name: "width".into(), default: width }]);
    let null = NullBackend::new();
    let key = |program: &Program, options: &CompileOptions| {
        PipelineKey::of(&null, &program.validate().unwrap(), options).unwrap()
    };
    let base = key(&program, &CompileOptions::default());
    assert_eq!(key(&program.clone(), &CompileOptions::default()), base);
    let mut named = CompileOptions::default();
    named.label = Some("another name".to_owned());
    named.workgroup_size = Some(program.workgroup_size());
    assert_eq!(key(&program, &named), base, "neither a name nor the program's own workgroup changes the code");
    type Change = fn(&mut CompileOptions);
    let changes: [Change; 9] = [
        |options| options.profile = Some("fast".to_owned()),
        |options| options.profile = Some(String::new()),
        |options| options.interruptible = true,
        |options| options.workgroup_size = Some([32, 1, 1]),
        |options| _ = options.specialization.insert("width".into(), Literal::U32(5)),
        |options| options.knobs.merged = [1, 2, 1],
        |options| options.knobs.rounds = Some(2),
        |options| options.knobs.registers = Some(2),
        |options| options.knobs.parts = Some(2),
    ];
    let mut keys = HashSet::from([base.clone()]);
    let mut digests = HashSet::from([base.digest()]);
    for change in changes {
        let mut options = CompileOptions::default();
        change(&mut options);
        let other = key(&program, &options);
        digests.insert(other.digest());
        keys.insert(other);
    }
    let resized = program.clone().with_buffers(vec![BufferDecl::output("out", 0, DataType::U32).with_count(9)]);
    let other = key(&resized, &CompileOptions::default());
    assert_ne!(other.pipeline.bind_group_layout_hash, base.pipeline.bind_group_layout_hash);
    digests.insert(other.digest());
    keys.insert(other);
    assert_eq!([keys.len(), digests.len()], [11, 11]);
    assert_eq!(base.pipeline.backend_id.as_str(), "null");
    assert_eq!(base.pipeline.workgroup_size, program.workgroup_size());
    assert_eq!(base.specialization.workgroup_size, program.workgroup_size());
    assert_eq!(base.device, null.capabilities().fingerprint);
}
