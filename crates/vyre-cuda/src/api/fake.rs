//! A model of the driver, for tests on machines without one: streams that run beside each other, memory of the host in the place of the
//! device's, and three kernels that it knows by their text. It notes what a real driver would punish or forgive silently: calls
//! outside the context, work on memory that was given back, and what is never given back.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::graph::{CopyParams, FillParams, KernelParams};
use super::{DevicePointer, Out, Ptr};

const NOT_FOUND: c_int = 500;
const INVALID: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NOT_READY: c_int = 600;
const LAUNCH_FAILED: c_int = 719;
const CONTEXT: usize = 77;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    AddOne,
    Endless,
    /// `x * 1664525 + 1013904223`, as often as the first buffer says.
    Slow,
    Trap,
}

#[derive(Clone, Debug)]
struct Kernel {
    kind: Kind,
    blocks: u64,
    params: Vec<(String, u64)>,
    began: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Op {
    Kernel(Kernel),
    Write(u64, u64),
    Wait(u64, u64),
    Copy(u64, u64, usize),
    Upload(u64, Vec<u8>),
    Clear(u64, usize),
    Record(usize, u64),
    WaitEvent(usize, u64),
    Free(u64),
    GraphEnds(usize),
}

#[derive(Default)]
struct Event {
    recorded: u64,
    done: u64,
    at: Option<Instant>,
}

/// What the driver and the device know.
#[derive(Default)]
pub(crate) struct World {
    streams: HashMap<usize, VecDeque<Op>>,
    events: HashMap<usize, Event>,
    /// Events that were destroyed; the driver keeps them while something waits.
    dying: HashMap<usize, Event>,
    memory: BTreeMap<u64, usize>,
    pinned: BTreeMap<u64, usize>,
    texts: HashMap<usize, String>,
    modules: HashMap<usize, String>,
    graphs: HashMap<usize, Vec<(usize, Op)>>,
    ready: HashMap<usize, Vec<(usize, Op)>>,
    /// Launches of each graph that are under way.
    running: HashMap<usize, u32>,
    contexts: i32,
    next: usize,
    is_faulted: bool,
    /// Changes of nodes are refused.
    pub(crate) refuses_changes: bool,
    /// Launches of graphs that the driver still takes before it refuses the rest.
    pub(crate) graph_launches_left: Option<u32>,
    /// Bytes that the pool has.
    pub(crate) memory_limit: Option<usize>,
    /// Calls that were made, by name, of those that cost something.
    pub(crate) calls: HashMap<&'static str, u32>,
    pub(crate) wrong: Vec<String>,
}

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub(crate) fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    let world = WORLD.get_or_init(|| {
        std::thread::spawn(|| {
            loop {
                let moved = world().step();
                std::thread::sleep(Duration::from_micros(if moved { 1 } else { 50 }));
            }
        });
        Mutex::default()
    });
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new_handle(&mut self) -> usize {
        self.next += 1;
        self.next + 1000
    }

