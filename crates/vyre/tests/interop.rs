//! Memory of others as arrays, and arrays for others.
#![allow(unsafe_code, reason = "what other libraries do by their own rules is done here by hand")]

mod support;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use support::Sim;
use vyre::dlpack::{DL_CPU, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use vyre::{Engine, codes};

const INCREMENT: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn increment(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] += 1u; }
    }";

/// On the processor, where memory is worked on in place, and on a device with its own.
fn engines() -> Vec<Engine> {
    let builder = || Engine::builder().without_default_backends().without_disk();
    #[allow(unused_mut, reason = "the processor is a feature")]
    let mut engines = vec![builder().with_backend(Arc::new(Sim::new("sim", 1, 1 << 30)), 1).open().unwrap()];
    #[cfg(feature = "cpu")]
    engines.push(builder().with_backend(Arc::new(vyre_cpu::CpuBackend::new().unwrap()), 1).open().unwrap());
    engines
}

/// A tensor of `u32` whose deleter counts.
struct Tensor {
    managed: DLManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    data: Vec<u32>,
    deleted: Arc<AtomicU32>,
}

unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
    // SAFETY: the owner is the box that was made for it.
    let tensor = unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Tensor>()) };
    tensor.deleted.fetch_add(1, Ordering::SeqCst);
}

fn tensor(
    data: Vec<u32>,
    first: usize,
    shape: &[i64],
    strides: &[i64],
    deleted: &Arc<AtomicU32>,
) -> *mut DLManagedTensor {
    let dl_tensor = DLTensor {
        data: std::ptr::null_mut(),
        device: DLDevice { device_type: DL_CPU, device_id: 0 },
        ndim: shape.len() as i32,
        dtype: DLDataType { code: 1, bits: 32, lanes: 1 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: first as u64 * 4,
    };
    let managed = DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(delete) };
    let deleted = deleted.clone();
    let mut tensor = Box::new(Tensor { managed, shape: shape.to_vec(), strides: strides.to_vec(), data, deleted });
    tensor.managed.dl_tensor.data = tensor.data.as_mut_ptr().cast();
    tensor.managed.dl_tensor.shape = tensor.shape.as_mut_ptr();
    if !strides.is_empty() {
        tensor.managed.dl_tensor.strides = tensor.strides.as_mut_ptr();
    }
    let tensor = Box::into_raw(tensor);
    // SAFETY: just made.
    unsafe {
        (*tensor).managed.manager_ctx = tensor.cast::<c_void>();
        &raw mut (*tensor).managed
    }
}

