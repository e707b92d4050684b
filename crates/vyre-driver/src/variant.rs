//! Other implementations of a program: PTX text for a compute capability, a Rust function on the processor, or another program for any backend
//! that is cut into other workgroups and tiles.
//!
//! A [`Variant`] is given with the [configuration](crate::DispatchConfig::variants) of a program and is one more candidate of its tuner. The
//! program stays what defines the results: before a variant runs for the first time at some sizes, both run on copies of the inputs, and one
//! whose results differ is never used there.

use std::fmt;
use std::sync::Arc;

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::DataType;
use vyre_foundation::launch::LaunchPlan;

use crate::pipeline::hex_encode;

/// One implementation. Cheap to clone; two are equal when they have the same name, code and launch.
#[derive(Clone)]
pub struct Variant(Arc<Inner>);

struct Inner {
    name: String,
    code: Code,
    tolerance: Tolerance,
    vouched: bool,
    /// A function that gives its work to [`Workers`] in short parts.
    in_parts: bool,
    digest: [u8; 32],
}

/// What a variant is made of.
#[derive(Clone)]
#[non_exhaustive]
pub enum Code {
    /// A kernel for NVIDIA GPUs.
    Ptx(Ptx),
    /// A function of this process.
    Host(HostFunction),
    /// A program with the same buffers, and its workgroups. The engine compiles it like any other.
    Program(ValidProgram, Blocks),
}

/// Works on the bytes of all buffers, in binding order, while the launch has them for itself.
pub type HostFunction = Arc<dyn Fn(&mut [HostSlice<'_>], &dyn Workers) + Send + Sync>;

/// The threads of the backend that runs a function, to which it gives parts of its work.
pub trait Workers: Sync {
    /// How many work at once, at most.
    fn threads(&self) -> usize;

    /// Calls `part` once for each number below `parts`, in any order and on several threads at once, of which the caller's is one, and
    /// returns when all calls have. A launch that is to end begins no more of them: false then, and nobody looks at its results.
    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool;

    /// Says of a result, which began as zeros, that it has nothing but zeros from this byte on, so that who has its memory next need not write them.
    fn leaves_zeros(&self, _buffer: usize, _from: usize) {}
}

/// The bytes of one buffer; they start at a multiple of 8.
#[derive(Debug)]
pub enum HostSlice<'a> {
    /// A buffer that the program only reads.
    Read(&'a [u8]),
    /// A buffer that is a result; outputs begin as zeros, or as what the array held before.
    Write(&'a mut [u8]),
}

impl HostSlice<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            HostSlice::Read(bytes) => bytes,
            HostSlice::Write(bytes) => bytes,
        }
    }

    /// Its bytes to be written; none where the program only reads it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            HostSlice::Read(_) => &mut [],
            HostSlice::Write(bytes) => bytes,
        }
    }
}

/// A kernel in PTX and how it is launched. Its parameters are the tensor maps, each `.param .align 64 .b8 name[128]`, and behind them
/// `params` in their order. Clusters are named in the text, with `.reqnctapercluster`.
#[derive(Clone, Debug)]
pub struct Ptx {
    /// What it was written for: `sm_90` runs on that and everything later, `sm_90a` on exactly that.
    pub target: String,
    /// The entry's name.
    pub entry: String,
    /// The whole module.
    pub text: String,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of the launch.
    pub blocks: Blocks,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Descriptions of arrays for `cp.async.bulk.tensor`.
    pub tensor_maps: Vec<TensorMap>,
    /// The parameters behind them.
    pub params: Vec<Param>,
}

/// How many blocks a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// As many as the program has workgroups.
    AsPlanned,
    /// So many, whatever the size.
    Fixed([u32; 3]),
    /// One for so many of the program's invocations along each axis.
    Each([u32; 3]),
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// The address of a buffer, by its position in binding order (`.u64`).
    Buffer(usize),
    /// The elements of a buffer (`.u64`, or `.u32` for the lower half).
    Elements(usize),
    /// A number (`.u32`); floats by their bits.
    U32(u32),
    /// A number (`.u64`).
    U64(u64),
}

