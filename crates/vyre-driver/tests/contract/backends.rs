//! Section 3.

use std::sync::Arc;
use std::time::Duration;

use vyre_driver::backend::{
    Binding, Capabilities, CompileOptions, HostDispatch, HostMemory, KeptPipelines, Launch, NullBackend, Order,
    Recording, Step, Ticket, dispatch_through,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_foundation::kernel::{Features, Options, lower};
use vyre_spec::{Diagnostic, codes};

use crate::store_program;

/// `id` and `dispatch` are a complete backend.
struct Echo;

impl VyreBackend for Echo {
    fn id(&self) -> &'static str {
        "echo"
    }

    fn dispatch(&self, _: &Program, inputs: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Ok(inputs.to_vec())
    }
}

struct Steps;

impl Recording for Steps {
    fn steps(&self) -> usize {
        1
    }
}

#[test]
fn two_methods_make_a_backend() {
    let backend: Arc<dyn VyreBackend> = Arc::new(Echo);
    let config = DispatchConfig::default();
    let inputs = vec![vec![1, 2], vec![3]];
    assert_eq!(backend.dispatch(&store_program(1), &inputs, &config).unwrap(), inputs);
    let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    assert_eq!(backend.dispatch_borrowed(&store_program(1), &borrowed, &config).unwrap(), inputs);
    fn shared<T: Send + Sync + ?Sized>(_: &T) {}
    shared(&*backend);
}

#[test]
fn the_resident_path_is_unsupported_until_a_backend_has_it() {
    let null = NullBackend::new();
    let program = store_program(1).validate().unwrap();
    let options = CompileOptions::default();
    let pipeline = null.compile(&program, &options).unwrap();
    let buffer = null.allocate(16).unwrap();
    let order = Order::default();
    let part = Binding::from(buffer.clone());
    let ticket = Ticket { queue: 0, number: 1 };
    let steps = [Step::Clear(part.clone())];
    let recording: Arc<dyn Recording> = Arc::new(Steps);
    let errors = [
        Echo.compile(&program, &options).err(),
        Echo.load(&program, &options, &[]).err(),
        Echo.allocate(1).err(),
        Echo.adopt(&Arc::new(HostMemory::new(8).unwrap())).err(),
        Echo.upload(&buffer, 0, &[1], &order).err(),
        Echo.download(&buffer, 0, &mut [0], &order).err(),
        Echo.copy(&part, &part, &order).err(),
        Echo.clear(&part, &order).err(),
        Echo.submit(&pipeline, &Launch::new(&[], [1; 3])).err(),
        Echo.poll(ticket).err(),
        Echo.wait(ticket, None).err(),
        Echo.cancel(ticket).err(),
        Echo.record(&steps).err(),
        Echo.revise(&recording, &[]).err(),
        Echo.replay(&recording, &order).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.code(), "V0703");
        assert!(error.message().contains("`echo`") && error.to_string().contains("Fix:"), "{error}");
    }
    assert!(!Echo.capabilities().resident);
    assert!(null.capabilities().resident);
}

#[test]
fn errors_have_a_code_and_a_cure() {
    let error = BackendError::new("the device caught fire");
    assert_eq!((error.code(), error.message()), ("V0701", "the device caught fire"));
    assert!(error.to_string().contains("Fix: ") && error.to_string().contains("V0701"), "{error}");
    let own = BackendError::new("no power. Fix: plug it in.");
    assert_eq!((own.message(), own.fix()), ("no power.", "plug it in."));
    assert_eq!(own.to_string().matches("Fix:").count(), 1);
    let diagnostic = Diagnostic::new(&codes::cache::CORRUPT, "bad").at("body[1]");
    let from = BackendError::from(diagnostic.clone());
    assert_eq!((from.code(), from.message()), ("V0801", "bad"));
    assert_eq!(from.diagnostic().place, diagnostic.place);
    let error: Box<dyn std::error::Error + Send + Sync> = Box::new(from);
    assert!(error.to_string().contains("V0801"));
}

#[test]
fn configurations_compare_and_default_to_nothing() {
    let config = DispatchConfig::default();
    assert_eq!(config, config.clone());
    assert_eq!(config.profile, None);
    assert_eq!((config.ulp_budget, config.timeout, config.max_output_bytes), (None, None, None));
    assert_eq!((config.workgroup_override, config.grid_override), (None, None));
    assert!(config.label.is_none() && config.specialization.is_empty() && config.output_elements.is_empty());
    let mut changed = config.clone();
    changed.timeout = Some(Duration::from_secs(1));
    assert_ne!(config, changed);
    let mut nan = DispatchConfig::default();
    nan.specialization.insert("x", f32::NAN);
    assert_eq!(nan, nan.clone(), "equality is reflexive, so `Eq` is true");
}

