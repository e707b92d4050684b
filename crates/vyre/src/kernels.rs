//! Kernels: programs that are ready to be launched on arrays.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use vyre_driver::DispatchConfig;
use vyre_driver::specialization::SpecValue;
use vyre_driver::variant::Variant;
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{DataType, Math, Program};
use vyre_spec::{BackendId, Diagnostic, codes};

use crate::array::{Array, ArrayView, ArrayViewMut, Buffer, Element};
use crate::engine::{Arg, Core, Request, SizeFrom, ValueBytes, key_of, not_bound, places, scalar_of};
use crate::launches::Launch;
use crate::{Engine, Error, Explanation};

/// A program that is ready to be launched. It does not change, is cheap to clone, and is compiled, tuned and cached as a whole; threads
/// may share it. See [`Array`] for an example.
#[derive(Clone)]
pub struct Kernel {
    engine: Engine,
    core: Arc<Core>,
}

impl Engine {
    /// A kernel of a program.
    pub fn kernel(&self, program: &Program) -> Result<Kernel, Error> {
        self.kernel_with(program, &DispatchConfig::default())
    }

    /// [`Engine::kernel`] with a configuration that holds for all its launches.
    pub fn kernel_with(&self, program: &Program, config: &DispatchConfig) -> Result<Kernel, Error> {
        let core = self.inner.core(program, config, None)?;
        Ok(Kernel { engine: self.clone(), core })
    }
}

impl Kernel {
    pub(crate) fn of(engine: &Engine, core: &Arc<Core>) -> Kernel {
        Kernel { engine: engine.clone(), core: core.clone() }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The program.
    pub fn program(&self) -> &ValidProgram {
        &self.core.program
    }

    /// The same kernel with another value of a specialization constant (WGSL's `override`).
    pub fn set(&self, name: &str, value: impl Into<SpecValue>) -> Result<Kernel, Error> {
        let mut config = self.core.config.clone();
        config.specialization.insert(name, value);
        let core = self.engine.inner.core(self.program(), &config, self.core.only.as_ref())?;
        Ok(Kernel { engine: self.engine.clone(), core })
    }

    /// The same kernel with one more implementation, which runs where it is faster and after it has given the program's own results on
    /// copies of the inputs.
    ///
    /// ```
    /// use vyre::variant::{HostSlice, Variant};
    /// let engine = vyre::Engine::builder().without_disk().open()?;
    /// let kernel = engine.kernel(&vyre::wgsl(
    ///     "@group(0) @binding(0) var<storage, read> x: array<u32>;
    ///      @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    ///      @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3u) {
    ///          if id.x < arrayLength(&y) { y[id.x] = 2u * x[id.x]; }
    ///      }",
    /// )?)?;
    /// let doubled = kernel.variant(Variant::host("doubling", 1, |buffers: &mut [HostSlice<'_>]| {
    ///     let [x, y] = buffers else { return };
    ///     for (y, x) in y.bytes_mut().chunks_exact_mut(4).zip(x.bytes().chunks_exact(4)) {
    ///         let x = u32::from_le_bytes([x[0], x[1], x[2], x[3]]);
    ///         y.copy_from_slice(&(2 * x).to_le_bytes());
    ///     }
    /// }))?;
    /// let (x, mut y) = (engine.array(&[1u32, 2, 3])?, engine.zeros::<u32>(3)?);
    /// doubled.bind("x", &x).bind("y", &mut y).launch()?;
    /// assert_eq!(y.to_vec()?, [2, 4, 6]);
    /// assert!(doubled.explain().to_string().contains("doubling (a Rust function): gives the same results"));
    /// # Ok::<(), vyre::Error>(())
    /// ```
    pub fn variant(&self, variant: Variant) -> Result<Kernel, Error> {
        let mut config = self.core.config.clone();
        config.variants.push(variant);
        let core = self.engine.inner.core(self.program(), &config, self.core.only.as_ref())?;
        Ok(Kernel { engine: self.engine.clone(), core })
    }

    /// It brings variants.
    pub fn has_variants(&self) -> bool {
        !self.core.config.variants.is_empty()
    }

    /// The same kernel in another arithmetic: [`Math::Fast`] rounds sums of products once and takes a device's own approximations of
    /// functions, as WGSL allows; [`Math::Exact`] gives the same bits everywhere.
    pub fn math(&self, math: Math) -> Result<Kernel, Error> {
        let program = Program::clone(self.program()).with_math(math);
        let core = self.engine.inner.core(&program, &self.core.config, self.core.only.as_ref())?;
        Ok(Kernel { engine: self.engine.clone(), core })
    }

    /// The same kernel on one backend and no other.
    pub fn on(&self, backend: &str) -> Result<Kernel, Error> {
        self.engine.inner.device(backend)?;
        let core = self.engine.inner.core(self.program(), &self.core.config, Some(&backend.into()))?;
        Ok(Kernel { engine: self.engine.clone(), core })
    }

    /// A launch without anything bound yet.
    #[inline]
    pub fn call(&self) -> Call<'_> {
        let args = Args::unbound(self.core.slots.len());
        let mut call = Call { kernel: self, args, request: None, wrong: None };
        if self.core.config.timeout.is_some() {
            call.wishes().interruptible = true;
        }
        call
    }