    /// Everything that was made is gone.
    pub(crate) fn left(&self) -> Vec<String> {
        let counts = [
            ("streams", self.streams.len()),
            ("events", self.events.len()),
            ("blocks of memory", self.memory.len()),
            ("blocks of pinned memory", self.pinned.len()),
            ("modules", self.modules.len()),
            ("graphs", self.graphs.len()),
            ("ready graphs", self.ready.len()),
            ("contexts", self.contexts.unsigned_abs() as usize),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect()
    }

    fn holds(&self, at: u64, bytes: usize) -> bool {
        let within = |map: &BTreeMap<u64, usize>| {
            map.range(..=at).next_back().is_some_and(|(&start, &size)| at + bytes as u64 <= start + size as u64)
        };
        within(&self.memory) || within(&self.pinned)
    }

    fn check(&mut self, at: u64, bytes: usize, what: &str) {
        if !self.holds(at, bytes) {
            self.wrong.push(format!("{what}: {bytes} bytes at {at:#x} are not allocated"));
        }
    }

    fn call(&mut self, name: &'static str) -> bool {
        *self.calls.entry(name).or_default() += 1;
        if CURRENT.get() != CONTEXT {
            self.wrong.push(format!("{name} was called outside the context"));
        }
        !self.is_faulted
    }

    fn push(&mut self, stream: Ptr, op: Op) -> c_int {
        match self.streams.get_mut(&(stream as usize)) {
            Some(queue) => {
                queue.push_back(op);
                0
            }
            // The default stream is one that does everything at once.
            None if stream.is_null() => 0,
            None => {
                self.wrong.push(format!("{op:?} on a stream that is not there"));
                INVALID
            }
        }
    }

    /// Runs what can run at the head of every stream.
    fn step(&mut self) -> bool {
        let mut moved = false;
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        for stream in streams {
            for _ in 0..64 {
                let Some(mut op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else { break };
                if self.is_faulted || !self.run(&mut op) {
                    if let Some(queue) = self.streams.get_mut(&stream) {
                        queue.push_front(op);
                    }
                    break;
                }
                moved = true;
            }
        }
        moved
    }

    fn run(&mut self, op: &mut Op) -> bool {
        match op {
            Op::Kernel(kernel) => return self.run_kernel(kernel),
            Op::Write(at, value) => {
                self.check(*at, 8, "a word");
                store(*at, *value);
            }
            Op::Wait(at, value) => return load(*at) >= *value,
            Op::Copy(to, from, bytes) => {
                self.check(*to, *bytes, "the target of a copy");
                self.check(*from, *bytes, "the source of a copy");
                // SAFETY: both are allocated, or memory that is kept all the same.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
            }
            Op::Upload(to, bytes) => {
                self.check(*to, bytes.len(), "the target of an upload");
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) };
            }
            Op::Clear(at, bytes) => {
                self.check(*at, *bytes, "what is cleared");
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(*at as *mut u8, 0, *bytes) };
            }
            Op::Record(event, number) => {
                let known = self.events.get_mut(event);
                if let Some(event) = known.or_else(|| self.dying.get_mut(event)) {
                    event.done = event.done.max(*number);
                    event.at = Some(Instant::now());
                }
            }
            Op::WaitEvent(event, number) => {
                let known = self.events.get(event).or_else(|| self.dying.get(event));
                return known.is_some_and(|event| event.done >= *number);
            }
            Op::Free(at) => {
                if self.memory.remove(at).is_none() {
                    self.wrong.push(format!("{at:#x} was given back twice"));
                }
            }
            Op::GraphEnds(graph) => *self.running.entry(*graph).or_default() -= 1,
        }
        true
    }

    fn run_kernel(&mut self, kernel: &mut Kernel) -> bool {
        let Kernel { kind, blocks, params, began } = kernel;
        let given = |name: &str| params.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let address = |buffer: usize| given(&format!("buffer{buffer}")).unwrap_or(0);
        let length = |buffer: usize| {
            let declared = given(&format!("length{buffer}")).or(given(&format!("count{buffer}")));
            declared.unwrap_or(u64::from(address(buffer) != 0))
        };
        if began.is_none()
            && let (Some(mark @ 1..), Some(number)) = (given("mark"), given("number"))
        {
            self.check(mark, 8, "a mark");
            store(mark, number);
        }
        let began = *began.get_or_insert_with(Instant::now);
        for buffer in 0..2 {
            if address(buffer) != 0 {
                self.check(address(buffer), (length(buffer) * 4) as usize, "a bound buffer");
            }
        }
        if let Some(stop) = given("stop") {
            self.check(stop, 8, "a stop word");
            if word(stop) != 0 {
                set_word(stop + 4, 1);
                return true;
            }
        }
        let lanes = |buffer: usize| (0..(*blocks * 64).min(length(buffer))).map(move |i| address(buffer) + i * 4);
        match kind {
            Kind::Trap => self.is_faulted = true,
            Kind::Endless => {
                set_word(address(0), word(address(0)).wrapping_add(1));
                return false;
            }
            Kind::AddOne => lanes(0).for_each(|at| set_word(at, word(at).wrapping_add(1))),
            Kind::Slow => {
                let rounds = word(address(0));
                if began.elapsed() < Duration::from_nanos(u64::from(rounds) * 50) {
                    return false;
                }
                let step = |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                lanes(1).for_each(|at| set_word(at, (0..rounds).fold(word(at), step)));
            }
        }
        true
    }

    /// A launch from the address of its parameters.
    fn kernel(&mut self, function: usize, blocks: c_uint, params: *mut Ptr) -> Option<Kernel> {
        let text = self.modules.get(&function)?;
        let head = text.split('{').next().unwrap_or_default();
        let buffers = head.matches(".param .u64 buffer").count();
        let kind = match buffers {
            _ if text.contains("trap;") => Kind::Trap,
            2 => Kind::Slow,
            _ if text.contains("atom.") || text.contains("red.") => Kind::Endless,
            _ => Kind::AddOne,
        };
        let names: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("\t.param .")?.get(4..)).collect();
        // SAFETY: the launch gives an address for each parameter of the text, and eight bytes behind each.
        let values = unsafe { std::slice::from_raw_parts(params, names.len()) }.iter().map(|&at| unsafe { *at.cast() });
        let params = names.iter().map(|name| name.trim_end_matches(',').to_owned()).zip(values).collect();
        Some(Kernel { kind, blocks: blocks.into(), params, began: None })
    }

    fn new_memory(&mut self, bytes: usize, pinned: bool) -> u64 {
        // Never really given back, so that what uses it too late does no harm but to the test. Dirty, as real memory is.
        let block: &'static mut [u64] = Vec::leak(vec![0xdead_beef_dead_beef; bytes.div_ceil(8).max(2) + 1]);
        let at = (block.as_mut_ptr() as u64).next_multiple_of(16);
        if pinned {
            self.pinned.insert(at, bytes)
        } else {
            self.memory.insert(at, bytes)
        };
        at
    }
}