fn three_buffers() -> Program {
    // Declared out of order: the bindings decide.
    Program::wrapped(
        vec![
            BufferDecl::output("c", 3, DataType::U32),
            BufferDecl::read_write("b", 2, DataType::F32),
            BufferDecl::uniform("u", 1, DataType::U32),
            BufferDecl::read("a", 0, DataType::U32),
        ],
        [64, 1, 1],
        vec![
            Node::store("c", Expr::global_id(0), Expr::load("a", Expr::global_id(0))),
            Node::store("b", Expr::global_id(0), Expr::f32(1.0)),
            Node::store("c", Expr::u32(0), Expr::load("u", Expr::u32(0))),
        ],
    )
}

#[test]
fn the_null_backend_checks_everything_and_gives_zeros() {
    let null = NullBackend::new();
    let config = DispatchConfig::default();
    let inputs = [vec![1; 32], vec![1; 4], vec![1; 8]];
    let results = null.dispatch(&three_buffers(), &inputs, &config).unwrap();
    assert_eq!(results, [vec![0; 8], vec![0; 32]], "`b`, then `c` with the length of `a`");
    assert_eq!(null.dispatch(&three_buffers(), &inputs[..2], &config).unwrap_err().code(), "V0191");
    let odd = [vec![1; 31], vec![1; 4], vec![1; 8]];
    assert_eq!(null.dispatch(&three_buffers(), &odd, &config).unwrap_err().code(), "V0192");
    let invalid = store_program(1).with_body(vec![Node::store("nowhere", Expr::u32(0), Expr::u32(0))]);
    assert!(null.dispatch(&invalid, &[], &config).is_err());
    let mut limited = DispatchConfig::default();
    limited.max_output_bytes = Some(39);
    assert_eq!(null.dispatch(&three_buffers(), &inputs, &limited).unwrap_err().code(), "V0710");
    limited.max_output_bytes = Some(40);
    assert!(null.dispatch(&three_buffers(), &inputs, &limited).is_ok());
}

#[test]
fn the_resident_path_goes_from_compile_to_result() {
    let null = NullBackend::new();
    let program = three_buffers().validate().unwrap();
    let pipeline = null.compile(&program, &CompileOptions::default()).unwrap();
    assert_eq!(pipeline.workgroup_size(), [64, 1, 1]);
    let again = null.load(&program, &CompileOptions::default(), &pipeline.artifact().unwrap()).unwrap();
    assert_eq!(again.workgroup_size(), [64, 1, 1]);
    assert_eq!(null.load(&program, &CompileOptions::default(), b"junk").err().unwrap().code(), "V0711");
    let inputs: [&[u8]; 3] = [&[1; 32], &[1; 4], &[1; 8]];
    let dispatch = HostDispatch::check(&null, &program, &inputs, &DispatchConfig::default()).unwrap();
    assert_eq!(dispatch_through(&null, &dispatch, &pipeline, &inputs, None).unwrap(), [vec![0; 8], vec![0; 32]]);
    let buffer = null.allocate(16).unwrap();
    let bindings: Vec<Binding> = (0..4).map(|_| buffer.clone().into()).collect();
    let first = null.submit(&pipeline, &Launch::new(&bindings, [1; 3]).timed()).unwrap();
    let second = null.submit(&again, &Launch::new(&bindings, [1; 3])).unwrap();
    assert!(first < second, "launches are numbered in order");
    assert_eq!(null.wait(second, Some(Duration::ZERO)).unwrap().unwrap().device_ns, None);
    assert_eq!(null.poll(first), null.poll(second));
    let unknown = Ticket { number: second.number + 1, ..second };
    for result in [null.wait(unknown, None).err(), null.poll(unknown).err(), null.cancel(unknown).err()] {
        assert_eq!(result.unwrap().code(), codes::backend::UNKNOWN_TICKET.id);
    }
    let order = Order { after: &[unknown], ..Order::default() };
    let launch = Launch { order, ..Launch::new(&bindings, [1; 3]) };
    assert_eq!(null.submit(&pipeline, &launch).unwrap_err().code(), codes::backend::UNKNOWN_TICKET.id);
    let order = Order { queue: 9, ..Order::default() };
    let launch = Launch { order, ..Launch::new(&bindings, [1; 3]) };
    assert_eq!(null.submit(&pipeline, &launch).unwrap_err().code(), "V0705");
    assert_eq!(null.submit(&pipeline, &Launch::new(&bindings[1..], [1; 3])).unwrap_err().code(), "V0712");
    let mut outside = bindings.clone();
    outside[2].offset = 8;
    assert_eq!(null.submit(&pipeline, &Launch::new(&outside, [1; 3])).unwrap_err().code(), "V0709");
    let order = Order::default();
    assert_eq!(null.upload(&buffer, u64::MAX, &[1], &order).unwrap_err().code(), "V0709");
    let part = |offset| Binding { buffer: buffer.clone(), offset, bytes: 8 };
    assert_eq!(null.copy(&part(0), &part(9), &order).unwrap_err().code(), "V0709");
}

