//! On an NVIDIA GPU, beside machine code that NVIDIA's compiler made; both through the driver, timed by its events.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use libloading::Library;
use vyre::ir::Math;
use vyre::kernel;

use crate::report::{Row, Times, order};
use crate::works::{Buffer, Work, near};
use crate::{Asked, Outcome};

type Ptr = *mut c_void;

/// Machine code of a twin, and what it is called.
const PEERS: [(&str, &str); 3] =
    [("nofma", "nvcc -O3 -fmad=false"), ("fast", "nvcc -O3 -use_fast_math"), ("o3", "nvcc -O3")];
/// Workgroups that a block of our second entry runs.
const TOGETHER: u32 = 4;

macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Table { $($name: unsafe extern "system" fn($($arg),*) -> c_int,)* }

        impl Table {
            fn load(library: &Library) -> Outcome<Table> {
                // SAFETY: the types are those of the driver's header for these symbols.
                Ok(Table { $($name: unsafe { *library.get($symbol)? },)* })
            }
        }
    };
}

table! {
    cuInit = b"cuInit" (c_uint);
    cuDeviceGet = b"cuDeviceGet" (*mut c_int, c_int);
    cuDeviceGetName = b"cuDeviceGetName" (*mut c_char, c_int, c_int);
    cuDeviceGetAttribute = b"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain = b"cuDevicePrimaryCtxRetain" (*mut Ptr, c_int);
    cuCtxSetCurrent = b"cuCtxSetCurrent" (Ptr);
    cuCtxSynchronize = b"cuCtxSynchronize" ();
    cuModuleLoadData = b"cuModuleLoadData" (*mut Ptr, *const c_void);
    cuModuleUnload = b"cuModuleUnload" (Ptr);
    cuModuleGetFunction = b"cuModuleGetFunction" (*mut Ptr, Ptr, *const c_char);
    cuFuncGetAttribute = b"cuFuncGetAttribute" (*mut c_int, c_int, Ptr);
    cuEventCreate = b"cuEventCreate" (*mut Ptr, c_uint);
    cuEventRecord = b"cuEventRecord" (Ptr, Ptr);
    cuEventSynchronize = b"cuEventSynchronize" (Ptr);
    cuEventElapsedTime = b"cuEventElapsedTime" (*mut f32, Ptr, Ptr);
    cuMemAlloc = b"cuMemAlloc_v2" (*mut u64, usize);
    cuMemFree = b"cuMemFree_v2" (u64);
    cuMemcpyHtoD = b"cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    cuMemcpyDtoH = b"cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    cuLaunchKernel = b"cuLaunchKernel"
        (Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr);
}

struct Driver {
    table: Table,
    name: String,
    capability: u32,
    events: [Ptr; 2],
    _library: Library,
}

macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),*)) => {{
        // SAFETY: the arguments are of the header's types; pointers among them point to what lives across the call.
        match unsafe { ($driver.$name)($($arg),*) } {
            0 => {}
            code => return Err(format!("{} answered {code}", stringify!($name)).into()),
        }
    }};
}

impl Driver {
    fn open() -> Outcome<Driver> {
        // SAFETY: the driver's library runs its own start-up code, which expects nothing of us.
        let library = unsafe { Library::new("libcuda.so.1") }?;
        let table = Table::load(&library)?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        call!(table, cuInit(0));
        call!(table, cuDeviceGet(&raw mut device, 0));
        call!(table, cuDevicePrimaryCtxRetain(&raw mut context, device));
        call!(table, cuCtxSetCurrent(context));
        let mut name = [0u8; 128];
        call!(table, cuDeviceGetName(name.as_mut_ptr().cast(), 128, device));
        let (mut major, mut minor) = (0, 0);
        call!(table, cuDeviceGetAttribute(&raw mut major, 75, device));
        call!(table, cuDeviceGetAttribute(&raw mut minor, 76, device));
        let mut events = [std::ptr::null_mut(); 2];
        for event in &mut events {
            call!(table, cuEventCreate(event, 0));
        }
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        Ok(Driver { table, name, capability: (major * 10 + minor) as u32, events, _library: library })
    }

    fn module(&self, image: &[u8], entry: &str) -> Outcome<Option<Code>> {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self.table, cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        let entry = CString::new(entry)?;
        // SAFETY: the module was loaded, and the name ends in zero. Not every module has every entry.
        if unsafe { (self.table.cuModuleGetFunction)(&raw mut function, module, entry.as_ptr()) } != 0 {
            return Ok(None);
        }
        let (mut registers, mut local) = (0, 0);
        call!(self.table, cuFuncGetAttribute(&raw mut local, 3, function));
        call!(self.table, cuFuncGetAttribute(&raw mut registers, 4, function));
        Ok(Some(Code { module, function, registers: [registers, local] }))
    }
}