fn store(at: u64, value: u64) {
    // SAFETY: only words of pinned memory, which is kept for ever, are written so.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(value, Ordering::Release);
}

fn load(at: u64) -> u64 {
    // SAFETY: as above.
    unsafe { AtomicU64::from_ptr(at as *mut u64) }.load(Ordering::Acquire)
}

fn word(at: u64) -> u32 {
    // SAFETY: checked to be allocated, or kept all the same; only this thread touches it now.
    unsafe { (at as *const u32).read_unaligned() }
}

fn set_word(at: u64, value: u32) {
    // SAFETY: as above.
    unsafe { (at as *mut u32).write_unaligned(value) };
}

fn give<T>(to: Out<T>, value: T) {
    // SAFETY: the caller gives a place for the answer.
    unsafe { to.write(value) };
}

/// Waits until something is so, without the lock.
fn until(so: impl Fn(&World) -> bool) -> c_int {
    loop {
        {
            let world = world();
            if world.is_faulted {
                return LAUNCH_FAILED;
            }
            if so(&world) {
                return 0;
            }
        }
        std::thread::sleep(Duration::from_micros(20));
    }
}

macro_rules! fakes {
    ($($name:ident |$world:ident| ($($arg:ident: $ty:ty),*) $body:block)*) => {
        $(
            #[allow(non_snake_case)]
            pub(super) unsafe extern "system" fn $name($($arg: $ty),*) -> c_int {
                let mut $world = world();
                if !$world.call(stringify!($name)) {
                    return LAUNCH_FAILED;
                }
                $body
            }
        )*
    };
}

macro_rules! bare {
    ($($name:ident ($($arg:ident: $ty:ty),*) $body:block)*) => {
        $(
            #[allow(non_snake_case)]
            pub(super) unsafe extern "system" fn $name($($arg: $ty),*) -> c_int $body
        )*
    };
}

