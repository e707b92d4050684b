//! What arrays and launches stand on: devices and their memory, pieces of work and their fates, and values that may have copies in
//! several places.

mod deps;
mod device;
mod host;
mod job;
mod memory;
mod storage;
mod watcher;

pub(crate) use deps::{Deps, late};
pub(crate) use device::Device;
pub(crate) use host::{HostPool, foreign_mut, foreign_ref, room_for};
pub(crate) use job::{Job, Jobs};
pub use memory::MemoryUse;
pub(crate) use memory::{Block, Loan};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use storage::Export;
pub(crate) use storage::{Held, Storage};
pub(crate) use watcher::{Alarm, Watcher, WhenDone};
