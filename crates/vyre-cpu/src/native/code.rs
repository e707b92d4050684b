//! Executable memory. It is written first and made executable after; never both at once.

use std::ptr::NonNull;

/// Machine code in memory of its own.
#[derive(Debug)]
pub(super) struct Code {
    start: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the memory is never written again after `Code::new`.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

/// What compiled code is called as: the context, the first workgroup along x, the end along x, y and z.
#[cfg(target_arch = "x86_64")]
type Entry = unsafe extern "sysv64" fn(*mut u64, u32, u32, u32, u32);
#[cfg(not(target_arch = "x86_64"))]
type Entry = unsafe extern "C" fn(*mut u64, u32, u32, u32, u32);

impl Code {
    /// Maps the bytes; `None` when the system refuses.
    #[cfg(not(unix))]
    pub(super) fn new(_: &[u8]) -> Option<Code> {
        None
    }

    /// Maps the bytes; `None` when the system refuses.
    #[cfg(unix)]
    pub(super) fn new(bytes: &[u8]) -> Option<Code> {
        let mapped = bytes.len().max(1).next_multiple_of(4096);
        // SAFETY: a fresh private mapping, written within its bounds, then made executable and no longer writable.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if at == libc::MAP_FAILED {
                return None;
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast(), bytes.len());
            if libc::mprotect(at, mapped, libc::PROT_READ | libc::PROT_EXEC) != 0 {
                libc::munmap(at, mapped);
                return None;
            }
            synchronise(at.cast(), mapped);
            Some(Code { start: NonNull::new(at.cast())?, mapped })
        }
    }

    /// Runs some workgroups.
    ///
    /// # Safety
    /// The bytes are a function that this crate's emitter made, and the context is laid out as it expects: buffers of the
    /// sizes it was told, scratch, workgroup and local memory of the sizes that belong to the code.
    pub(super) unsafe fn call(&self, context: *mut u64, first: u32, end: u32, y: u32, z: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            let entry: Entry = std::mem::transmute(self.start.as_ptr());
            entry(context, first, end, y, z);
        }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        unmap(self.start, self.mapped);
    }
}

/// Gives the memory back; nobody calls the code any more.
#[cfg(unix)]
fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: mapped by `Code::new` with this size.
    unsafe {
        libc::munmap(start.as_ptr().cast(), bytes);
    }
}

/// Nothing was mapped.
#[cfg(not(unix))]
fn unmap(_: NonNull<u8>, _: usize) {}

/// Makes instructions that were written as data visible to instruction fetch, where that does not happen by itself.
///
/// # Safety
/// The memory is mapped.
#[cfg(unix)]
unsafe fn synchronise(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: cache maintenance by address of mapped memory, as the architecture prescribes it, with the smallest line there is.
    unsafe {
        use std::arch::asm;
        let lines = || (0..bytes).step_by(16).map(|at| start.add(at));
        for line in lines() {
            asm!("dc cvau, {}", in(reg) line, options(nostack));
        }
        asm!("dsb ish", options(nostack));
        for line in lines() {
            asm!("ic ivau, {}", in(reg) line, options(nostack));
        }
        asm!("dsb ish", "isb", options(nostack));
    }
    #[cfg(all(target_arch = "riscv64", target_os = "linux"))]
    // SAFETY: the system call that flushes the instruction caches of all harts; it reads no memory.
    unsafe {
        const FLUSH_ICACHE: libc::c_long = 259;
        libc::syscall(FLUSH_ICACHE, start, start.add(bytes), 0);
    }
    #[cfg(not(any(target_arch = "aarch64", target_arch = "riscv64")))]
    let _ = (start, bytes);
}
