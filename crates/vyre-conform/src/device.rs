//! What a backend with device-resident buffers must do besides giving right answers: move bytes, chain launches, split grids,
//! store pipelines, serve threads, keep its order, and end what is cancelled and nothing else.

mod order;

use std::error::Error;
use std::time::Duration;

use vyre_driver::backend::{Binding, Buffer, CompileOptions, Launch, Order};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{AtomicOp, BufferDecl, Builtin, DataType, Expr, MathOp, Node, Program};
use vyre_foundation::kernel::Features;
use vyre_spec::codes;

/// One check of a backend; the error says what went wrong.
pub type DeviceCheck = fn(&dyn VyreBackend) -> Result<(), Box<dyn Error>>;

/// Every check, with its name.
pub const DEVICE_CHECKS: [(&str, DeviceCheck); BASIC_CHECKS.len() + order::ORDER_CHECKS.len()] = {
    let mut all = [BASIC_CHECKS[0]; BASIC_CHECKS.len() + order::ORDER_CHECKS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = match at < BASIC_CHECKS.len() {
            true => BASIC_CHECKS[at],
            false => order::ORDER_CHECKS[at - BASIC_CHECKS.len()],
        };
        at += 1;
    }
    all
};

const BASIC_CHECKS: [(&str, DeviceCheck); 10] = [
    ("large grids are split", split_grid),
    ("unaligned copies arrive", unaligned_copies),
    ("large copies arrive", large_copies),
    ("artifacts load again", artifact),
    ("launches are timed and chained", chained),
    ("threads submit at once", threads),
    ("what compilers get wrong", compiler_bugs),
    ("quotients of 64 bits by constants", wide_quotients),
    ("counters pass zero", counters),
    ("endless loops end", endless),
];

/// The same backend with a timeout that is never reached on every dispatch, so that kernels are compiled to be stopped.
pub struct Patient<'a>(pub &'a dyn VyreBackend);

impl VyreBackend for Patient<'_> {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let mut config = config.clone();
        config.timeout = Some(Duration::from_secs(60));
        self.0.dispatch(program, inputs, &config)
    }
}

fn expect(good: bool, what: impl FnOnce() -> String) -> Result<(), Box<dyn Error>> {
    if good { Ok(()) } else { Err(what().into()) }
}

/// Fails unless the result is an error with this code.
pub fn refused<T>(result: Result<T, BackendError>, code: &codes::CodeEntry, what: &str) -> Result<(), Box<dyn Error>> {
    let error = result.err().ok_or_else(|| format!("{what} was not refused"))?;
    println!("{what}: {error}");
    expect(error.code() == code.id, || format!("{what}: {error}"))
}

/// A program that adds one to every element of its buffer `data`.
pub fn add_one() -> Program {
    Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("data", Expr::global_id(0), Expr::load("data", Expr::global_id(0)) + Expr::u32(1))],
    )
}

/// The bytes of u32 values.
pub fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A small dispatch gives what it should.
pub fn works(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let results = backend.dispatch(&add_one(), &[words(0..200)], &DispatchConfig::default())?;
    expect(results == [words(1..201)], || "a small dispatch is wrong".to_owned())
}

fn split_grid(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let seen = |at, value| Node::atomic(AtomicOp::Max, "seen", Expr::u32(at), value);
    let count = Program::wrapped(
        vec![BufferDecl::read_write("seen", 0, DataType::U32).with_count(5)],
        [1, 1, 1],
        vec![
            Node::atomic(AtomicOp::Add, "seen", Expr::u32(0), Expr::u32(1)),
            seen(1, Expr::global_id(0)),
            seen(2, Expr::global_id(1)),
            seen(3, Expr::global_id(2)),
            seen(4, Expr::Builtin(Builtin::NumWorkgroups(1))),
        ],
    );
    for grid in [[70_000, 1, 1], [2, 66_000, 1], [3, 1, 65_536], [1, 200_000, 1], [3, 65_536, 2], [0, 5, 5]] {
        let mut config = DispatchConfig::default();
        config.grid_override = Some(grid);
        let results = backend.dispatch(&count, &[vec![0; 20]], &config)?;
        let expected = match grid.iter().product::<u32>() {
            0 => [0; 5],
            total => [total, grid[0] - 1, grid[1] - 1, grid[2] - 1, grid[1]],
        };
        expect(results == [words(expected)], || format!("{grid:?}: {results:?} instead of {expected:?}"))?;
    }
    Ok(())
}