struct Code {
    module: Ptr,
    function: Ptr,
    registers: [c_int; 2],
}

/// Something to be launched.
struct Launch {
    code: Code,
    grid: [u32; 3],
    block: [u32; 3],
    params: Vec<u64>,
    memory: Vec<u64>,
}

impl Driver {
    fn memory(&self, contents: &[Vec<u32>]) -> Outcome<Vec<u64>> {
        let mut all = Vec::new();
        for words in contents {
            let mut memory = 0;
            call!(self.table, cuMemAlloc(&raw mut memory, words.len() * 4));
            all.push(memory);
        }
        self.fill(&all, contents)?;
        Ok(all)
    }

    fn fill(&self, memory: &[u64], contents: &[Vec<u32>]) -> Outcome<()> {
        for (memory, words) in memory.iter().zip(contents) {
            call!(self.table, cuMemcpyHtoD(*memory, words.as_ptr().cast(), words.len() * 4));
        }
        Ok(())
    }

    fn read(&self, memory: u64, words: usize) -> Outcome<Vec<u32>> {
        let mut out = vec![0u32; words];
        call!(self.table, cuMemcpyDtoH(out.as_mut_ptr().cast(), memory, words * 4));
        Ok(out)
    }

    fn launch(&self, launch: &mut Launch) -> Outcome<()> {
        let mut params: Vec<Ptr> = launch.params.iter_mut().map(|param| (&raw mut *param).cast()).collect();
        let ([x, y, z], [a, b, c]) = (launch.grid, launch.block);
        let none = std::ptr::null_mut();
        call!(
            self.table,
            cuLaunchKernel(launch.code.function, x, y, z, a, b, c, 0, none, params.as_mut_ptr(), std::ptr::null_mut())
        );
        Ok(())
    }

    /// Seconds of one launch, from several in a row.
    fn time(&self, launch: &mut Launch, repeats: u32) -> Outcome<f64> {
        let none = std::ptr::null_mut();
        call!(self.table, cuEventRecord(self.events[0], none));
        for _ in 0..repeats {
            self.launch(launch)?;
        }
        call!(self.table, cuEventRecord(self.events[1], none));
        call!(self.table, cuEventSynchronize(self.events[1]));
        let mut milliseconds = 0.0;
        call!(self.table, cuEventElapsedTime(&raw mut milliseconds, self.events[0], self.events[1]));
        Ok(f64::from(milliseconds) * 1e-3 / f64::from(repeats))
    }

    /// Our kernel; the one of several workgroups in a block where there is one and the grid is whole.
    fn ours(&self, work: &Work, n: usize, math: Math, buffers: &[Buffer], memory: &[u64]) -> Outcome<Launch> {
        let (text, block) = text(work, n, math, self.capability)?;
        let mut grid = (work.grid)(n);
        let strides = strides(work, math)?;
        let elements: Vec<u64> =
            buffers.iter().zip(strides).map(|(buffer, stride)| buffer.words as u64 * 4 / stride).collect();
        let mut params = Vec::new();
        for name in parameters(&text) {
            let of = |kind: &str| name.strip_prefix(kind).and_then(|index| index.parse::<usize>().ok());
            let along = |axis: &str| ["x", "y", "z"].iter().position(|known| *known == axis);
            params.push(
                match (of("buffer"), of("length").or(of("count")), name.strip_prefix("grid_").and_then(along)) {
                    (Some(index), ..) => memory[index],
                    (_, Some(index), _) => elements[index],
                    (.., Some(axis)) => u64::from(grid[axis]),
                    // Nobody is told of the start and nothing stops it, and its first workgroup is the first of all.
                    _ => 0,
                },
            );
        }
        let image = CString::new(text)?;
        let together = if grid[0].is_multiple_of(TOGETHER) {
            self.module(image.as_bytes_with_nul(), "vyre_kernel_together")?
        } else {
            None
        };
        let code = match together {
            Some(code) => {
                grid[0] /= TOGETHER;
                code
            }
            None => self.module(image.as_bytes_with_nul(), "vyre_kernel")?.ok_or("our entry is missing")?,
        };
        Ok(Launch { code, grid, block, params, memory: memory.to_vec() })
    }
}