bare! {
    cuInit(_flags: c_uint) { 0 }
    cuDriverGetVersion(version: Out<c_int>) { give(version, 13_000); 0 }
    cuGetErrorName(_code: c_int, _name: Out<*const c_char>) { INVALID }
    cuGetErrorString(_code: c_int, _text: Out<*const c_char>) { INVALID }
    cuDeviceGetCount(count: Out<c_int>) { give(count, 1); 0 }
    cuDeviceGet(device: Out<c_int>, ordinal: c_int) { give(device, ordinal); 0 }
    cuDeviceGetName(name: Out<c_char>, _bytes: c_int, _device: c_int) { give(name, b'F' as c_char); give(name.wrapping_add(1), 0); 0 }
    cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, _device: c_int) {
        give(value, match attribute { 1..=3 => 1024, 4 => 64, 75 => 9, 97 => 227 << 10, 115 | 122 => 1, _ => 0 });
        0
    }
    // This device shares no memory with the host.
    cuMemAllocManaged(_pointer: Out<DevicePointer>, _bytes: usize, _flags: c_uint) { INVALID }
    cuMemAdvise(_pointer: DevicePointer, _bytes: usize, _advice: c_int, _device: c_int) { INVALID }
    cuDeviceTotalMem(bytes: Out<usize>, _device: c_int) { give(bytes, 1 << 32); 0 }
    cuDevicePrimaryCtxRetain(context: Out<Ptr>, _device: c_int) { world().contexts += 1; give(context, CONTEXT as Ptr); 0 }
    cuDevicePrimaryCtxRelease(_device: c_int) { world().contexts -= 1; 0 }
    cuCtxGetCurrent(context: Out<Ptr>) { give(context, CURRENT.get() as Ptr); 0 }
    cuCtxSetCurrent(context: Ptr) { CURRENT.set(context as usize); 0 }
    cuStreamSynchronize(stream: Ptr) {
        if !world().call("cuStreamSynchronize") { return LAUNCH_FAILED; }
        until(|world| world.streams.get(&(stream as usize)).is_none_or(VecDeque::is_empty))
    }
    cuEventSynchronize(event: Ptr) {
        if !world().call("cuEventSynchronize") { return LAUNCH_FAILED; }
        until(|world| world.events.get(&(event as usize)).is_none_or(|event| event.done >= event.recorded))
    }
    cuMemcpyDtoHAsync(to: Ptr, from: DevicePointer, bytes: usize, stream: Ptr) {
        let mut guard = world();
        if !guard.call("cuMemcpyDtoHAsync") { return LAUNCH_FAILED; }
        if guard.holds(to as u64, bytes) {
            return guard.push(stream, Op::Copy(to as u64, from, bytes));
        }
        drop(guard);
        let waited = until(|world| world.streams.get(&(stream as usize)).is_none_or(VecDeque::is_empty));
        world().check(from, bytes, "the source of a download");
        // SAFETY: the caller gives so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to.cast(), bytes) };
        waited
    }
}