fn unaligned_copies(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let size = 1021;
    let mut expected: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
    let (buffer, other) = (backend.allocate(size as u64)?, backend.allocate(size as u64)?);
    let order = Order::default();
    let part = |of: &Buffer, offset, bytes| Binding { buffer: of.clone(), offset, bytes };
    let upload =
        |offset, bytes: &[u8]| backend.upload(&buffer, offset, bytes, &order).map(|ticket| backend.forget(ticket));
    let copy = |from, to| backend.copy(&from, &to, &order).map(|ticket| backend.forget(ticket));
    let clear = |part| backend.clear(&part, &order).map(|ticket| backend.forget(ticket));
    upload(0, &expected)?;
    for (offset, length) in [(0, 1), (1, 1), (3, 2), (5, 11), (1000, 21), (1020, 1), (7, 0)] {
        let bytes: Vec<u8> = (0..length).map(|i| 200 + i as u8).collect();
        upload(offset as u64, &bytes)?;
        expected[offset..offset + length].copy_from_slice(&bytes);
        let mut found = vec![0; length];
        backend.download(&buffer, offset as u64, &mut found, &order)?;
        expect(found == bytes, || format!("{length} bytes at {offset} changed on the way"))?;
    }
    copy(part(&buffer, 0, size as u64), part(&other, 0, size as u64))?;
    copy(part(&buffer, 3, 33), part(&other, 101, 33))?;
    copy(part(&buffer, 0, 64), part(&buffer, 512, 64))?;
    clear(part(&buffer, 2, 3))?;
    clear(part(&buffer, 1000, 21))?;
    let mut copied = expected.clone();
    copied[101..134].copy_from_slice(&expected[3..36]);
    let first = expected[..64].to_vec();
    expected[512..576].copy_from_slice(&first);
    expected[2..5].fill(0);
    expected[1000..].fill(0);
    let (mut one, mut two) = (vec![0; size], vec![0; size]);
    backend.download(&buffer, 0, &mut one, &order)?;
    backend.download(&other, 0, &mut two, &order)?;
    expect(one == expected && two == copied, || "copies are wrong".to_owned())
}

fn large_copies(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    for size in [(256 << 10) + 4, (4 << 20) + 12, 70 << 20] {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 7 + i / 1000) as u8).collect();
        let buffer = backend.allocate(size as u64 + 64)?;
        let order = Order::default();
        backend.upload(&buffer, 32, &bytes, &order).map(|ticket| backend.forget(ticket))?;
        let mut out = vec![0; size];
        backend.download(&buffer, 32, &mut out, &order)?;
        expect(out == bytes, || format!("{size} bytes changed on the way"))?;
    }
    // Memory that copies go through is used again, but not before the one before is over.
    let size = 20 << 20;
    let buffers = [backend.allocate(size as u64)?, backend.allocate(size as u64)?];
    let contents = |number: usize| -> Vec<u8> { (0..size).map(|i| (i * (2 * number + 1) + i / 4096) as u8).collect() };
    for number in 0..6 {
        let uploaded = backend.upload(&buffers[number % 2], 0, &contents(number), &Order::default())?;
        backend.forget(uploaded);
    }
    for (buffer, number) in buffers.iter().zip([4, 5]) {
        let mut out = vec![0; size];
        backend.download(buffer, 0, &mut out, &Order::default())?;
        expect(out == contents(number), || "uploads that follow each other are mixed up".to_owned())?;
    }
    Ok(())
}

/// Damage that nothing authenticated must be noticed at least where it makes the artifact shorter or something else.
fn artifact(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let options = CompileOptions::default();
    let Some(bytes) = backend.compile(&valid, &options)?.artifact() else {
        println!("this backend stores nothing");
        return Ok(());
    };
    println!("{} bytes", bytes.len());
    let pipeline = backend.load(&valid, &options, &bytes)?;
    let buffer = backend.allocate(400)?;
    let bindings = [Binding::from(buffer.clone())];
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [2, 1, 1]))?;
    backend.wait(ticket, None)?;
    let mut out = vec![0; 400];
    backend.download(&buffer, 0, &mut out, &Order::default())?;
    expect(out == words([1; 100]), || format!("{out:?}"))?;
    for damaged in [&bytes[..20], &bytes[..bytes.len() / 2], b"something else"] {
        refused(backend.load(&valid, &options, damaged), &codes::backend::BAD_ARTIFACT, "a damaged artifact")?;
    }
    Ok(())
}

