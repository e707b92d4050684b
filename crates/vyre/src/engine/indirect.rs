//! Launches whose size stands in an array: the numbers are read where they are, when the launch's turn comes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use vyre_driver::DispatchConfig;
use vyre_driver::backend::{Binding, INDIRECT_BYTES, indirect_grid};

use super::core::{Arg, Core, Ready, Request, ValueBytes};
use super::{Inner, valid};
use crate::Error;
use crate::runtime::{Deps, Storage};

/// Where the size of a launch stands.
#[derive(Clone)]
pub(crate) struct SizeFrom {
    pub(crate) storage: Arc<Storage>,
    pub(crate) range: Range<u64>,
    /// It counts invocations, not workgroups.
    pub(crate) is_domain: bool,
}

impl SizeFrom {
    /// The grid, read on the host. What `grid.wgsl` says for devices.
    pub(super) fn read(&self, ready: &Ready, deadline: Option<Instant>) -> Result<[u32; 3], Error> {
        let mut bytes = [0xff; INDIRECT_BYTES];
        let wanted = (self.range.end - self.range.start) as usize;
        self.storage.read(self.range.start, &mut bytes[..wanted.min(INDIRECT_BYTES)], deadline)?;
        let (wanted, size) = (indirect_grid(&bytes, [u32::MAX; 3]), ready.counted_by(self.is_domain));
        Ok(std::array::from_fn(|axis| wanted[axis].div_ceil(size[axis].max(1)).min(ready.plan.grid[axis])))
    }
}

impl Ready {
    /// What a number of its launches' size stands for: a workgroup of this size, or one.
    fn counted_by(&self, is_domain: bool) -> [u32; 3] {
        if is_domain { self.plan.workgroup_size } else { [1; 3] }
    }

    /// The sizes that `grid.wgsl` makes a grid with.
    pub(crate) fn grid_sizes(&self, is_domain: bool) -> ValueBytes {
        let (size, most) = (self.counted_by(is_domain), self.plan.grid);
        let sizes: [u32; 8] = [size[0], size[1], size[2], 1, most[0], most[1], most[2], 1];
        ValueBytes::from_slice(bytemuck::bytes_of(&sizes))
    }
}

impl Inner {
    /// Makes the grid of a launch on its device, and gives where it is. Nothing is waited for.
    pub(super) fn grid_on_device(
        self: &Arc<Inner>,
        from: &SizeFrom,
        ready: &Ready,
        deadline: Option<Instant>,
        deps: &mut Deps,
    ) -> Result<(Arc<Storage>, Binding), Error> {
        let core = self.grid_core()?;
        let mut grid = Storage::zeros(self, INDIRECT_BYTES as u64);
        let mut args = [
            Arg::Read(&from.storage, from.range.clone()),
            Arg::Value(ready.grid_sizes(from.is_domain)),
            Arg::Write(&mut grid),
        ];
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let request = Request { on: Some(ready.device.id.clone()), timeout, ..Request::default() };
        self.launch(&core, &mut args, &request)?;
        let binding = grid.prepare(&ready.device, &(0..grid.bytes), true, false, deps)?;
        Ok((grid, binding))
    }

    /// What makes such grids.
    pub(crate) fn grid_core(&self) -> Result<Arc<Core>, Error> {
        if let Some(core) = self.grid_core.get() {
            return Ok(core.clone());
        }
        let program = valid(&crate::wgsl(include_str!("grid.wgsl"))?)?;
        let mut config = DispatchConfig::default();
        config.grid_override = Some([1; 3]);
        let core = Arc::new(Core::new(&program, &config, None)?);
        Ok(self.grid_core.get_or_init(|| core).clone())
    }
}
