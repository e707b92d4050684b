/// What a long-running launch reports about one window of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TunerFeedback {
    /// How often each opcode ran.
    pub per_opcode_counts: Vec<(u32, u32)>,
    /// Length of the window.
    pub wall_time_us: u64,
    /// Time in the window in which nothing ran.
    pub idle_us: u64,
    /// The workgroup size along x that was used.
    pub observed_workgroup_size_x: u32,
    /// Work done per microsecond.
    pub observed_throughput_per_us: f64,
}

/// Resizes a workgroup by halves and doubles, from feedback alone.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultPolicy {
    /// The adapter's limit.
    pub adapter_max_workgroup_size_x: u32,
    /// Never go below this.
    pub minimum_workgroup_size_x: u32,
    /// Throughput under which the workgroup grows.
    pub saturation_threshold_per_us: f64,
    /// Idle time above which the workgroup shrinks.
    pub idle_shrink_us: u64,
}

impl Default for DefaultPolicy {
    fn default() -> Self {
        DefaultPolicy {
            adapter_max_workgroup_size_x: 1024,
            minimum_workgroup_size_x: 32,
            saturation_threshold_per_us: 1.0,
            idle_shrink_us: 100_000,
        }
    }
}

impl DefaultPolicy {
    /// A better size, where the feedback asks for one: half when idle for too long, unless that is below the minimum; double
    /// when throughput is low, unless that is above the maximum.
    pub fn suggest_resize(&self, feedback: &TunerFeedback) -> Option<u32> {
        let size = feedback.observed_workgroup_size_x.max(1);
        if feedback.idle_us > self.idle_shrink_us {
            return Some(size / 2).filter(|&half| half >= self.minimum_workgroup_size_x && half > 0);
        }
        if feedback.observed_throughput_per_us < self.saturation_threshold_per_us {
            return size.checked_mul(2).filter(|&double| double <= self.adapter_max_workgroup_size_x);
        }
        None
    }
}
