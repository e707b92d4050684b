//! SPIR-V out, and in again.

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{Literal, Specialization};
use vyre_reference::{RunOptions, run};
use vyre_wgsl::{ImportOptions, export_spirv, import, import_spirv};

fn program(text: &str) -> ValidProgram {
    let program = import(text, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", problems[0]));
    program.validate().unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn again(bytes: &[u8]) -> ValidProgram {
    let program = import_spirv(bytes, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", problems[0]));
    program.validate().unwrap_or_else(|problems| panic!("{}", problems[0]))
}

#[test]
fn every_example_kernel_has_spirv_that_is_read_again() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels");
    let (mut made, mut read) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("the kernels are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path()).expect("a kernel");
        let first = program(&text);
        let bytes = export_spirv(&first, &Specialization::new(), None).unwrap_or_else(|why| panic!("{name}: {why}"));
        made += 1;
        let second = match import_spirv(&bytes, &ImportOptions::default()) {
            Ok(second) => second.validate().unwrap_or_else(|problems| panic!("{name}: {}", problems[0])),
            // naga's SPIR-V front end does not understand the zeroing of atomics that its back end writes.
            Err(problems) => {
                assert!(text.contains("atomic"), "{name}: {}", problems[0]);
                continue;
            }
        };
        read += 1;
        assert_eq!(first.name(), second.name().trim_end_matches('_'), "{name}");
        let names = |program: &ValidProgram| -> Vec<String> {
            let order = program.binding_order();
            // What is a word of WGSL has a dash behind it since.
            order.iter().map(|&index| program.buffers()[index].name.as_str().trim_end_matches('_').to_owned()).collect()
        };
        assert_eq!(names(&first), names(&second), "{name}");
    }
    assert!(made > 30 && read > 25, "only {made} kernels were found, and {read} read again");
}

#[test]
fn constants_and_sizes_are_filled_in() {
    let first = program(
        "override factor: f32 = 2.0;
         override wide: u32 = 4u;
         @group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(wide) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&a) { out[id.x] = a[id.x] * factor + f32(wide); }
         }",
    );
    let input: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    for factor in [0.5f32, 3.0] {
        let values = Specialization::from([("factor".into(), Literal::F32(factor)), ("wide".into(), Literal::U32(8))]);
        let second = again(&export_spirv(&first, &values, None).unwrap());
        assert_eq!(second.workgroup_size(), [8, 1, 1]);
        let options = RunOptions { specialization: values.clone(), ..RunOptions::default() };
        let expected = run(&first, &[&input], &options).unwrap();
        assert_eq!(run(&second, &[&input], &RunOptions::default()).unwrap(), expected);
        let resized = again(&export_spirv(&first, &values, Some([16, 1, 1])).unwrap());
        assert_eq!(resized.workgroup_size(), [16, 1, 1]);
        assert_eq!(run(&resized, &[&input], &RunOptions::default()).unwrap(), expected);
    }
    let unknown = Specialization::from([("facto".into(), Literal::F32(1.0))]);
    assert_eq!(export_spirv(&first, &unknown, None).unwrap_err().code.id, "V0410");
}
