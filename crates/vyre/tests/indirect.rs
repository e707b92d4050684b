//! Launches whose size stands in an array, and arrays whose length does.

mod support;

use std::sync::Arc;

use support::Sim;
use vyre::{Engine, ReferenceBackend, VyreBackend, codes};

const EVENS: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @group(0) @binding(2) var<storage, read_write> count: array<atomic<u32>>;
    @compute @workgroup_size(64) fn evens(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) && a[id.x] % 2u == 0u { out[atomicAdd(&count[0], 1u)] = a[id.x]; }
    }";

const INCREMENT: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn increment(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] += 1u; }
    }";

const FILL: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn fill(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] = 9u; }
    }";

const GROUPS: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn groups(
        @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) all: vec3<u32>
    ) {
        if id.x < arrayLength(&x) { x[id.x] = all.x; }
    }";

fn engines() -> Vec<(&'static str, Engine)> {
    let open = |backend: Arc<dyn VyreBackend>| {
        Engine::builder().without_default_backends().without_disk().with_backend(backend, 1).open().unwrap()
    };
    #[allow(unused_mut, reason = "the processor is a feature")]
    let mut engines = vec![
        ("simulated", open(Arc::new(Sim::new("sim", 2, 1 << 30)))),
        ("reference", open(Arc::new(ReferenceBackend))),
    ];
    #[cfg(feature = "cpu")]
    engines.push(("cpu", open(Arc::new(vyre_cpu::CpuBackend::new().unwrap()))));
    #[cfg(feature = "wgpu")]
    match vyre_wgpu::WgpuBackend::probe() {
        Ok(adapter) => engines.push(("wgpu", open(adapter))),
        Err(absent) => println!("not on wgpu: {}", absent.message),
    }
    #[cfg(feature = "cuda")]
    match vyre_cuda::CudaBackend::probe() {
        Ok(device) => engines.push(("cuda", open(device))),
        Err(absent) => println!("not on CUDA: {}", absent.message),
    }
    engines
}

#[test]
fn as_many_run_as_earlier_work_has_counted() {
    for (name, engine) in engines() {
        let kernel = |source: &str| engine.kernel(&vyre::wgsl(source).unwrap()).unwrap();
        let (evens, increment) = (kernel(EVENS), kernel(INCREMENT));
        for wanted in [0usize, 1, 100, 5000] {
            let given: Vec<u32> = (0..10_000u32).map(|i| if (i as usize) < wanted { i * 2 } else { 1 }).collect();
            let a = engine.array(&given).unwrap();
            let mut found = engine.counted::<u32>(a.len()).unwrap();
            let (out, count) = found.parts_mut();
            evens.bind("a", &a).bind("out", out).bind("count", count).launch().unwrap();
            for _ in 0..3 {
                let (out, count) = found.parts_mut();
                increment.bind("x", out).domain_from(&*count).launch().unwrap();
            }
            assert_eq!(found.len().unwrap(), wanted, "{name}");
            let mut elements = found.to_vec().unwrap();
            elements.sort_unstable();
            assert_eq!(elements, (0..wanted as u32).map(|i| i * 2 + 3).collect::<Vec<_>>(), "{name}");
            // The last workgroup is whole; what comes after it has not run.
            let all = found.elements().to_vec().unwrap();
            let ran = wanted.next_multiple_of(64).min(all.len());
            assert!(all[wanted..ran].iter().all(|&x| x == 3), "{name}: {wanted}");
            assert!(all[ran..].iter().all(|&x| x == 0), "{name}: {wanted}");
        }
    }
}

#[test]
fn a_kernel_that_would_overwrite_everything_leaves_what_does_not_run() {
    // The simulated device makes results anew that a kernel only writes.
    for (name, engine) in engines().into_iter().filter(|(name, _)| *name != "simulated") {
        let fill = engine.kernel(&vyre::wgsl(FILL).unwrap()).unwrap();
        let mut x = engine.array(&vec![5u32; 1000]).unwrap();
        // Three numbers, of which a part is wanted; more than the array has elements does no harm.
        let sizes = engine.array(&[7u32, 2, 1, 1, u32::MAX, u32::MAX, u32::MAX]).unwrap();
        fill.bind("x", &mut x).grid_from(sizes.slice(1..4).unwrap()).launch().unwrap();
        let now = x.to_vec().unwrap();
        assert!(now[..128].iter().all(|&x| x == 9) && now[128..].iter().all(|&x| x == 5), "{name}");
        fill.bind("x", &mut x).grid_from(sizes.slice(4..7).unwrap()).launch().unwrap();
        assert!(x.to_vec().unwrap().iter().all(|&x| x == 9), "{name}");
        fill.bind("x", &mut x).domain([0, 1, 1]).launch().unwrap();
    }
}