fn chained(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let (buffer, other) = (backend.allocate(1 << 20)?, backend.allocate(1 << 20)?);
    let bindings = [Binding::from(buffer.clone())];
    let mut last = None;
    for round in 0..100 {
        let launch = Launch { timed: round % 2 == 1, ..Launch::new(&bindings, [1 << 12, 1, 1]) };
        last = Some(backend.submit(&pipeline, &launch)?);
    }
    let last = last.ok_or("nothing was submitted")?;
    let completion = backend.wait(last, Some(Duration::from_secs(60)))?.ok_or("the launches are not over")?;
    let timed = backend.capabilities().timestamps;
    expect(completion.device_ns.is_some_and(|ns| ns > 0) == timed, || format!("{completion:?}"))?;
    let order = Order::default();
    let all = |buffer: &Buffer| Binding::from(buffer.clone());
    backend.copy(&all(&buffer), &all(&other), &order).map(|ticket| backend.forget(ticket))?;
    let part = Binding { buffer: buffer.clone(), offset: 4, bytes: 8 };
    backend.clear(&part, &order).map(|ticket| backend.forget(ticket))?;
    let mut out = vec![0; 1 << 20];
    backend.download(&other, 0, &mut out, &order)?;
    expect(out == words(std::iter::repeat_n(100, 1 << 18)), || "a round was lost".to_owned())?;
    backend.download(&buffer, 0, &mut out[..16], &order)?;
    expect(out[..16] == words([100, 0, 0, 100]), || format!("{:?}", &out[..16]))
}

fn threads(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let program = add_one();
    let work = |worker: u32| -> Result<bool, BackendError> {
        for round in 0..50 {
            let input = words((0..500).map(|i| i * worker + round));
            let expected = words((0..500).map(|i| i * worker + round + 1));
            if backend.dispatch_borrowed(&program, &[&input], &DispatchConfig::default())? != [expected] {
                return Ok(false);
            }
        }
        Ok(true)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || work(worker))).collect();
        for worker in workers {
            let same = worker.join().map_err(|_| "a thread panicked")??;
            expect(same, || "a thread got another's results".to_owned())?;
        }
        Ok(())
    })
}

/// Combinations that driver compilers were seen to get wrong when they are written the plain way.
fn compiler_bugs(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let at = || Expr::global_id(0);
    let math = |op: MathOp, args: Vec<Expr>| Expr::Math { op, args };
    let int = |name: &str| Expr::load(name, at());
    let minimum = |negated: Expr| {
        let low = math(MathOp::Max, vec![Expr::i32(0), int("a")]);
        math(MathOp::Min, vec![Expr::i32(0), math(MathOp::Min, vec![low, negated])])
    };
    let one_if = |cond: Expr| Expr::select(cond, Expr::i32(1), Expr::i32(0));
    let float = || math(MathOp::Abs, vec![Expr::load("f", at())]);
    let bounded = math(MathOp::Clamp, vec![Expr::i32(0), Expr::i32(0), math(MathOp::Abs, vec![int("a")])]);
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::I32),
            BufferDecl::read("b", 1, DataType::I32),
            BufferDecl::read("f", 2, DataType::F32),
            BufferDecl::output("negated", 3, DataType::I32),
            BufferDecl::output("from_zero", 4, DataType::I32),
            BufferDecl::output("absolute", 5, DataType::I32),
            BufferDecl::output("number", 6, DataType::I32),
            BufferDecl::output("bounded", 7, DataType::I32),
        ],
        [64, 1, 1],
        vec![
            Node::store("negated", at(), minimum(-int("b"))),
            Node::store("from_zero", at(), minimum(Expr::i32(0) - int("b"))),
            Node::store("absolute", at(), one_if(math(MathOp::Abs, vec![int("a")]).ge(Expr::i32(0)))),
            Node::store("number", at(), one_if(Expr::f32(-3.0).lt(float()))),
            Node::store("bounded", at(), bounded),
        ],
    );
    let (a, b): (Vec<i32>, Vec<i32>) = ([33, -5, 5, i32::MIN].to_vec(), [33, 7, -7, 1].to_vec());
    let floats = [f32::NAN, -1.0, 0.0, f32::INFINITY];
    let bytes = |values: &[i32]| words(values.iter().map(|&value| value as u32));
    let inputs = [bytes(&a), bytes(&b), words(floats.map(f32::to_bits))];
    let results = backend.dispatch(&program, &inputs, &DispatchConfig::default())?;
    let expected = [[-33, -7, 0, -1], [-33, -7, 0, -1], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, i32::MIN]]
        .map(|values| bytes(&values));
    expect(results == expected, || format!("{results:?} instead of {expected:?}"))
}