/// A buffer as an array for bulk tensor copies, as `cuTensorMapEncodeTiled` takes it.
#[derive(Clone, Debug)]
pub struct TensorMap {
    /// The buffer, by its position in binding order.
    pub buffer: usize,
    /// The type of an element.
    pub element: DataType,
    /// Extents, the innermost first.
    pub extents: Vec<u64>,
    /// Bytes from one element to the next along each axis but the innermost.
    pub strides: Vec<u64>,
    /// Extents of what is copied at once.
    pub tile: Vec<u32>,
    /// Bytes that are swizzled in shared memory: 0, 32, 64 or 128.
    pub swizzle: u32,
}

/// How far results may be from the program's. The default is not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Units in the last place that a float may be off.
    pub ulps: u8,
    /// Further off by so much of the largest finite number of its result, for sums in another order.
    pub of_largest: f64,
}

impl Variant {
    /// A kernel in PTX.
    ///
    /// # Safety
    /// For every size that the program may be launched with, the kernel reads and writes nothing but the buffers that it is given, within
    /// their lengths, and ends.
    #[allow(unsafe_code, reason = "the declaration of the promise; nothing is done with it here")]
    pub unsafe fn ptx(name: impl Into<String>, ptx: Ptx) -> Variant {
        // Texts are escaped, so that no two different kernels are written alike.
        let digest = digest(&format!("ptx {ptx:?}"));
        Variant::new(name.into(), Code::Ptx(ptx), digest)
    }