#[test]
fn handles_of_another_backend_are_refused() {
    struct Foreign;
    impl vyre_driver::backend::DeviceBuffer for Foreign {
        fn bytes(&self) -> u64 {
            64
        }
    }
    impl vyre_driver::backend::Pipeline for Foreign {
        fn workgroup_size(&self) -> [u32; 3] {
            [1; 3]
        }
    }
    let null = NullBackend::new();
    let buffer = vyre_driver::backend::Buffer::new(Foreign);
    let order = Order::default();
    assert_eq!(null.upload(&buffer, 0, &[1], &order).unwrap_err().code(), "V0708");
    assert_eq!(null.download(&buffer, 0, &mut [1], &order).unwrap_err().code(), "V0708");
    let pipeline: Arc<dyn vyre_driver::backend::Pipeline> = Arc::new(Foreign);
    assert_eq!(null.submit(&pipeline, &Launch::new(&[], [1; 3])).unwrap_err().code(), "V0708");
}

#[test]
fn capabilities_say_what_a_device_lacks() {
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F64), BufferDecl::output("b", 1, DataType::F64)],
        [512, 1, 1],
        vec![Node::store("b", Expr::global_id(0), Expr::load("a", Expr::global_id(0)))],
    );
    let kernel = lower(&program.validate().unwrap(), &Options::default()).unwrap();
    assert_eq!(NullBackend::new().capabilities().check(&kernel), Ok(()));
    let mut device = Capabilities::default();
    let lacks = device.check(&kernel).unwrap_err();
    assert_eq!(lacks.code.id, "V0704");
    assert!(lacks.message.contains("f64"), "{}", lacks.message);
    device.features = Features(u32::MAX);
    assert_eq!(device.check(&kernel).unwrap_err().code.id, "V0705", "512 invocations are too many");
    device.limits.max_workgroup_size = [1024; 3];
    device.limits.max_workgroup_invocations = 1024;
    assert_eq!(device.check(&kernel), Ok(()));
    device.limits.max_bindings = 1;
    let lasting = device.check(&kernel).unwrap_err();
    assert_eq!(lasting.code.id, "V0717");
    assert_eq!(lasting.code.class, vyre_spec::codes::Class::Program, "no other launch of it would do better");
}

#[test]
fn launches_over_the_device_are_refused_before_they_reach_it() {
    let program = store_program(1).validate().unwrap();
    let plan = vyre_driver::launch::plan(&program, &[], &DispatchConfig::default()).unwrap();
    let mut device = Capabilities::default();
    assert_eq!(device.check_launch(&program, &plan).unwrap_err().code.id, "V0704", "it holds no u32");
    device.types = vyre_driver::backend::TypeSet::all();
    assert_eq!(device.check_launch(&program, &plan), Ok(()));
    let mut wide = plan.clone();
    wide.grid = [1, 70_000, 1];
    assert_eq!(device.check_launch(&program, &wide).unwrap_err().code.id, "V0705");
    let mut large = plan;
    large.buffer_bytes[0] = 1 << 40;
    assert_eq!(device.check_launch(&program, &large).unwrap_err().code.id, "V0705");
}

#[test]
fn type_sets_know_vectors_by_their_components() {
    use vyre_driver::backend::TypeSet;
    let set = TypeSet::of(&[DataType::U32, DataType::F32]);
    assert!(set.contains(&DataType::U32) && set.contains(&DataType::Vec2U32));
    assert!(set.contains(&DataType::vector(DataType::F32, 3)));
    assert!(!set.contains(&DataType::F16) && !set.contains(&DataType::vector(DataType::F16, 2)));
    assert!(!TypeSet::all().contains(&DataType::Tensor));
}

#[test]
fn a_second_dispatch_finds_the_pipeline_of_the_first() {
    let null = NullBackend::new();
    let kept = KeptPipelines::<u32>::default();
    let made = std::cell::Cell::new(0);
    let pipeline = |config: &DispatchConfig| {
        let dispatch = HostDispatch::check(&null, &store_program(1), &[], config).unwrap();
        *kept.get_or_make(&dispatch, |_, _| Ok(std::sync::Arc::new(made.replace(made.get() + 1)))).unwrap()
    };
    let mut config = DispatchConfig::default();
    assert_eq!([pipeline(&config), pipeline(&config)], [0, 0]);
    config.label = Some("another name".to_owned());
    assert_eq!(pipeline(&config), 0, "code doesn't depend on the label");
    config.workgroup_override = Some([128, 1, 1]);
    assert_eq!(pipeline(&config), 1);
    config.timeout = Some(Duration::from_secs(1));
    assert_eq!([pipeline(&config), pipeline(&DispatchConfig::default())], [2, 0]);
}
