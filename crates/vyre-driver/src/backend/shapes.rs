//! How many elements a bound buffer has; the same for every backend.

use vyre_foundation::kernel::KernelBuffer;

use super::artifact::{Reader, Writer};

/// How the elements of a kernel's buffer lie in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundShape {
    header: u32,
    stride: u32,
    /// Two for the 4-bit types.
    per_stride: u32,
    /// The declared number of elements.
    count: Option<u32>,
    written: bool,
}

impl BoundShape {
    /// The shapes of a kernel's buffers, in binding order.
    pub fn of(buffers: &[KernelBuffer]) -> Vec<BoundShape> {
        let shape = |buffer: &KernelBuffer| BoundShape {
            header: buffer.header,
            stride: buffer.stride.max(1),
            per_stride: if buffer.element.is_some_and(|(element, _)| element.bits() == 4) { 2 } else { 1 },
            count: buffer.count.filter(|_| buffer.header == 0),
            written: buffer.written || buffer.atomic,
        };
        buffers.iter().map(shape).collect()
    }

    /// Elements when so many bytes are bound.
    pub fn elements(&self, bytes: u64) -> u64 {
        let open = bytes.saturating_sub(u64::from(self.header)) / u64::from(self.stride);
        let open = open.saturating_mul(u64::from(self.per_stride));
        self.count.map_or(open, |count| open.min(u64::from(count)))
    }

    /// The kernel writes to it.
    pub fn is_written(&self) -> bool {
        self.written
    }

    /// Adds shapes to an artifact.
    pub fn write_all(shapes: &[BoundShape], out: &mut Writer) {
        out.word(shapes.len() as u32);
        for shape in shapes {
            out.word(shape.header);
            out.word(shape.stride);
            out.word(shape.per_stride | u32::from(shape.count.is_some()) << 8 | u32::from(shape.written) << 9);
            out.word(shape.count.unwrap_or(0));
        }
    }

    /// Reads what [`write_all`](Self::write_all) wrote; `None` when it is not that, or not of so many buffers.
    pub fn read_all(input: &mut Reader<'_>, expected: usize) -> Option<Vec<BoundShape>> {
        if input.word()? as usize != expected {
            return None;
        }
        let mut shapes = Vec::with_capacity(expected);
        for _ in 0..expected {
            let (header, stride, flags, count) = (input.word()?, input.word()?, input.word()?, input.word()?);
            let per_stride = flags & 0xff;
            if stride == 0 || !(1..=2).contains(&per_stride) || flags >> 10 != 0 {
                return None;
            }
            let count = (flags & 1 << 8 != 0).then_some(count);
            shapes.push(BoundShape { header, stride, per_stride, count, written: flags & 1 << 9 != 0 });
        }
        Some(shapes)
    }
}