    /// A launch with an array bound to one of the kernel's buffers, by name.
    #[inline]
    pub fn bind<'a>(&'a self, name: &str, value: impl Bindable<'a>) -> Call<'a> {
        self.call().bind(name, value)
    }

    /// A launch with a value for one of the kernel's uniform or small read-only buffers, by name.
    #[inline]
    pub fn value<'a, T: Element>(&'a self, name: &str, value: &T) -> Call<'a> {
        self.call().value(name, value)
    }

    /// What was chosen for its latest launch, what else was possible, and on what evidence.
    pub fn explain(&self) -> Explanation {
        self.engine.inner.explain(&self.core)
    }
}

/// A launch in the making.
#[must_use = "nothing runs until `launch` or `run`"]
pub struct Call<'a> {
    kernel: &'a Kernel,
    args: Args<'a>,
    /// What it asks for besides; nearly always nothing.
    request: Option<Box<Request>>,
    /// The first mistake, told when it is launched.
    wrong: Option<Error>,
}

/// What is bound to each buffer of a launch in the making, which is handed on by value for each that is bound, so that it is small. Its
/// memory is the thread's and used again, so that a launch takes none.
struct Args<'a>(Vec<Arg<'a>>);

thread_local! {
    static SPARE: Cell<Vec<Arg<'static>>> = const { Cell::new(Vec::new()) };
}

impl<'a> Args<'a> {
    #[inline]
    fn unbound(count: usize) -> Args<'a> {
        let mut args: Vec<Arg<'a>> = SPARE.try_with(Cell::take).unwrap_or_default();
        args.extend((0..count).map(|_| Arg::Unbound));
        Args(args)
    }
}

impl Drop for Args<'_> {
    fn drop(&mut self) {
        let mut args = std::mem::take(&mut self.0);
        args.clear();
        // Of the same memory, which holds nothing any more; where the thread ends, it is freed.
        let spare = args.into_iter().map(|_| Arg::Unbound).collect();
        let _ = SPARE.try_with(|kept| kept.set(spare));
    }
}

/// What can be bound to a kernel's buffer.
pub trait Bindable<'a>: private::Bind<'a> {}
impl<'a, B: private::Bind<'a>> Bindable<'a> for B {}

mod private {
    use super::{Arg, DataType, Element, Error};

    /// Bytes to be bound, with the type and the size of an element where they are known.
    pub struct Bound<'a> {
        pub(crate) arg: Arg<'a>,
        pub(crate) ty: Option<DataType>,
        pub(crate) size: usize,
        /// Why it can't be bound.
        pub(crate) wrong: Option<Error>,
    }

    impl<'a> Bound<'a> {
        #[inline]
        pub(crate) fn of<T: Element>(arg: Arg<'a>) -> Bound<'a> {
            Bound { arg, ty: T::data_type(), size: size_of::<T>(), wrong: None }
        }
    }

    pub trait Bind<'a> {
        fn into_bound(self) -> Bound<'a>;
    }
}

pub(crate) use private::Bound;

fn not_contiguous() -> Error {
    let message = "a view was bound whose elements don't lie one after another";
    Diagnostic::new(&codes::engine::SHAPE, message).with_fix("Make an array of it first, with `to_array`.").into()
}

impl<'a, T: Element> private::Bind<'a> for &'a Array<T> {
    #[inline]
    fn into_bound(self) -> Bound<'a> {
        Bound::of::<T>(Arg::Read(self.storage(), 0..self.storage().bytes))
    }
}

impl<'a, T: Element> private::Bind<'a> for &'a mut Array<T> {
    #[inline]
    fn into_bound(self) -> Bound<'a> {
        Bound::of::<T>(Arg::Write(self.storage_mut()))
    }
}

impl<'a, T: Element> private::Bind<'a> for ArrayView<'a, T> {
    fn into_bound(self) -> Bound<'a> {
        match self.bytes() {
            Some(range) => Bound::of::<T>(Arg::Read(self.storage, range)),
            None => Bound { wrong: Some(not_contiguous()), ..Bound::of::<T>(Arg::Read(self.storage, 0..0)) },
        }
    }
}

