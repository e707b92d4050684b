//! Copies of strided views, made where their elements are.

use std::ops::Range;
use std::sync::Arc;

use vyre_driver::DispatchConfig;

use super::core::{Arg, Core, Request, ValueBytes};
use super::{Inner, valid};
use crate::Error;
use crate::runtime::{Device, Storage};

/// A view of part of an array: bytes of an element, extents and strides, and the first element's position in the part.
pub(crate) struct GatherView<'a> {
    pub(crate) size: usize,
    pub(crate) axes: &'a [(usize, isize)],
    pub(crate) offset: usize,
}

/// Axes that `gather.wgsl` takes.
const MOST_AXES: usize = 8;

impl Inner {
    /// The elements of a view one after another, on the device that holds them. `None` where the host had better do it: they are there, or
    /// are not whole words, or too many to be counted by a kernel.
    pub(crate) fn gather(
        self: &Arc<Inner>,
        storage: &Arc<Storage>,
        part: Range<u64>,
        view: &GatherView<'_>,
    ) -> Result<Option<Arc<Storage>>, Error> {
        let words = |bytes: u64| bytes / 4;
        let length: u64 = view.axes.iter().map(|axis| axis.0 as u64).product();
        let bytes = length * view.size as u64;
        let countable = |bytes: u64| words(bytes) <= i32::MAX as u64;
        if !view.size.is_multiple_of(4)
            || view.axes.len() > MOST_AXES
            || !countable(bytes)
            || !countable(part.end - part.start)
            || storage.bytes_at(Device::HOST, &part) == part.end - part.start
        {
            return Ok(None);
        }
        let mut numbers = [0u32; 4 + 4 * MOST_AXES];
        numbers[..3].copy_from_slice(&[view.size as u32 / 4, view.axes.len() as u32, view.offset as u32]);
        for (axis, &(extent, stride)) in numbers[4..].chunks_exact_mut(4).zip(view.axes) {
            axis[..2].copy_from_slice(&[extent as u32, (stride as i32).cast_unsigned()]);
        }
        let core = self.gather_core()?;
        let mut copy = Storage::zeros(self, bytes);
        let mut args = [
            Arg::Read(storage, part),
            Arg::Value(ValueBytes::from_slice(bytemuck::bytes_of(&numbers))),
            Arg::Write(&mut copy),
        ];
        self.launch(&core, &mut args, &Request::default())?;
        Ok(Some(copy))
    }

    fn gather_core(&self) -> Result<Arc<Core>, Error> {
        if let Some(core) = self.gather_core.get() {
            return Ok(core.clone());
        }
        let program = valid(&crate::wgsl(include_str!("gather.wgsl"))?)?;
        let core = Arc::new(Core::new(&program, &DispatchConfig::default(), None)?);
        Ok(self.gather_core.get_or_init(|| core).clone())
    }
}
