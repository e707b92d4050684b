//! Compiled pipelines: what keys them, what device they belong to, and the caches that keep them.

mod disk;
mod entry;
mod features;
mod identity;
mod key;
mod memory;
mod pack;
mod storage;
mod store;
mod trace;
mod upkeep;

pub use disk::{DiskCacheOptions, DiskCacheStats, DiskPipelineCache, Lookup, MAX_DISK_PIPELINE_BLOB_BYTES};
pub use features::PipelineFeatureFlags;
pub use identity::{Identity, PipelineKey};
pub use key::{
    CURRENT_PIPELINE_CACHE_KEY_VERSION, PipelineCacheKey, PipelineDeviceFingerprint, dispatch_policy_cache_string,
    hex_encode, normalized_program_cache_digest,
};
pub use memory::SingleFlight;
pub use pack::{PackContents, PackKey};
pub use storage::{FileStorage, Found, Lock, Storage, Stored};
pub use store::{CachedPipeline, PipelineCache, PipelineCacheStats, PipelineSource};
pub use trace::{EntryKey, MissReason};
pub use upkeep::{DiskUsage, GcReport, VerifyReport};

/// The workgroup size of one-dimensional programs that don't say theirs.
pub const DEFAULT_1D_WORKGROUP_SIZE: [u32; 3] = [64, 1, 1];