fakes! {
    cuCtxGetStreamPriorityRange |_world| (least: Out<c_int>, greatest: Out<c_int>) { give(least, 0); give(greatest, -5); 0 }
    cuStreamCreate |world| (stream: Out<Ptr>, _flags: c_uint, _priority: c_int) {
        let handle = world.new_handle();
        world.streams.insert(handle, VecDeque::new());
        give(stream, handle as Ptr);
        0
    }
    cuStreamDestroy |world| (stream: Ptr) { if world.streams.remove(&(stream as usize)).is_some() { 0 } else { INVALID } }
    cuStreamQuery |world| (stream: Ptr) {
        if world.streams.get(&(stream as usize)).is_none_or(VecDeque::is_empty) { 0 } else { NOT_READY }
    }
    cuStreamWaitEvent |world| (stream: Ptr, event: Ptr, _flags: c_uint) {
        let recorded = world.events.get(&(event as usize)).map_or(0, |event| event.recorded);
        world.push(stream, Op::WaitEvent(event as usize, recorded))
    }
    cuStreamWriteValue64 |world| (stream: Ptr, at: DevicePointer, value: u64, _flags: c_uint) {
        world.push(stream, Op::Write(at, value))
    }
    cuStreamWaitValue64 |world| (stream: Ptr, at: DevicePointer, value: u64, _flags: c_uint) {
        world.push(stream, Op::Wait(at, value))
    }
    cuEventCreate |world| (event: Out<Ptr>, _flags: c_uint) {
        let handle = world.new_handle();
        world.events.insert(handle, Event::default());
        give(event, handle as Ptr);
        0
    }
    cuEventDestroy |world| (event: Ptr) {
        let Some(known) = world.events.remove(&(event as usize)) else { return INVALID };
        world.dying.insert(event as usize, known);
        0
    }
    cuEventRecord |world| (event: Ptr, stream: Ptr) {
        let Some(known) = world.events.get_mut(&(event as usize)) else { return INVALID };
        known.recorded += 1;
        let number = known.recorded;
        if stream.is_null() {
            known.done = number;
        }
        world.push(stream, Op::Record(event as usize, number))
    }
    cuEventElapsedTime |world| (milliseconds: Out<f32>, from: Ptr, to: Ptr) {
        let at = |event: Ptr| world.events.get(&(event as usize)).and_then(|event| event.at);
        let (Some(from), Some(to)) = (at(from), at(to)) else { return NOT_READY };
        give(milliseconds, (to - from).as_secs_f32() * 1e3);
        0
    }
    cuDeviceGetDefaultMemPool |_world| (pool: Out<Ptr>, _device: c_int) { give(pool, 5 as Ptr); 0 }
    cuMemPoolSetAttribute |_world| (_pool: Ptr, _attribute: c_int, _value: Ptr) { 0 }
    cuMemPoolTrimTo |_world| (_pool: Ptr, _keep: usize) { 0 }
    cuMemAllocAsync |world| (pointer: Out<DevicePointer>, bytes: usize, _stream: Ptr) {
        if world.memory_limit.is_some_and(|limit| world.memory.values().sum::<usize>() + bytes > limit) {
            return OUT_OF_MEMORY;
        }
        give(pointer, world.new_memory(bytes, false));
        0
    }
    cuMemFreeAsync |world| (pointer: DevicePointer, stream: Ptr) { world.push(stream, Op::Free(pointer)) }
    cuMemAlloc |world| (pointer: Out<DevicePointer>, bytes: usize) { give(pointer, world.new_memory(bytes, false)); 0 }
    cuMemFree |world| (pointer: DevicePointer) { if world.memory.remove(&pointer).is_some() { 0 } else { INVALID } }
    cuMemHostAlloc |world| (pointer: Out<Ptr>, bytes: usize, _flags: c_uint) {
        give(pointer, world.new_memory(bytes, true) as Ptr);
        0
    }
    cuMemFreeHost |world| (pointer: Ptr) { if world.pinned.remove(&(pointer as u64)).is_some() { 0 } else { INVALID } }
    cuPointerGetAttribute |world| (value: Ptr, attribute: c_int, pointer: DevicePointer) {
        let within = |map: &BTreeMap<u64, usize>| {
            map.range(..=pointer).next_back().is_some_and(|(&start, &size)| pointer < start + size as u64)
        };
        let answer = match (attribute, within(&world.memory), within(&world.pinned)) {
            (2, true, _) => 2,
            (2, _, true) => 1,
            (9, true, _) => 0,
            _ => return INVALID,
        };
        give(value.cast::<u32>(), answer);
        0
    }
    cuMemsetD8Async |world| (at: DevicePointer, _value: u8, bytes: usize, stream: Ptr) {
        world.push(stream, Op::Clear(at, bytes))
    }
    cuMemcpyHtoDAsync |world| (to: DevicePointer, from: *const c_void, bytes: usize, stream: Ptr) {
        let is_long = |op: &Op| matches!(op, Op::Kernel(_) | Op::Wait(..) | Op::WaitEvent(..));
        let is_blocked = world.streams.get(&(stream as usize)).is_some_and(|stream| stream.iter().any(is_long));
        if is_blocked && !world.holds(from as u64, bytes) {
            world.wrong.push("an upload of ordinary memory behind other work, for which the driver may wait".to_owned());
        }
        let op = match world.holds(from as u64, bytes) {
            true => Op::Copy(to, from as u64, bytes),
            // SAFETY: the caller gives so many bytes.
            false => Op::Upload(to, unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec()),
        };
        world.push(stream, op)
    }
    cuMemcpyDtoDAsync |world| (to: DevicePointer, from: DevicePointer, bytes: usize, stream: Ptr) {
        world.push(stream, Op::Copy(to, from, bytes))
    }
    cuLinkCreate |world| (_count: c_uint, _options: Out<c_int>, _values: Out<Ptr>, state: Out<Ptr>) {
        let handle = world.new_handle();
        world.texts.insert(handle, String::new());
        give(state, handle as Ptr);
        0
    }
    cuLinkAddData |world| (state: Ptr, _kind: c_int, data: Ptr, _size: usize, _name: *const c_char, _count: c_uint, _options: Out<c_int>, _values: Out<Ptr>) {
        // SAFETY: a text ends with a zero byte.
        let text = unsafe { CStr::from_ptr(data.cast()) }.to_string_lossy().into_owned();
        world.texts.insert(state as usize, text);
        0
    }
    cuLinkComplete |world| (state: Ptr, code: Out<Ptr>, size: Out<usize>) {
        let Some(text) = world.texts.get(&(state as usize)) else { return INVALID };
        give(code, text.as_ptr() as Ptr);
        give(size, text.len());
        0
    }
    cuLinkDestroy |world| (state: Ptr) { if world.texts.remove(&(state as usize)).is_some() { 0 } else { INVALID } }
    cuModuleLoadData |world| (module: Out<Ptr>, image: *const c_void) {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
        let handle = world.new_handle();
        world.modules.insert(handle, text);
        give(module, handle as Ptr);
        0
    }
    cuModuleUnload |world| (module: Ptr) {
        if world.streams.values().any(|stream| stream.iter().any(|op| matches!(op, Op::Kernel(_)))) {
            world.wrong.push("a module was unloaded while kernels ran, which may wait for them".to_owned());
        }
        if world.modules.remove(&(module as usize)).is_some() { 0 } else { INVALID } }
    cuModuleGetFunction |world| (function: Out<Ptr>, module: Ptr, name: *const c_char) {
        // SAFETY: a name ends with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        if !world.modules.get(&(module as usize)).is_some_and(|text| text.contains(&name)) {
            return NOT_FOUND;
        }
        give(function, module);
        0
    }
    cuFuncGetAttribute |_world| (value: Out<c_int>, _attribute: c_int, _function: Ptr) { give(value, 16); 0 }
    cuFuncSetAttribute |_world| (_function: Ptr, _attribute: c_int, _value: c_int) { 0 }
    cuLaunchKernel |world| (function: Ptr, gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint, _shared: c_uint, stream: Ptr, params: Out<Ptr>, _extra: Out<Ptr>) {
        let Some(kernel) = world.kernel(function as usize, gx, params) else { return INVALID };
        world.push(stream, Op::Kernel(kernel))
    }
    cuGraphCreate |world| (graph: Out<Ptr>, _flags: c_uint) {
        let handle = world.new_handle();
        world.graphs.insert(handle, Vec::new());
        give(graph, handle as Ptr);
        0
    }
    cuGraphAddKernelNode |world| (node: Out<Ptr>, graph: Ptr, _after: *const Ptr, _count: usize, params: *const KernelParams) {
        // SAFETY: the caller gives the parameters.
        let params = unsafe { &*params };
        let Some(kernel) = world.kernel(params.function as usize, params.grid[0], params.params) else { return INVALID };
        add(&mut world, node, graph, Op::Kernel(kernel))
    }
    cuGraphAddMemcpyNode |world| (node: Out<Ptr>, graph: Ptr, _after: *const Ptr, _count: usize, params: *const CopyParams, _context: Ptr) {
        add(&mut world, node, graph, copy(params))
    }
    cuGraphAddMemsetNode |world| (node: Out<Ptr>, graph: Ptr, _after: *const Ptr, _count: usize, params: *const FillParams, _context: Ptr) {
        add(&mut world, node, graph, fill(params))
    }
    cuGraphExecKernelNodeSetParams |world| (ready: Ptr, node: Ptr, params: *const KernelParams) {
        // SAFETY: as above.
        let params = unsafe { &*params };
        let Some(kernel) = world.kernel(params.function as usize, params.grid[0], params.params) else { return INVALID };
        change(&mut world, ready, node, Op::Kernel(kernel))
    }
    cuGraphExecMemcpyNodeSetParams |world| (ready: Ptr, node: Ptr, params: *const CopyParams, _context: Ptr) {
        change(&mut world, ready, node, copy(params))
    }
    cuGraphExecMemsetNodeSetParams |world| (ready: Ptr, node: Ptr, params: *const FillParams, _context: Ptr) {
        change(&mut world, ready, node, fill(params))
    }
    cuGraphInstantiate |world| (ready: Out<Ptr>, graph: Ptr, _flags: u64) {
        let Some(ops) = world.graphs.get(&(graph as usize)).cloned() else { return INVALID };
        let handle = world.new_handle();
        world.ready.insert(handle, ops);
        give(ready, handle as Ptr);
        0
    }
    cuGraphLaunch |world| (ready: Ptr, stream: Ptr) {
        let Some(ops) = world.ready.get(&(ready as usize)).cloned() else { return INVALID };
        match &mut world.graph_launches_left {
            Some(0) => return INVALID,
            Some(left) => *left -= 1,
            None => {}
        }
        *world.running.entry(ready as usize).or_default() += 1;
        for (_, op) in ops {
            world.push(stream, op);
        }
        world.push(stream, Op::GraphEnds(ready as usize))
    }
    cuGraphExecDestroy |world| (ready: Ptr) {
        if world.running.get(&(ready as usize)).is_some_and(|&running| running > 0) {
            world.wrong.push("a graph was destroyed while it ran".to_owned());
        }
        if world.ready.remove(&(ready as usize)).is_some() { 0 } else { INVALID }
    }
    cuGraphDestroy |world| (graph: Ptr) { if world.graphs.remove(&(graph as usize)).is_some() { 0 } else { INVALID } }
}

