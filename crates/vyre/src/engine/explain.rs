use std::fmt;

use serde::Serialize;

/// One backend that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The backend's name.
    pub backend: String,
    /// Typical time of one dispatch, where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_ns: Option<f64>,
    /// Why it was not used, where that is not a matter of time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
}

/// Why a program runs where and how it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The program's entry point.
    pub program: String,
    /// The backend in use; absent before the first dispatch.
    pub backend: Option<String>,
    /// The device's name.
    pub device: Option<String>,
    /// Invocations in a workgroup.
    pub workgroup_size: Option<[u32; 3]>,
    /// Workgroups.
    pub grid: Option<[u32; 3]>,
    /// Why this launch.
    pub launch: String,
    /// Why this backend.
    pub routing: String,
    /// What else there was.
    pub others: Vec<Choice>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(backend) = &self.backend else {
            return write!(f, "`{}` has not run yet, so nothing is decided.", self.program);
        };
        write!(f, "`{}` runs on {backend}", self.program)?;
        if let Some(device) = &self.device {
            write!(f, " ({device})")?;
        }
        if let (Some([x, y, z]), Some(grid)) = (self.workgroup_size, self.grid) {
            write!(f, ", {} x {} x {} workgroups of {x} x {y} x {z}", grid[0], grid[1], grid[2])?;
        }
        write!(f, ".\n  backend: {}\n  launch: {}", self.routing, self.launch)?;
        for other in &self.others {
            write!(f, "\n  {}: ", other.backend)?;
            match (&other.excluded, other.measured_ns) {
                (Some(reason), _) => write!(f, "not used, {reason}")?,
                (None, Some(ns)) => write!(f, "measured at {:.1} µs", ns / 1e3)?,
                (None, None) => write!(f, "not measured")?,
            }
        }
        Ok(())
    }
}