/// Constants divide differences in which a minimum or maximum was chosen; NVIDIA's Vulkan driver (580) mixes up the halves, and is refused.
fn wide_quotients(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    if !backend.capabilities().features.contains(Features::INT64) {
        println!("it has no integers of 64 bits");
        return Ok(());
    }
    const HIGH: u64 = 1 << 63;
    let at = || Expr::global_id(0);
    let x = || Expr::load("x", at());
    let chosen = |op: MathOp| Expr::Math { op, args: vec![x(), Expr::u64(HIGH)] };
    let program = Program::wrapped(
        vec![
            BufferDecl::read("x", 0, DataType::U64),
            BufferDecl::output("least", 1, DataType::U64),
            BufferDecl::output("most", 2, DataType::U64),
            BufferDecl::output("rest", 3, DataType::U64),
        ],
        [64, 1, 1],
        vec![
            Node::store("least", at(), (x() - chosen(MathOp::Min)) / Expr::u64(17)),
            Node::store("most", at(), (x() - chosen(MathOp::Max)) / Expr::u64(17)),
            Node::store("rest", at(), (x() - chosen(MathOp::Max)) % Expr::u64(17)),
        ],
    );
    let numbers: Vec<u64> = (0..64).map(|at| if at % 3 == 2 { HIGH + 1000 * at } else { at / 2 }).collect();
    let bytes = |each: &dyn Fn(u64) -> u64| numbers.iter().flat_map(|&x| each(x).to_le_bytes()).collect::<Vec<u8>>();
    let results = match backend.dispatch(&program, &[bytes(&|x| x)], &DispatchConfig::default()) {
        Err(error) if error.code() == codes::backend::UNSUPPORTED_FEATURE.id => {
            println!("{error}");
            return Ok(());
        }
        results => results?,
    };
    let expected = [
        bytes(&|x| (x - x.min(HIGH)) / 17),
        bytes(&|x| x.wrapping_sub(x.max(HIGH)) / 17),
        bytes(&|x| x.wrapping_sub(x.max(HIGH)) % 17),
    ];
    expect(results == expected, || format!("{results:?} instead of {expected:?}"))
}

/// Loops whose counter would pass zero or the largest number with one more step, around a loop that ends by itself.
fn counters(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let sum = |value: Expr| Node::assign("sum", Expr::var("sum") * Expr::u32(3) + value);
    let turn = |name: &str| {
        let again = Expr::var(name).lt(Expr::load("rounds", Expr::u32(0)));
        let step = Node::assign(name, Expr::var(name) + Expr::u32(1));
        vec![
            Node::var(name, DataType::U32, Expr::u32(0)),
            Node::forever(vec![step, Node::if_then(!again, vec![Node::Break])]),
            sum(Expr::var(name)),
        ]
    };
    let with = |value: Expr, name: &str| [turn(name), vec![sum(value)]].concat();
    let signed = Expr::var("i").cast(DataType::U32);
    let program = Program::wrapped(
        vec![BufferDecl::read("rounds", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32).with_count(4)],
        [4, 1, 1],
        vec![
            Node::var("sum", DataType::U32, Expr::u32(0)),
            Node::For { var: "i".into(), from: Expr::i32(-4), to: Expr::i32(-1), step: 2, body: with(signed, "a") },
            Node::For {
                var: "j".into(),
                from: Expr::u32(u32::MAX - 3),
                to: Expr::u32(u32::MAX),
                step: 2,
                body: with(Expr::var("j"), "b"),
            },
            Node::store("out", Expr::local_id(0), Expr::var("sum")),
        ],
    );
    let mut expected = 0u32;
    for value in [-4i32 as u32, -2i32 as u32, u32::MAX - 3, u32::MAX - 1] {
        expected = (expected.wrapping_mul(3).wrapping_add(5)).wrapping_mul(3).wrapping_add(value);
    }
    let results = backend.dispatch(&program, &[words([5])], &DispatchConfig::default())?;
    expect(results == [words([expected; 4])], || format!("{results:?} instead of {expected}"))
}

fn endless(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let endless = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::forever(vec![Node::atomic(AtomicOp::Add, "data", Expr::u32(0), Expr::u32(1))])],
    );
    let mut config = DispatchConfig::default();
    config.timeout = Some(Duration::from_millis(50));
    // More workgroups than run at once: those that start late must end too.
    config.grid_override = Some([1 << 14, 1, 1]);
    refused(
        backend.dispatch(&endless, &[words([0; 64])], &config),
        &codes::backend::TIMEOUT,
        "an endless loop with a timeout of 50 ms",
    )?;
    works(backend)
}