impl<'a, T: Element> private::Bind<'a> for ArrayViewMut<'a, T> {
    fn into_bound(self) -> Bound<'a> {
        Bound::of::<T>(Arg::Part(self.storage, self.bytes()))
    }
}

impl<'a> private::Bind<'a> for &'a Buffer {
    fn into_bound(self) -> Bound<'a> {
        Bound { arg: Arg::Read(&self.storage, 0..self.storage.bytes), ty: None, size: 1, wrong: None }
    }
}

impl<'a> private::Bind<'a> for &'a mut Buffer {
    fn into_bound(self) -> Bound<'a> {
        Bound { arg: Arg::Write(&mut self.storage), ty: None, size: 1, wrong: None }
    }
}

macro_rules! scalars {
    ($($scalar:ty),*) => {
        $(impl<'a> private::Bind<'a> for $scalar {
            fn into_bound(self) -> Bound<'a> {
                Bound::of::<$scalar>(Arg::Value(SmallVec::from_slice(bytemuck::bytes_of(&self))))
            }
        })*
    };
}

scalars!(u32, i32, f32, u64, i64, f64);

impl<'a> Call<'a> {
    fn wishes(&mut self) -> &mut Request {
        self.request.get_or_insert_default()
    }

    /// Binds an array, a part of one, or a number to one of the kernel's buffers, by name. What the kernel writes is bound as `&mut`.
    #[inline]
    pub fn bind(mut self, name: &str, value: impl Bindable<'a>) -> Call<'a> {
        let Bound { arg, ty, size, wrong } = value.into_bound();
        if let Some(wrong) = wrong {
            self.wrong.get_or_insert(wrong);
            return self;
        }
        // Both are numbers here where name and type are known when the caller is compiled.
        let (key, scalar) = (key_of(name), scalar_of(ty.as_ref()));
        if let Err(arg) = self.bind_array(name, key, arg, scalar, size) {
            self.bind_arg(name, arg, ty.as_ref(), size);
        }
        self
    }

    /// Binds an array of just the elements that a buffer declares, which nearly everything is that is bound; else gives it back.
    fn bind_array(&mut self, name: &str, key: u64, arg: Arg<'a>, scalar: u8, size: usize) -> Result<(), Arg<'a>> {
        let slots = &self.kernel.core.slots;
        let Some(at) = slots.iter().position(|slot| slot.is_named(name, key)) else { return Err(arg) };
        match &mut self.args.0[at] {
            free @ Arg::Unbound if slots[at].is_array_of_scalars(&arg, scalar, size) => *free = arg,
            _ => return Err(arg),
        }
        Ok(())
    }

    /// Gives a uniform or small read-only buffer its contents.
    #[inline]
    pub fn value<T: Element>(mut self, name: &str, value: &T) -> Call<'a> {
        let bytes = ValueBytes::from_slice(bytemuck::bytes_of(value));
        self.bind_arg(name, Arg::Value(bytes), T::data_type().as_ref(), size_of::<T>());
        self
    }

    /// Gives a uniform or small read-only buffer its contents as bytes.
    pub fn value_bytes(mut self, name: &str, bytes: &[u8]) -> Call<'a> {
        self.bind_arg(name, Arg::Value(ValueBytes::from_slice(bytes)), None, 1);
        self
    }

