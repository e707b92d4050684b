//! Which parameters a kernel takes: those that it looks at. Each costs every launch, and a changed node of a graph most.

use vyre_driver::backend::{Reader, Writer};

/// What a launch gives a kernel, in this order. See [`emit`](super::emit).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// For each buffer which of its three: [`ADDRESS`], [`LENGTH`], [`COUNT`].
    pub(crate) buffers: Vec<u32>,
    /// The whole grid along x, y, z, the first workgroup along x, y, z, and [`MARK`], [`NUMBER`], [`STOP`], a bit each.
    pub(crate) others: u32,
}

pub(crate) const ADDRESS: u32 = 1;
pub(crate) const LENGTH: u32 = 2;
pub(crate) const COUNT: u32 = 4;
/// The first of three.
pub(crate) const GRID: u32 = 1;
/// The first of three.
pub(crate) const BASE: u32 = 8;
pub(crate) const MARK: u32 = 64;
pub(crate) const NUMBER: u32 = 128;
pub(crate) const STOP: u32 = 256;

const OF_A_BUFFER: [(u32, &str, &str); 3] =
    [(ADDRESS, "u64", "buffer"), (LENGTH, "u64", "length"), (COUNT, "u32", "count")];

const OTHERS: [(&str, &str); 9] = [
    ("u32", "grid_x"),
    ("u32", "grid_y"),
    ("u32", "grid_z"),
    ("u32", "base_x"),
    ("u32", "base_y"),
    ("u32", "base_z"),
    ("u64", "mark"),
    ("u64", "number"),
    ("u64", "stop"),
];

impl Parameters {
    /// Those that some entry of a kernel with so many buffers loads.
    pub(super) fn loaded(bodies: &[&str], buffers: usize) -> Parameters {
        let is_loaded = |name: &str| bodies.iter().any(|body| body.contains(&format!("[{name}]")));
        let of_buffer = |index: usize| {
            let loaded = OF_A_BUFFER.iter().filter(|(_, _, name)| is_loaded(&format!("{name}{index}")));
            loaded.map(|(bit, ..)| bit).sum()
        };
        let others = OTHERS.iter().enumerate().filter(|(_, (_, name))| is_loaded(name)).map(|(at, _)| 1 << at).sum();
        Parameters { buffers: (0..buffers).map(of_buffer).collect(), others }
    }

    /// As an entry declares them.
    pub(super) fn declared(&self) -> String {
        let mut lines = Vec::new();
        for (index, loaded) in self.buffers.iter().enumerate() {
            let loaded = OF_A_BUFFER.iter().filter(|(bit, ..)| loaded & bit != 0);
            lines.extend(loaded.map(|(_, ty, name)| format!("\t.param .{ty} {name}{index}")));
        }
        let others = OTHERS.iter().enumerate().filter(|(at, _)| self.others & 1 << at != 0);
        lines.extend(others.map(|(_, (ty, name))| format!("\t.param .{ty} {name}")));
        lines.join(",\n")
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        self.buffers.iter().for_each(|&loaded| out.word(loaded));
        out.word(self.others);
    }

    /// Reads what was written for so many buffers.
    pub(crate) fn read(input: &mut Reader<'_>, buffers: usize) -> Option<Parameters> {
        let buffers = (0..buffers).map(|_| input.word().filter(|loaded| *loaded < 8)).collect::<Option<Vec<u32>>>()?;
        let others = input.word().filter(|others| *others < 1 << OTHERS.len())?;
        Some(Parameters { buffers, others })
    }
}