#[test]
fn a_kernel_is_told_how_many_workgroups_there_really_are() {
    for (name, engine) in engines() {
        let groups = engine.kernel(&vyre::wgsl(GROUPS).unwrap()).unwrap();
        let mut x = engine.zeros::<u32>(1000).unwrap();
        let count = engine.array(&[130u32]).unwrap();
        groups.bind("x", &mut x).domain_from(&count).launch().unwrap();
        let now = x.to_vec().unwrap();
        assert!(now[..192].iter().all(|&x| x == 3) && now[192..].iter().all(|&x| x == 0), "{name}");
    }
}

#[test]
fn sizes_that_are_none_and_counts_that_do_not_fit_are_told() {
    for (name, engine) in engines() {
        let fill = engine.kernel(&vyre::wgsl(FILL).unwrap()).unwrap();
        let mut x = engine.zeros::<u32>(10).unwrap();
        let numbers = engine.array(&[1u32; 4]).unwrap();
        let error = fill.bind("x", &mut x).grid_from(&numbers).launch().unwrap_err();
        assert_eq!(error.code(), codes::engine::SHAPE.id, "{name}");
        let counted = vyre::Counted::new(x, engine.array(&[11u32]).unwrap()).unwrap();
        assert_eq!(counted.to_vec().unwrap_err().code(), codes::engine::SHAPE.id, "{name}");
    }
}

/// The steps of a graph count how much there is, and a later step of it runs on as much.
#[test]
fn a_step_of_a_graph_runs_on_as_many_as_an_earlier_one_has_counted() {
    for (name, engine) in engines().into_iter().filter(|(name, _)| *name != "reference") {
        let kernel = |source: &str| engine.kernel(&vyre::wgsl(source).unwrap()).unwrap();
        let (evens, increment, groups) = (kernel(EVENS), kernel(INCREMENT), kernel(GROUPS));
        let mut recorder = engine.record();
        let (a, out) = (recorder.place::<u32>("a", 1000), recorder.place::<u32>("out", 1000));
        let (count, seen) = (recorder.place::<u32>("count", 1), recorder.place::<u32>("seen", 1000));
        let grid = recorder.place::<u32>("grid", 3);
        recorder.launch(&evens).bind("a", a).bind("out", out).bind("count", count).add().unwrap();
        recorder.launch(&increment).bind("x", out).domain_from(count).add().unwrap();
        recorder.launch(&increment).bind("x", out).domain_from(count).add().unwrap();
        recorder.launch(&groups).bind("x", seen).grid_from(grid).add().unwrap();
        let graph = recorder.finish().unwrap();
        for wanted in [0usize, 70, 600, 1] {
            let given: Vec<u32> = (0..1000u32).map(|i| if (i as usize) < wanted { i * 2 } else { 1 }).collect();
            let (a, grid) = (engine.array(&given).unwrap(), engine.array(&[2u32, 1, 1]).unwrap());
            let [mut out, mut seen] = [(); 2].map(|()| engine.zeros::<u32>(1000).unwrap());
            let mut count = engine.zeros::<u32>(1).unwrap();
            let replay = graph.replay().bind("a", &a).bind("out", &mut out).bind("count", &mut count);
            replay.bind("seen", &mut seen).bind("grid", &grid).launch().unwrap();
            let (out, seen) = (out.to_vec().unwrap(), seen.to_vec().unwrap());
            assert_eq!(count.to_vec().unwrap(), [wanted as u32], "{name}");
            let mut found = out[..wanted].to_vec();
            found.sort_unstable();
            assert_eq!(found, (0..wanted as u32).map(|i| i * 2 + 2).collect::<Vec<_>>(), "{name}");
            let ran = wanted.next_multiple_of(64).min(1000);
            assert!(out[wanted..ran].iter().all(|&x| x == 2), "{name}: {wanted}");
            assert!(out[ran..].iter().all(|&x| x == 0), "{name}: {wanted}");
            assert!(seen[..128].iter().all(|&x| x == 2) && seen[128..].iter().all(|&x| x == 0), "{name}");
        }
        let mut recorder = engine.record();
        let (x, numbers) = (recorder.array::<u32>(10), recorder.array::<u32>(4));
        let wrong = recorder.launch(&increment).bind("x", x).grid_from(numbers).add().unwrap_err();
        assert_eq!(wrong.code(), codes::engine::SHAPE.id, "{name}");
    }
}