#[test]
fn a_tensor_is_an_array_until_its_memory_is_needed_no_more() {
    for engine in engines() {
        let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap();
        let deleted = Arc::new(AtomicU32::new(0));
        let given = tensor((0..100).collect(), 0, &[20, 5], &[5, 1], &deleted);
        // SAFETY: it follows `dlpack.h`, and is given up.
        let mut array = unsafe { engine.from_dlpack::<u32>(given, None) }.unwrap();
        assert_eq!(array.shape(), [20, 5]);
        let before = array.clone();
        increment.bind("x", &mut array).launch().unwrap();
        assert_eq!(array.to_vec().unwrap(), (1..101).collect::<Vec<u32>>());
        assert_eq!(before.to_vec().unwrap(), (0..100).collect::<Vec<u32>>(), "a clone is a value of its own");
        assert_eq!(deleted.load(Ordering::SeqCst), 0);
        drop((array, before));
        engine.synchronize();
        assert_eq!(deleted.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn elements_that_lie_otherwise_are_copied_and_the_tensor_goes_at_once() {
    let engine = &engines()[0];
    let deleted = Arc::new(AtomicU32::new(0));
    let take = |tensor| {
        // SAFETY: it follows `dlpack.h`, and is given up.
        unsafe { engine.from_dlpack::<u32>(tensor, None) }
    };
    let columns = take(tensor((0..6).collect(), 0, &[3, 2], &[1, 3], &deleted)).unwrap();
    assert_eq!((columns.to_vec().unwrap(), columns.shape()), (vec![0, 3, 1, 4, 2, 5], &[3, 2][..]));
    let backwards = take(tensor((0..6).collect(), 5, &[3], &[-2], &deleted)).unwrap();
    assert_eq!(backwards.to_vec().unwrap(), [5, 3, 1]);
    // Not at a multiple of eight bytes.
    let odd = take(tensor((0..6).collect(), 1, &[5], &[], &deleted)).unwrap();
    assert_eq!(odd.to_vec().unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(take(tensor(Vec::new(), 0, &[0, 4], &[], &deleted)).unwrap().shape(), [0, 4]);
    assert_eq!(deleted.load(Ordering::SeqCst), 4);
}

#[test]
fn a_tensor_that_can_not_be_taken_is_deleted_once() {
    let engine = &engines()[0];
    let deleted = Arc::new(AtomicU32::new(0));
    let given = tensor(vec![1], 0, &[1], &[], &deleted);
    // SAFETY: as above.
    let error = unsafe { engine.from_dlpack::<f32>(given, None) }.map(drop).unwrap_err();
    assert_eq!(error.code(), codes::engine::WRONG_ELEMENT.id);
    for change in [
        |t: &mut DLTensor| t.ndim = -1,
        |t: &mut DLTensor| t.device.device_type = 99,
        |t: &mut DLTensor| {
            t.shape = std::ptr::null_mut();
        },
    ] {
        let given = tensor(vec![1], 0, &[1], &[], &deleted);
        // SAFETY: as above.
        let error = unsafe {
            change(&mut (*given).dl_tensor);
            engine.from_dlpack::<u32>(given, None)
        };
        assert_eq!(error.map(drop).unwrap_err().code(), codes::engine::FOREIGN_TENSOR.id);
    }
    // SAFETY: none is given.
    assert!(unsafe { engine.from_dlpack::<u32>(std::ptr::null_mut(), None) }.is_err());
    assert_eq!(deleted.load(Ordering::SeqCst), 4);
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: both boxes were made for it.
    unsafe {
        let inner = (*tensor).manager_ctx.cast::<DLManagedTensor>();
        drop(Box::from_raw(tensor));
        delete(inner);
    }
}

#[test]
fn what_must_not_be_written_is_copied_and_other_versions_are_refused() {
    let engine = &engines()[0];
    let deleted = Arc::new(AtomicU32::new(0));
    let versioned = |major, flags| {
        let inner = tensor((0..64).collect(), 0, &[64], &[], &deleted);
        // SAFETY: just made; the memory stays that of the inner one.
        let dl_tensor = unsafe { std::ptr::read(&raw const (*inner).dl_tensor) };
        let version = DLPackVersion { major, minor: 0 };
        let (manager_ctx, deleter) = (inner.cast(), Some(delete_versioned as unsafe extern "C" fn(_)));
        Box::into_raw(Box::new(DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor }))
    };
    // SAFETY: they follow `dlpack.h`, and are given up.
    let read_only = unsafe { engine.from_dlpack_versioned::<u32>(versioned(1, 1), None) }.unwrap();
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
    assert_eq!(read_only.to_vec().unwrap()[63], 63);
    // SAFETY: as above.
    let other = unsafe { engine.from_dlpack_versioned::<u32>(versioned(9, 0), None) };
    assert_eq!(other.map(drop).unwrap_err().code(), codes::engine::FOREIGN_TENSOR.id);
    assert_eq!(deleted.load(Ordering::SeqCst), 2);
}

#[test]
fn an_array_becomes_a_tensor_that_keeps_its_memory() {
    for engine in engines() {
        let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap();
        let mut array = engine.from_shape([2, 3], &[1u32, 2, 3, 4, 5, 6]).unwrap();
        let other = array.clone();
        increment.bind("x", &mut array).launch().unwrap();
        // SAFETY: there is no stream.
        let given = unsafe { array.into_dlpack_versioned(None) }.unwrap();
        // SAFETY: it is whole until its deleter is called.
        let tensor = unsafe { &(*given).dl_tensor };
        // SAFETY: as above.
        let (shape, data) = unsafe {
            let data = std::slice::from_raw_parts_mut(tensor.data.cast::<u32>(), 6);
            (std::slice::from_raw_parts(tensor.shape, tensor.ndim as usize), data)
        };
        assert_eq!((shape, &data[..]), (&[2i64, 3][..], &[2, 3, 4, 5, 6, 7][..]));
        data[0] = 99;
        assert_eq!(other.to_vec().unwrap()[0], 1);
        // And back again.
        // SAFETY: it is given up.
        let back = unsafe { engine.from_dlpack_versioned::<u32>(given, None) }.unwrap();
        assert_eq!(back.to_vec().unwrap(), [99, 3, 4, 5, 6, 7]);
    }
    let engine = &engines()[0];
    // SAFETY: there is no stream.
    let vectors = unsafe { engine.zeros::<[f32; 4]>(2).unwrap().into_dlpack(None) };
    assert_eq!(vectors.map(drop).unwrap_err().code(), codes::engine::WRONG_ELEMENT.id);
}

#[test]
fn a_vector_is_an_array_without_a_copy() {
    for engine in engines() {
        let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap();
        let used = engine.memory()[0].used;
        let mut array = engine.array_of_vec(vec![7u32; 100_000]).unwrap();
        assert_eq!(engine.memory()[0].used, used, "the memory is the vector's");
        increment.bind("x", &mut array).launch().unwrap();
        assert!(array.to_vec().unwrap().iter().all(|&x| x == 8));
        assert!(engine.array_of_vec(Vec::<u32>::new()).unwrap().is_empty());
        drop(array);
        engine.synchronize();
        // What is somebody else's is not kept for later.
        assert_eq!(engine.memory()[0].idle, 0);
        let mut pinned = engine.pinned::<u32>([10, 10]).unwrap();
        increment.bind("x", &mut pinned).launch().unwrap();
        assert_eq!((pinned.to_vec().unwrap()[99], pinned.shape()), (1, &[10, 10][..]));
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_come_and_go_whatever_their_layout() {
    use ndarray::{Array2, s};
    let engine = &engines()[0];
    let given = Array2::from_shape_fn((4, 6), |(row, column)| (row * 6 + column) as u32);
    let array = engine.array_of_view(&given).unwrap();
    assert_eq!(array.to_ndarray().unwrap(), given.clone().into_dyn());
    let part = given.slice(s![1.., ..;3]);
    let mut strided = engine.array_of_view(&part.t()).unwrap();
    assert_eq!(strided.to_ndarray().unwrap(), part.t().to_owned().into_dyn());
    strided.write_view(&part.t()).unwrap();
    assert!(strided.write_view(&part).is_err());
    for owned in [given.clone(), given.clone().reversed_axes(), given.slice_move(s![1..3, ..])] {
        assert_eq!(engine.array_of_ndarray(owned.clone()).unwrap().to_ndarray().unwrap(), owned.into_dyn());
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_program_s_own_wgpu_device_shares_its_buffers() {
    use vyre::wgpu;
    let Some((adapter, device, queue)) = own_device() else { return println!("skipped: there is no wgpu adapter") };
    let builder = Engine::builder().without_disk().wgpu_device(&adapter, device.clone(), queue.clone());
    let engine = builder.open().unwrap();
    let Some(id) = engine.backend_ids().iter().map(|id| id.as_str().to_owned()).find(|id| id.starts_with("wgpu"))
    else {
        panic!("the device has a backend");
    };
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffer =
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 64, usage, mapped_at_creation: false });
    queue.write_buffer(&buffer, 0, &[1; 64]);
    let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap().on(&id).unwrap();
    let mut array = engine.wrap_wgpu::<u32>(&id, buffer.clone()).unwrap();
    increment.bind("x", &mut array).launch().unwrap();
    // The program's own work on the same buffer, after ours and before the next of ours.
    {
        let view = array.wgpu_mut(&id).unwrap();
        assert_eq!(*view.buffer(), buffer, "it is worked on in place");
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(view.buffer(), 0, Some(32));
        queue.submit([encoder.finish()]);
    }
    increment.bind("x", &mut array).launch().unwrap();
    let elements = array.to_vec().unwrap();
    assert_eq!((&elements[..8], &elements[8..]), (&[1; 8][..], &[0x0101_0103; 8][..]));
    // Written elsewhere, it is brought to the buffer when it is asked for.
    array.write(&[5; 16]).unwrap();
    let _ = array.wgpu(&id).unwrap();
    assert_eq!(array.to_vec().unwrap(), [5; 16]);
    assert!(engine.wrap_wgpu::<u32>("cpu", buffer).is_err());
}

#[cfg(feature = "wgpu")]
fn own_device() -> Option<(vyre::wgpu::Adapter, vyre::wgpu::Device, vyre::wgpu::Queue)> {
    use vyre::wgpu;
    let name = vyre_wgpu::WgpuBackend::probe().ok()?.capabilities().name.clone();
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapter =
        ready(instance.enumerate_adapters(backends)).into_iter().find(|adapter| adapter.get_info().name == name)?;
    let descriptor = wgpu::DeviceDescriptor {
        required_features: wgpu::Features::IMMEDIATES,
        required_limits: adapter.limits(),
        ..wgpu::DeviceDescriptor::default()
    };
    let (device, queue) = ready(adapter.request_device(&descriptor)).unwrap();
    Some((adapter, device, queue))
}

/// wgpu's futures are ready at once.
#[cfg(feature = "wgpu")]
fn ready<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("wgpu is not ready"),
    }
}

#[cfg(feature = "cuda")]
#[test]
fn arrays_on_a_cuda_device_are_lent_and_come_back() {
    use vyre::dlpack::DL_CUDA;
    let device = match vyre_cuda::CudaBackend::probe() {
        Ok(device) => device,
        Err(absent) => return println!("skipped: {}", absent.message),
    };
    let engine = Engine::builder().without_default_backends().without_disk().with_backend(device, 1).open().unwrap();
    let increment = engine.kernel(&vyre::wgsl(INCREMENT).unwrap()).unwrap();
    let mut array = engine.array(&(0..1000).collect::<Vec<u32>>()).unwrap();
    increment.bind("x", &mut array).launch().unwrap();
    {
        // SAFETY: 0 is the default stream.
        let view = unsafe { array.cuda_mut("cuda", 0) }.unwrap();
        assert!(view.pointer() != 0 && view.bytes() == 4000);
    }
    increment.bind("x", &mut array).launch().unwrap();
    // SAFETY: 0 is the default stream.
    let tensor = unsafe { array.into_dlpack(Some(0)) }.unwrap();
    // SAFETY: it is whole until its deleter is called.
    assert_eq!(unsafe { (*tensor).dl_tensor.device }, DLDevice { device_type: DL_CUDA, device_id: 0 });
    // SAFETY: it is given up; 0 is the default stream.
    let mut back = unsafe { engine.from_dlpack::<u32>(tensor, Some(0)) }.unwrap();
    increment.bind("x", &mut back).launch().unwrap();
    assert_eq!(back.to_vec().unwrap(), (3..1003).collect::<Vec<u32>>());
    let mut pinned = engine.pinned::<u32>(100_000).unwrap();
    for _ in 0..3 {
        increment.bind("x", &mut pinned).launch().unwrap();
        let elements = pinned.to_vec().unwrap();
        pinned.write(&elements).unwrap();
    }
    assert!(pinned.to_vec().unwrap().iter().all(|&x| x == 3));
}