    /// Binds the caller's memory to a buffer that the kernel only reads. A launch with memory of the caller waits for the work, and where
    /// the processor does it, nothing is copied.
    pub fn bytes(mut self, name: &str, bytes: &'a [u8]) -> Call<'a> {
        self.bind_arg(name, Arg::Bytes(bytes), None, 1);
        self
    }

    /// Binds the caller's memory to a buffer that the kernel writes; see [`Call::bytes`].
    pub fn bytes_mut(mut self, name: &str, bytes: &'a mut [u8]) -> Call<'a> {
        self.bind_arg(name, Arg::Into(bytes), None, 1);
        self
    }

    pub(crate) fn put(mut self, name: &str, arg: Arg<'a>, ty: Option<&DataType>, size: usize) -> Call<'a> {
        self.bind_arg(name, arg, ty, size);
        self
    }

    fn bind_arg(&mut self, name: &str, arg: Arg<'a>, ty: Option<&DataType>, size: usize) {
        let checked = self.kernel.core.slot(name).and_then(|slot| {
            self.kernel.core.check_arg(slot, &arg, ty, size)?;
            match self.args.0[slot] {
                Arg::Unbound => Ok(slot),
                _ => {
                    let message = format!("buffer `{name}` is bound twice in one launch");
                    Err(Diagnostic::new(&codes::engine::BOUND_TWICE, message).into())
                }
            }
        });
        match checked {
            Ok(slot) => self.args.0[slot] = arg,
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
    }

    /// Workgroups per axis, instead of those that follow from the arrays.
    #[inline]
    pub fn grid(mut self, grid: [u32; 3]) -> Call<'a> {
        self.wishes().grid = Some(grid);
        self
    }

    /// The launch writes every element of the buffers that it only writes, so nothing of them has to be cleared before. The caller
    /// answers for that: an element that is left out holds anything.
    pub fn overwrites(mut self) -> Call<'a> {
        self.wishes().overwrites = true;
        self
    }

    /// Invocations per axis, instead of those that follow from the arrays; rounded up to whole workgroups of whatever size.
    #[inline]
    pub fn domain(mut self, domain: [u64; 3]) -> Call<'a> {
        self.wishes().domain = Some(domain);
        self
    }

    /// Workgroups per axis, read from three u32 of an array when the launch's turn comes: earlier work may write them, and this call does
    /// not wait for it. No more run than without this.
    ///
    /// The host waits for the numbers on CUDA, and with wgpu where the kernel asks how many workgroups there are or where more might run
    /// than one dispatch can have.
    pub fn grid_from<'b>(self, grid: impl Into<ArrayView<'b, u32>>) -> Call<'a> {
        self.size_from(grid.into(), 3..=3, false)
    }

    /// Invocations, read from one to three u32 of an array, one for each axis, when the launch's turn comes; rounded up to whole
    /// workgroups. Otherwise as [`grid_from`](Self::grid_from).
    pub fn domain_from<'b>(self, domain: impl Into<ArrayView<'b, u32>>) -> Call<'a> {
        self.size_from(domain.into(), 1..=3, true)
    }

    fn size_from(
        mut self,
        numbers: ArrayView<'_, u32>,
        allowed: std::ops::RangeInclusive<usize>,
        is_domain: bool,
    ) -> Call<'a> {
        match numbers.bytes() {
            Some(range) if allowed.contains(&numbers.len()) => {
                self.wishes().size_from = Some(SizeFrom { storage: numbers.storage.clone(), range, is_domain });
            }
            Some(_) => {
                let message = format!("the size of a launch is {} numbers, not {}", allowed.end(), numbers.len());
                self.wrong.get_or_insert(Diagnostic::new(&codes::engine::SHAPE, message).into());
            }
            None => {
                self.wrong.get_or_insert(not_contiguous());
            }
        }
        self
    }

    /// One backend and no other.
    pub fn on(mut self, backend: &str) -> Call<'a> {
        self.wishes().on = Some(BackendId::from(backend));
        self
    }

    /// Ends the launch when it is not done so long after this call: compiling, moving data and waiting for its turn count. What it would
    /// have written is then lost, and nothing else.
    pub fn timeout(mut self, timeout: Duration) -> Call<'a> {
        self.wishes().timeout = Some(timeout);
        self.wishes().interruptible = true;
        self
    }

    /// Compiles the kernel so that [`Launch::cancel`] ends it after it has begun.
    pub fn cancellable(mut self) -> Call<'a> {
        self.wishes().interruptible = true;
        self
    }

    /// Ends the launch when this says so. It is asked now and then while the call waits for work on memory of the caller, which no other
    /// handle can end; see [`Call::bytes`].
    pub fn stop_when(mut self, stop: impl Fn() -> bool + Send + Sync + 'static) -> Call<'a> {
        self.wishes().stop = Some(Arc::new(stop));
        self.wishes().interruptible = true;
        self
    }

    /// A name for messages and traces.
    #[inline]
    pub fn label(mut self, label: &str) -> Call<'a> {
        self.wishes().label = Some(label.into());
        self
    }

    /// Queues the launch and returns at once, as far as everything is where it is needed. An error means that nothing was launched and no
    /// array has changed.
    pub fn launch(mut self) -> Result<Launch, Error> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let core = &self.kernel.core;
        if let Some(slot) = self.args.0.iter().position(|arg| matches!(arg, Arg::Unbound)) {
            return Err(not_bound(&core.slots[slot].name));
        }
        if let Some(request) = &mut self.request
            && request.timeout.is_none()
        {
            request.timeout = core.config.timeout;
        }
        let inner = &self.kernel.engine.inner;
        let request = self.request.as_deref().unwrap_or(&Request::NONE);
        let job = inner.launch(core, &mut self.args.0, request)?;
        if core.only.is_some() {
            places::launched(inner, core, &self.args.0, request);
        }
        Ok(Launch::new(job))
    }

    /// Launches and waits.
    pub fn run(self) -> Result<(), Error> {
        self.launch()?.wait()
    }
}
