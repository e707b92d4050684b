//! Views that are not what lies one after another.

mod support;

use std::sync::Arc;

use support::Sim;
use vyre::{Array, Engine, codes};

const INCREMENT: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn increment(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] += 1u; }
    }";

const ADD: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&out) { out[id.x] = a[id.x] + 1u; }
    }";

fn engines() -> Vec<(&'static str, Engine)> {
    let builder = || Engine::builder().without_default_backends().without_disk();
    #[allow(unused_mut, reason = "the processor is a feature")]
    let mut engines = vec![("sim", builder().with_backend(Arc::new(Sim::new("sim", 2, 1 << 30)), 1).open().unwrap())];
    #[cfg(feature = "cpu")]
    engines.push(("cpu", builder().with_backend(Arc::new(vyre_cpu::CpuBackend::new().unwrap()), 1).open().unwrap()));
    #[cfg(feature = "wgpu")]
    match vyre_wgpu::WgpuBackend::probe() {
        Ok(adapter) => engines.push(("wgpu", builder().with_backend(adapter, 1).open().unwrap())),
        Err(absent) => println!("not on wgpu: {}", absent.message),
    }
    #[cfg(feature = "cuda")]
    match vyre_cuda::CudaBackend::probe() {
        Ok(device) => engines.push(("cuda", builder().with_backend(device, 1).open().unwrap())),
        Err(absent) => println!("not on CUDA: {}", absent.message),
    }
    engines
}

/// The elements of a view as the host finds them.
fn expected(all: &[u32], layout: &vyre::Layout) -> Vec<u32> {
    layout.positions().map(|position| all[position]).collect()
}

#[test]
fn views_are_read_and_made_contiguous_where_the_data_is() {
    for (name, engine) in engines() {
        let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap();
        let mut array = engine.from_shape([4, 5, 6], &(0..120).collect::<Vec<u32>>()).unwrap();
        for on_device in [false, true] {
            if on_device {
                increment.bind("x", &mut array).launch().unwrap();
            }
            let all: Vec<u32> = (0..120).map(|i| i + u32::from(on_device)).collect();
            let check = |view: vyre::ArrayView<'_, u32>| {
                let wanted = expected(&all, view.layout());
                let made = view.to_array().unwrap();
                assert_eq!(made.shape(), view.shape(), "{name}");
                assert_eq!(made.to_vec().unwrap(), wanted, "{name}: {:?}", view.layout());
                assert_eq!(view.to_vec().unwrap(), wanted, "{name}");
            };
            check(array.view());
            check(array.slice(1..3).unwrap());
            check(array.view().transposed());
            check(array.view().permuted(&[1, 0, 2]).unwrap());
            check(array.view().slice_axis(2, 1.., 2).unwrap().slice_axis(1, 2..3, 1).unwrap());
            check(array.slice(2..3).unwrap().broadcast([3, 5, 6]).unwrap());
            check(array.view().slice_axis(1, 5.., 1).unwrap());
            assert!(array.view().broadcast([4, 5, 7]).is_err() && array.view().permuted(&[0, 1]).is_err());
        }
    }
}

#[test]
fn a_launch_takes_what_lies_one_after_another_and_says_so_of_the_rest() {
    for (name, engine) in engines() {
        let add = engine.kernel(&vyre::wgsl(ADD).unwrap()).unwrap();
        let array = engine.from_shape([8, 8], &(0..64).collect::<Vec<u32>>()).unwrap();
        let mut out = engine.zeros::<u32>([8, 8]).unwrap();
        let error = add.bind("a", array.view().transposed()).bind("out", &mut out).launch().unwrap_err();
        assert_eq!(error.code(), codes::engine::SHAPE.id, "{name}");
        assert!(error.fix().contains("to_array"), "{name}: {}", error.fix());
        let turned = array.view().transposed().to_array().unwrap();
        add.bind("a", &turned).bind("out", &mut out).launch().unwrap();
        assert_eq!(out.to_vec().unwrap()[..3], [1, 9, 17], "{name}");
    }
}

#[test]
fn narrow_elements_and_vectors_have_views_too() {
    for (name, engine) in engines() {
        let bytes = engine.from_shape([3, 2], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(bytes.view().transposed().to_array().unwrap().to_vec().unwrap(), [1, 3, 5, 2, 4, 6], "{name}");
        let pairs: Array<[f32; 2]> =
            engine.from_shape([2, 2], &[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]).unwrap();
        let turned = pairs.view().transposed().to_array().unwrap().to_vec().unwrap();
        assert_eq!(turned, [[1.0, 2.0], [5.0, 6.0], [3.0, 4.0], [7.0, 8.0]], "{name}");
    }
}
