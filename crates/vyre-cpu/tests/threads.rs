//! The threads that workgroups are spread over are those that the process may use.
#![cfg(target_os = "linux")]

use std::process::Command;

use vyre_cpu::CpuBackend;
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

const CHILD: &str = "VYRE_TEST_ONE_PROCESSOR";

/// Enough work to be spread, were there somewhere to spread it.
fn dispatch() {
    let count = 1u32 << 20;
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(count)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(3))],
    );
    let backend = CpuBackend::new().expect("a backend");
    let results = backend.dispatch(&program, &[], &DispatchConfig::default()).expect("a result");
    assert!(results[0].chunks_exact(4).enumerate().all(|(at, word)| word == (at as u32 * 3).to_le_bytes()));
}

#[test]
fn a_process_with_one_processor_gets_one_thread() {
    if std::env::var_os(CHILD).is_some() {
        // SAFETY: the set is plain data, and the call reads it only.
        let done = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let now = libc::sched_getcpu().max(0) as usize;
            libc::CPU_SET(now, &mut set);
            libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set)
        };
        assert_eq!(done, 0, "the affinity can be set");
        dispatch();
        assert_eq!(rayon::current_num_threads(), 1);
        return;
    }
    let program = std::env::current_exe().expect("this test's own program");
    let child = Command::new(program)
        .args(["--exact", "a_process_with_one_processor_gets_one_thread"])
        .env(CHILD, "1")
        .env_remove("RAYON_NUM_THREADS")
        .output()
        .expect("it can be started");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}
