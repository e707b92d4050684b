//! Compiled pipelines: what keys them, what device they belong to, and the caches that keep them.

mod features;
mod key;

pub use features::PipelineFeatureFlags;
pub use key::{
    CURRENT_PIPELINE_CACHE_KEY_VERSION, PipelineCacheKey, PipelineDeviceFingerprint, dispatch_policy_cache_string,
    hex_encode, normalized_program_cache_digest,
};

/// The workgroup size of one-dimensional programs that don't say theirs.
pub const DEFAULT_1D_WORKGROUP_SIZE: [u32; 3] = [64, 1, 1];
