use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a backend: `cpu`, `wgpu`, `cuda`, or that of a backend from outside this workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackendId(Arc<str>);

impl BackendId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for BackendId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for BackendId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl AsRef<str> for BackendId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