/// The names of the parameters that our entries take, which are those that they look at.
fn parameters(text: &str) -> Vec<&str> {
    let entry = text.split(".visible .entry").nth(1).unwrap_or_default();
    let list = entry.split(')').next().unwrap_or_default();
    list.lines()
        .filter(|line| line.contains(".param"))
        .filter_map(|line| line.trim_end_matches(',').rsplit(' ').next())
        .collect()
}

/// Bytes from one element of each buffer to the next.
fn strides(work: &Work, math: Math) -> Outcome<Vec<u64>> {
    let program = work.program(math)?;
    let order = program.binding_order();
    order.into_iter().map(|at| Ok(u64::from(vyre::launch::shape_of(&program, at)?.stride))).collect()
}

/// The PTX of our kernel, and its workgroup.
fn text(work: &Work, n: usize, math: Math, capability: u32) -> Outcome<(String, [u32; 3])> {
    let program = work.program(math)?;
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let specialization = work.config(n).specialization.resolve(&program)?;
    let block = vyre::launch::workgroup_size(&program, Some(&specialization))?;
    let options = kernel::Options { specialization, ..kernel::Options::default() };
    Ok((vyre::to_ptx(&valid, &options, capability)?, block))
}

/// Writes the PTX of every kernel in both arithmetics, for an assembler to count registers.
pub(crate) fn write_ptx(works: &[Work], folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    for work in works {
        for math in [Math::Exact, Math::Fast] {
            let (text, _) = text(work, 1 << work.bits[1], math, 90)?;
            std::fs::write(folder.join(format!("{}.{}.ptx", work.name, math.name())), text)?;
        }
    }
    Ok(())
}

pub(crate) fn rows(works: &[Work], asked: &Asked, tell: &mut dyn FnMut(Row) -> Outcome<()>) -> Outcome<()> {
    let driver = Driver::open()?;
    for work in works {
        tell(row(&driver, work, asked).map_err(|problem| format!("{}: {problem}", work.name))?)?;
    }
    Ok(())
}

fn row(driver: &Driver, work: &Work, asked: &Asked) -> Outcome<Row> {
    let n = 1usize << work.bits[1].saturating_sub(asked.smaller);
    let buffers = (work.buffers)(n);
    let contents: Vec<Vec<u32>> = buffers.iter().map(Buffer::contents).collect();
    // All variants work on the same memory, one after another.
    let memory = driver.memory(&contents)?;
    let mut launches = vec![
        ("exact", driver.ours(work, n, Math::Exact, &buffers, &memory)?),
        ("fast", driver.ours(work, n, Math::Fast, &buffers, &memory)?),
    ];
    let block = launches[0].1.block;
    for (suffix, name) in PEERS {
        let path = asked.twins.join(format!("cuda/{}.{suffix}.cubin", work.name));
        let image = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let code = driver.module(&image, "kernel")?.ok_or("the twin has no entry `kernel`")?;
        let mut params = memory.clone();
        params.push(n as u64);
        launches.push((name, Launch { code, grid: (work.grid)(n), block, params, memory: memory.clone() }));
    }
    let mut results: Vec<Vec<Vec<u32>>> = Vec::new();
    for (_, launch) in &mut launches {
        driver.fill(&launch.memory, &contents)?;
        driver.launch(launch)?;
        call!(driver.table, cuCtxSynchronize());
        let read = buffers.iter().zip(&memory).filter(|(buffer, _)| buffer.result.is_some());
        results.push(read.map(|(buffer, &memory)| driver.read(memory, buffer.words)).collect::<Outcome<_>>()?);
    }
    let kinds: Vec<_> = buffers.iter().filter_map(|buffer| buffer.result).collect();
    let agrees = results
        .iter()
        .all(|found| kinds.iter().zip(found).zip(&results[4]).all(|((&kind, ours), theirs)| near(kind, ours, theirs)));
    let mut times: Vec<Times> = launches
        .iter()
        .map(|(name, launch)| Times { registers: Some(launch.code.registers), ..Times::new(name) })
        .collect();
    // About five milliseconds a measurement.
    let once = driver.time(&mut launches[4].1, 1)?;
    let repeats = (5e-3 / once).clamp(1.0, 50.0) as u32;
    for round in 0..asked.rounds {
        for which in order(round, launches.len()) {
            driver.time(&mut launches[which].1, 1)?;
            let seconds = driver.time(&mut launches[which].1, repeats)?;
            times[which].seconds.push(seconds);
        }
    }
    for (_, launch) in &launches {
        call!(driver.table, cuModuleUnload(launch.code.module));
    }
    for memory in memory {
        call!(driver.table, cuMemFree(memory));
    }
    Ok(Row { kernel: work.name, machine: driver.name.clone(), bytes: (work.bytes)(n), times, agrees })
}