    /// A Rust function. It is called once for a launch, on a thread of the backend, and may use threads of its own. Code can't be compared,
    /// so `revision` tells versions of it apart: what was measured for another is forgotten.
    pub fn host(
        name: impl Into<String>,
        revision: u64,
        function: impl Fn(&mut [HostSlice<'_>]) + Send + Sync + 'static,
    ) -> Variant {
        let function = move |buffers: &mut [HostSlice<'_>], _: &dyn Workers| function(buffers);
        Variant::new(name.into(), Code::Host(Arc::new(function)), digest(&format!("host {revision}")))
    }

    /// A Rust function that leaves its work to the threads of the backend, in parts of a few milliseconds at most: none begins after the
    /// launch was told to end, so that a function which is [vouched](Variant::vouched) for also runs where launches may be stopped. Where all
    /// buffers together have a few kilobytes such a function runs on the thread that launches it; it launches nothing itself.
    pub fn host_in_parts(
        name: impl Into<String>,
        revision: u64,
        function: impl Fn(&mut [HostSlice<'_>], &dyn Workers) + Send + Sync + 'static,
    ) -> Variant {
        let code = Code::Host(Arc::new(function));
        Variant::of(Inner {
            in_parts: true,
            ..Inner::new(name.into(), code, digest(&format!("host in parts {revision}")))
        })
    }

    /// Another program that binds the same buffers in the same order.
    pub fn program(name: impl Into<String>, program: &ValidProgram, blocks: Blocks) -> Variant {
        let digest = digest(&format!("program {} {blocks:?}", hex_encode(&program.fingerprint())));
        Variant::new(name.into(), Code::Program(program.clone(), blocks), digest)
    }

    fn new(name: String, code: Code, digest: [u8; 32]) -> Variant {
        Variant::of(Inner::new(name, code, digest))
    }

    fn of(inner: Inner) -> Variant {
        Variant(Arc::new(inner))
    }

    /// The same with results that may be a little off.
    #[must_use]
    pub fn within(self, tolerance: Tolerance) -> Variant {
        let digest = digest(&format!("{} {tolerance:?}", hex_encode(&self.0.digest)));
        Variant::of(Inner { tolerance, digest, ..self.0.copied() })
    }

    /// The same with its author's word that it gives the results of the program that it stands beside at every size. It is compared where
    /// it is tuned, and not again before it first runs at some sizes, which would take both runs and copies of the inputs. A function that
    /// is vouched for is taken from the first launch on, until the program was timed, too: who brings one has a library that is faster.
    /// Code of a device can't be vouched for, and stays as it is.
    #[must_use]
    pub fn vouched(self) -> Variant {
        let vouched = !matches!(self.0.code, Code::Ptx(_));
        let digest = digest(&format!("{} vouched", hex_encode(&self.0.digest)));
        Variant::of(Inner { vouched, digest, ..self.0.copied() })
    }

    /// Its author answers for its results at every size.
    pub fn is_vouched(&self) -> bool {
        self.0.vouched
    }

    /// It may run where launches may be stopped: it need not be compared first, and ends soon after it was told to.
    pub fn is_stoppable(&self) -> bool {
        self.0.vouched && (self.0.in_parts || matches!(self.0.code, Code::Program(..)))
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Launches begin with it where nothing is known of their times.
    pub fn is_preferred(&self) -> bool {
        self.0.vouched && matches!(self.0.code, Code::Host(_))
    }

    /// Name and contents, as decisions know it.
    pub fn id(&self) -> String {
        format!("{}#{}", self.0.name, &hex_encode(&self.digest())[..16])
    }

    /// What it is made of.
    pub fn code(&self) -> &Code {
        &self.0.code
    }

    /// How far its results may be off.
    pub fn tolerance(&self) -> Tolerance {
        self.0.tolerance
    }

    /// 256-bit digest of name, code and launch.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("vyre foreign variant 1");
        hasher.update(&self.0.digest);
        hasher.update(self.0.name.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The grid of a launch that the program would have run with this plan.
    pub fn grid(&self, plan: &LaunchPlan) -> [u32; 3] {
        if plan.grid.contains(&0) {
            return plan.grid;
        }
        let blocks = match &self.0.code {
            Code::Ptx(ptx) => ptx.blocks,
            Code::Program(_, blocks) => *blocks,
            Code::Host(_) => return [1; 3],
        };
        match blocks {
            Blocks::AsPlanned => plan.grid,
            Blocks::Fixed(blocks) => blocks,
            Blocks::Each(each) => std::array::from_fn(|axis| {
                let invocations = u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]);
                let invocations = invocations.min(plan.domain[axis].max(1));
                u32::try_from(invocations.div_ceil(u64::from(each[axis].max(1)))).unwrap_or(u32::MAX)
            }),
        }
    }
}

impl Inner {
    fn new(name: String, code: Code, digest: [u8; 32]) -> Inner {
        Inner { name, code, tolerance: Tolerance::default(), vouched: false, in_parts: false, digest }
    }

    fn copied(&self) -> Inner {
        let (name, code) = (self.name.clone(), self.code.clone());
        Inner { name, code, ..*self }
    }
}

fn digest(text: &str) -> [u8; 32] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

impl PartialEq for Variant {
    fn eq(&self, other: &Variant) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.digest() == other.digest()
    }
}

impl Eq for Variant {}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variant({})", self.id())
    }
}

/// `wgmma (PTX for sm_90a)`.
impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.code {
            Code::Ptx(ptx) => write!(f, "{} (PTX for {})", self.0.name, ptx.target),
            Code::Program(..) => write!(f, "{} (another program)", self.0.name),
            Code::Host(_) => write!(f, "{} (a Rust function)", self.0.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_variant_is_made_of_is_its_identity() {
        let host = |name: &str, revision| Variant::host(name, revision, |_: &mut [HostSlice<'_>]| {});
        assert_eq!(host("a", 1), host("a", 1));
        assert_ne!(host("a", 1), host("a", 2));
        assert_ne!(host("a", 1), host("b", 1));
        assert_ne!(host("a", 1), host("a", 1).within(Tolerance { ulps: 1, of_largest: 0.0 }));
        let ptx = |text: &str, shared| Ptx {
            target: "sm_90a".to_owned(),
            entry: "main".to_owned(),
            text: text.to_owned(),
            block: [128, 1, 1],
            blocks: Blocks::AsPlanned,
            shared,
            tensor_maps: Vec::new(),
            params: vec![Param::Buffer(0)],
        };
        #[allow(unsafe_code, reason = "nothing runs")]
        // SAFETY: these are never launched.
        let made = |text: &str, shared| unsafe { Variant::ptx("a", ptx(text, shared)) };
        assert_eq!(made("x", 0), made("x", 0));
        assert_ne!(made("x", 0), made("y", 0));
        assert_ne!(made("x", 0), made("x", 4));
    }
}