fn copy(params: *const CopyParams) -> Op {
    // SAFETY: the caller gives the parameters.
    let params = unsafe { &*params };
    Op::Copy(params.to.device, params.from.device, params.width)
}

fn fill(params: *const FillParams) -> Op {
    // SAFETY: as above.
    let params = unsafe { &*params };
    Op::Clear(params.to, params.width)
}

fn add(world: &mut World, node: Out<Ptr>, graph: Ptr, op: Op) -> c_int {
    let handle = world.new_handle();
    let Some(nodes) = world.graphs.get_mut(&(graph as usize)) else { return INVALID };
    nodes.push((handle, op));
    give(node, handle as Ptr);
    0
}

fn change(world: &mut World, ready: Ptr, node: Ptr, op: Op) -> c_int {
    if world.refuses_changes {
        return INVALID;
    }
    let nodes = world.ready.get_mut(&(ready as usize));
    match nodes.and_then(|nodes| nodes.iter_mut().find(|(handle, _)| *handle == node as usize)) {
        Some((_, old)) => {
            *old = op;
            0
        }
        None => INVALID,
    }
}

/// A fresh world for one test at a time; it says what was wrong and what was left when the test is over.
pub(crate) struct Fresh(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Fresh {
    pub(crate) fn new() -> Fresh {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let next = world().next;
        *world() = World { next, ..World::default() };
        Fresh(guard)
    }
}
