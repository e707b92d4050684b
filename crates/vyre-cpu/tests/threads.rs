//! The backend's threads: as many as the process may use or was told to, started for work, gone with the backend, and in nobody's
//! way.
#![cfg(target_os = "linux")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use vyre_conform::device::{add_one, words, works};
use vyre_cpu::{CpuBackend, CpuOptions};
use vyre_driver::backend::{Binding, CompileOptions, Launch, Order};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

/// Enough work to be spread, were there somewhere to spread it.
fn large(backend: &CpuBackend) {
    let count = 1u32 << 20;
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(count)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(3))],
    );
    let results = backend.dispatch(&program, &[], &DispatchConfig::default()).expect("a result");
    assert!(results[0].chunks_exact(4).enumerate().all(|(at, word)| word == (at as u32 * 3).to_le_bytes()));
}

/// Threads of backends in this process.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this system lists threads");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "vyre-cpu").count()
}

/// Runs a test of this file again as a process of its own.
fn in_child(test: &str, name: &str, value: &str) {
    let program = std::env::current_exe().expect("this test's own program");
    let child = Command::new(program)
        .args(["--exact", test, "--include-ignored"])
        .env("VYRE_TEST_CHILD", "1")
        .env_remove("VYRE_THREADS")
        .env(name, value)
        .output()
        .expect("it can be started");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

fn is_child() -> bool {
    std::env::var_os("VYRE_TEST_CHILD").is_some()
}

#[test]
fn a_process_with_one_processor_gets_one_thread() {
    if !is_child() {
        return in_child("a_process_with_one_processor_gets_one_thread", "VYRE_TEST", "affinity");
    }
    // SAFETY: the set is plain data, and the call reads it only.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let now = libc::sched_getcpu().max(0) as usize;
        libc::CPU_SET(now, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set)
    };
    assert_eq!(done, 0, "the affinity can be set");
    let backend = CpuBackend::new().expect("a backend");
    assert_eq!(backend.threads(), 1);
    large(&backend);
}

#[test]
fn the_environment_says_how_many() {
    if !is_child() {
        in_child("the_environment_says_how_many", "VYRE_THREADS", "3");
        return in_child("the_environment_says_how_many", "VYRE_THREADS", "many");
    }
    match CpuBackend::new() {
        Ok(backend) => {
            assert_eq!(backend.threads(), 3);
            large(&backend);
        }
        Err(error) => {
            assert!(error.code() == codes::cpu::THREADS.id && error.message().contains("many"), "{error}");
            let mut options = CpuOptions::default();
            options.threads = std::num::NonZero::new(2);
            assert_eq!(CpuBackend::with_options(&options).expect("the caller's word counts").threads(), 2);
        }
    }
}

#[test]
fn small_launches_start_no_thread_and_a_backend_takes_its_threads_along() {
    if !is_child() {
        return in_child("small_launches_start_no_thread_and_a_backend_takes_its_threads_along", "VYRE_THREADS", "4");
    }
    let backend = CpuBackend::new().expect("a backend");
    works(&backend).expect("a small dispatch");
    let pipeline =
        backend.compile(&add_one().validate().expect("valid"), &CompileOptions::default()).expect("it compiles");
    let bindings = [Binding::from(backend.allocate(1024).expect("memory"))];
    for _ in 0..10 {
        let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [4, 1, 1])).expect("a launch");
        backend.wait(ticket, None).expect("its end");
    }
    assert_eq!(threads(), 0);
    let endless = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::forever(vec![Node::store("data", 0u32, Expr::load("data", 0u32) + 1u32)])],
    );
    let mut options = CompileOptions::default();
    options.interruptible = true;
    let endless = backend.compile(&endless.validate().expect("valid"), &options).expect("it compiles");
    for queue in 0..2 {
        let order = Order { queue, ..Order::default() };
        let launch = Launch { order, ..Launch::new(&bindings, [1 << 10, 1, 1]) };
        let ticket = backend.submit(&endless, &launch).expect("a launch");
        backend.forget(ticket);
    }
    let until = |what: &str, condition: &dyn Fn() -> bool| {
        let patience = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < patience, "{what}: {} threads", threads());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until("as many as may work", &|| threads() >= 4);
    assert!(threads() <= 4 + 3);
    drop(backend);
    until("all of them end with the backend", &|| threads() == 0);
}

/// Waiting inside another pool's threads keeps nobody from the work.
#[test]
fn rayon_workers_launch_and_wait() {
    let backend = Arc::new(CpuBackend::new().expect("a backend"));
    let pipeline =
        backend.compile(&add_one().validate().expect("valid"), &CompileOptions::default()).expect("it compiles");
    (0..64u32).into_par_iter().for_each(|round| {
        let size = if round % 2 == 0 { 1 << 8 } else { 1 << 16 };
        let buffer = backend.allocate(size * 4).expect("memory");
        let order = Order { queue: round % 4, ..Order::default() };
        let bindings = [Binding::from(buffer.clone())];
        for _ in 0..20 {
            let launch = Launch { order, ..Launch::new(&bindings, [(size / 64) as u32, 1, 1]) };
            let ticket = backend.submit(&pipeline, &launch).expect("a launch");
            backend.wait(ticket, None).expect("its end");
        }
        let mut bytes = vec![0; size as usize * 4];
        backend.download(&buffer, 0, &mut bytes, &order).expect("a result");
        assert!(bytes.chunks_exact(4).all(|word| word == [20, 0, 0, 0]));
        if round % 8 == 0 {
            large(&backend);
        }
        let input = words(0..1000);
        let results = backend.dispatch_borrowed(&add_one(), &[&input], &DispatchConfig::default());
        assert_eq!(results.expect("a result"), [words(1..1001)]);
    });
}
