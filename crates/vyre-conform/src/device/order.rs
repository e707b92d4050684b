//! Tickets, queues and fates: work is done in its order, ends alone, and is known by its ticket until that is forgotten.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_driver::backend::{
    Binding, Buffer, CompileOptions, Completion, HostMemory, Launch, Order, Pipeline, Step, Ticket,
};
use vyre_driver::{BackendError, VyreBackend};
use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

use super::{DeviceCheck, add_one, expect, refused, words};
use crate::rng::Rng;

pub(super) const ORDER_CHECKS: [(&str, DeviceCheck); 13] = [
    ("grids are read from buffers in their turn", indirect),
    ("a queue keeps its order", one_queue),
    ("queues wait for each other where they are told to", across_queues),
    ("queues are independent", independent_queues),
    ("waiting gives up and the launch goes on", impatient),
    ("cancelling ends one launch", cancel_one),
    ("a waiting thread sees the cancellation", cancelled_while_waiting),
    ("answers stay the same", answers_stay),
    ("copies keep to deadlines", deadlines),
    ("work behind a failure runs", after_failure),
    ("unknown tickets are refused", unknown_tickets),
    ("memory of the host is adopted", adopted),
    ("recordings replay", recordings),
];

type Checked<T = ()> = Result<T, Box<dyn Error>>;

/// Time in which everything here is over unless something hangs.
const LONG: Duration = Duration::from_secs(60);
/// What a launch that only has to take a while takes at least.
const A_WHILE: Duration = Duration::from_millis(30);

/// One element for each invocation of a workgroup.
const LANES: u32 = 64;

/// A backend with the kernels that the checks launch.
struct Device<'a> {
    backend: &'a dyn VyreBackend,
    add_one: Arc<dyn Pipeline>,
    endless: Arc<dyn Pipeline>,
    slow: Arc<dyn Pipeline>,
}

impl<'a> Device<'a> {
    fn new(backend: &'a dyn VyreBackend) -> Checked<Device<'a>> {
        let endless = Program::wrapped(
            vec![BufferDecl::read_write("data", 0, DataType::U32)],
            [LANES, 1, 1],
            vec![Node::forever(vec![Node::atomic(AtomicOp::Add, "data", Expr::u32(0), Expr::u32(1))])],
        );
        let step = Expr::var("x") * Expr::u32(MULTIPLIER) + Expr::u32(INCREMENT);
        let slow = Program::wrapped(
            vec![BufferDecl::read("rounds", 0, DataType::U32), BufferDecl::read_write("data", 1, DataType::U32)],
            [LANES, 1, 1],
            vec![
                Node::var("x", DataType::U32, Expr::load("data", Expr::global_id(0))),
                Node::For {
                    var: "i".into(),
                    from: Expr::u32(0),
                    to: Expr::load("rounds", Expr::u32(0)),
                    step: 1,
                    body: vec![Node::assign("x", step)],
                },
                Node::store("data", Expr::global_id(0), Expr::var("x")),
            ],
        );
        let compile = |program: &Program| -> Checked<Arc<dyn Pipeline>> {
            let valid = program.validate().map_err(|problems| problems[0].to_string())?;
            let mut options = CompileOptions::default();
            options.interruptible = true;
            Ok(backend.compile(&valid, &options)?)
        };
        Ok(Device { backend, add_one: compile(&add_one())?, endless: compile(&endless)?, slow: compile(&slow)? })
    }

    fn buffer(&self, values: impl IntoIterator<Item = u32>) -> Checked<Buffer> {
        let bytes = words(values);
        let buffer = self.backend.allocate(bytes.len() as u64)?;
        let ticket = self.backend.upload(&buffer, 0, &bytes, &Order::default())?;
        self.done(ticket)?;
        self.backend.forget(ticket);
        Ok(buffer)
    }

    fn read(&self, buffer: &Buffer, order: &Order<'_>) -> Checked<Vec<u32>> {
        let mut bytes = vec![0; buffer.bytes() as usize];
        self.backend.download(buffer, 0, &mut bytes, order)?;
        Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
    }

    fn add_one(&self, buffer: &Buffer, order: Order<'_>) -> Result<Ticket, BackendError> {
        let groups = (buffer.bytes() / 4).div_ceil(u64::from(LANES)) as u32;
        let bindings = [Binding::from(buffer.clone())];
        self.backend.submit(&self.add_one, &Launch { order, ..Launch::new(&bindings, [groups, 1, 1]) })
    }

    /// A launch that ends only when it is cancelled.
    fn endless(&self, groups: u32, order: Order<'_>) -> Checked<Ticket> {
        let bindings = [Binding::from(self.backend.allocate(4)?)];
        Ok(self.backend.submit(&self.endless, &Launch { order, ..Launch::new(&bindings, [groups, 1, 1]) })?)
    }

    /// A launch that takes a while and the results that it has, in a buffer of its own.
    fn slow(&self, rounds: u32, order: Order<'_>) -> Checked<(Ticket, Buffer, Vec<u32>)> {
        let data = self.buffer(0..LANES)?;
        let bindings = [Binding::from(self.buffer([rounds])?), Binding::from(data.clone())];
        let ticket = self.backend.submit(&self.slow, &Launch { order, ..Launch::new(&bindings, [1; 3]) })?;
        Ok((ticket, data, (0..LANES).map(|start| after_rounds(start, rounds)).collect()))
    }

    /// Rounds with which `slow` takes a while here.
    fn rounds(&self) -> Checked<u32> {
        let mut rounds = 1 << 12;
        loop {
            let begin = Instant::now();
            let (ticket, data, expected) = self.slow(rounds, Order::default())?;
            self.done(ticket)?;
            if begin.elapsed() >= A_WHILE || rounds >= 1 << 30 {
                expect(self.read(&data, &Order::default())? == expected, || format!("{rounds} rounds are wrong"))?;
                return Ok(rounds);
            }
            rounds *= 2;
        }
    }

    /// Waits for work that is not to fail.
    fn done(&self, ticket: Ticket) -> Checked<Completion> {
        Ok(self.backend.wait(ticket, Some(LONG))?.ok_or("work is not over after a minute")?)
    }

    /// Waits for work that was cancelled before it had done everything.
    fn stopped(&self, ticket: Ticket, what: &str) -> Checked {
        refused(self.backend.wait(ticket, Some(LONG)), &codes::backend::STOPPED, what)
    }

    fn queues(&self) -> u32 {
        self.backend.capabilities().queues.max(1)
    }
}

const MULTIPLIER: u32 = 1_664_525;
const INCREMENT: u32 = 1_013_904_223;

/// What so many rounds of `x * MULTIPLIER + INCREMENT` make of a number, by doubling the step.
fn after_rounds(start: u32, mut rounds: u32) -> u32 {
    let (mut x, mut by, mut add) = (start, MULTIPLIER, INCREMENT);
    while rounds > 0 {
        if rounds & 1 == 1 {
            x = x.wrapping_mul(by).wrapping_add(add);
        }
        add = by.wrapping_mul(add).wrapping_add(add);
        by = by.wrapping_mul(by);
        rounds /= 2;
    }
    x
}

fn on(queue: u32) -> Order<'static> {
    Order { queue, ..Order::default() }
}

fn part(buffer: &Buffer, offset: u64, bytes: u64) -> Binding {
    Binding { buffer: buffer.clone(), offset, bytes }
}

/// Launches, copies, uploads and clears in a random order that nobody waits for, and buffers whose handles are gone before their work
/// is over.
fn one_queue(backend: &dyn VyreBackend) -> Checked {
    const SIZE: usize = 4096;
    let device = Device::new(backend)?;
    let mut rng = Rng::new(7);
    for queue in 0..device.queues() {
        let order = on(queue);
        let mut buffers = [device.buffer(0..SIZE as u32)?, device.buffer(0..SIZE as u32)?];
        let mut model = [(0..SIZE as u32).collect::<Vec<_>>(), (0..SIZE as u32).collect()];
        for round in 0..200u32 {
            let to = rng.below(2) as usize;
            let at = u64::from(rng.below(SIZE as u32 / 64)) * 64;
            let range = at as usize..at as usize + 64;
            match rng.below(6) {
                0 => {
                    let values: Vec<u32> = (0..64).map(|i| round * 1000 + i).collect();
                    let ticket = backend.upload(&buffers[to], at * 4, &words(values.iter().copied()), &order)?;
                    backend.forget(ticket);
                    model[to][range].copy_from_slice(&values);
                }
                1 => {
                    let ticket = backend.clear(&part(&buffers[to], at * 4, 256), &order)?;
                    backend.forget(ticket);
                    model[to][range].fill(0);
                }
                2 => {
                    let fresh = backend.allocate(SIZE as u64 * 4)?;
                    let all = SIZE as u64 * 4;
                    let ticket = backend.copy(&part(&buffers[to], 0, all), &part(&fresh, 0, all), &order)?;
                    backend.forget(ticket);
                    buffers[to] = fresh;
                }
                3 => {
                    let from = part(&buffers[1 - to], at * 4, 256);
                    let ticket = backend.copy(&from, &part(&buffers[to], at * 4, 256), &order)?;
                    backend.forget(ticket);
                    let values = model[1 - to][range.clone()].to_vec();
                    model[to][range].copy_from_slice(&values);
                }
                _ => {
                    let ticket = device.add_one(&buffers[to], order)?;
                    backend.forget(ticket);
                    model[to].iter_mut().for_each(|value| *value += 1);
                }
            }
        }
        for (buffer, expected) in buffers.iter().zip(&model) {
            expect(device.read(buffer, &order)? == *expected, || format!("queue {queue} did not keep its order"))?;
        }
    }
    Ok(())
}

fn across_queues(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let queues = device.queues();
    if queues == 1 {
        println!("this backend has one queue");
        return Ok(());
    }
    let buffer = device.buffer((0..1 << 14).map(|_| 0))?;
    let mut last = None;
    for round in 0..300 {
        let order = Order { queue: round % queues, after: last.as_slice(), deadline: None };
        last = Some(device.add_one(&buffer, order)?);
    }
    let order = Order { queue: 0, after: last.as_slice(), deadline: None };
    expect(device.read(&buffer, &order)?.iter().all(|&value| value == 300), || "a launch did not wait".to_owned())?;
    // Everything that is named is waited for, and not only the last.
    let rounds = device.rounds()?;
    let (first, data, expected) = device.slow(rounds, on(0))?;
    let (second, other, _) = device.slow(1, on(1))?;
    let after = [first, second];
    let order = Order { queue: 1, after: &after, deadline: None };
    let both = device.buffer([0; 2 * LANES as usize])?;
    let bytes = u64::from(LANES) * 4;
    backend.copy(&part(&data, 0, bytes), &part(&both, 0, bytes), &order).map(|ticket| backend.forget(ticket))?;
    let last = backend.copy(&part(&other, 0, bytes), &part(&both, bytes, bytes), &on(1))?;
    device.done(last)?;
    let expected: Vec<u32> = expected.into_iter().chain((0..LANES).map(|start| after_rounds(start, 1))).collect();
    expect(device.read(&both, &on(1))? == expected, || "a copy did not wait for both launches".to_owned())
}

fn independent_queues(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    if device.queues() == 1 {
        println!("this backend has one queue");
        return Ok(());
    }
    let endless = device.endless(1, on(0))?;
    let buffer = backend.allocate(1 << 16)?;
    for _ in 0..10 {
        let ticket = device.add_one(&buffer, on(1))?;
        device.done(ticket)?;
    }
    let values = device.read(&buffer, &on(1))?;
    expect(values.iter().all(|&value| value == 10), || "a launch beside an endless one is wrong".to_owned())?;
    expect(backend.poll(endless)?.is_none(), || "an endless launch is over".to_owned())?;
    backend.cancel(endless)?;
    device.stopped(endless, "an endless launch beside others")
}

fn impatient(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let (slow, data, expected) = device.slow(device.rounds()?, Order::default())?;
    let endless = device.endless(1, Order::default())?;
    for ticket in [slow, endless] {
        let begin = Instant::now();
        if backend.wait(ticket, Some(Duration::from_millis(5)))?.is_some() {
            expect(ticket == slow, || "an endless launch is over".to_owned())?;
        }
        expect(begin.elapsed() < LONG / 2, || "waiting for 5 ms took too long".to_owned())?;
    }
    device.done(slow)?;
    expect(backend.wait(endless, Some(Duration::ZERO))?.is_none(), || "an endless launch is over".to_owned())?;
    expect(backend.poll(endless)?.is_none(), || "giving up ended a launch".to_owned())?;
    backend.cancel(endless)?;
    device.stopped(endless, "an endless launch that somebody waited for")?;
    expect(device.read(&data, &Order::default())? == expected, || "giving up spoilt a launch".to_owned())
}

/// Another's launches before and behind the one that is cancelled have all their results.
fn cancel_one(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let rounds = device.rounds()?;
    for groups in [1, 1 << 12] {
        let (before, first, expected) = device.slow(rounds, Order::default())?;
        let bindings = [Binding::from(device.buffer([rounds])?), Binding::from(first.clone())];
        let endless = device.endless(groups, Order::default())?;
        let queued = device.endless(groups, Order::default())?;
        let behind = backend.submit(&device.slow, &Launch::new(&bindings, [1; 3]))?;
        backend.cancel(queued)?;
        device.done(before)?;
        expect(backend.poll(endless)?.is_none(), || "cancelling ended another's launch".to_owned())?;
        backend.cancel(endless)?;
        device.stopped(endless, "an endless launch that was cancelled")?;
        device.stopped(queued, "an endless launch that was cancelled before it began")?;
        device.done(behind)?;
        let twice: Vec<u32> = expected.into_iter().map(|value| after_rounds(value, rounds)).collect();
        expect(device.read(&first, &Order::default())? == twice, || "another's launch lost results".to_owned())?;
        for over in [before, behind] {
            backend.cancel(over)?;
            expect(backend.poll(over)?.is_some(), || "a finished launch was cancelled".to_owned())?;
        }
    }
    // A launch that is cancelled at any time is done with all its results, or is not done.
    for round in 0..50 {
        let (ticket, data, expected) = device.slow(rounds >> (round % 12), Order::default())?;
        if round % 3 == 0 {
            std::thread::yield_now();
        }
        backend.cancel(ticket)?;
        match backend.wait(ticket, Some(LONG)) {
            Ok(Some(_)) => {
                expect(device.read(&data, &Order::default())? == expected, || "results are lost".to_owned())?
            }
            Ok(None) => return Err("a cancelled launch goes on".into()),
            Err(error) => expect(error.code() == codes::backend::STOPPED.id, || error.to_string())?,
        }
    }
    Ok(())
}

fn cancelled_while_waiting(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let endless = device.endless(1 << 10, Order::default())?;
    let stopped = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| backend.wait(endless, Some(LONG)));
        std::thread::sleep(Duration::from_millis(20));
        let cancelled = backend.cancel(endless);
        (cancelled, waiting.join())
    });
    stopped.0?;
    let outcome = stopped.1.map_err(|_| "the waiting thread panicked")?;
    refused(outcome, &codes::backend::STOPPED, "a launch that another thread cancelled")
}

fn answers_stay(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let bindings = [Binding::from(backend.allocate(1 << 16)?)];
    let timed = backend.submit(&device.add_one, &Launch::new(&bindings, [256, 1, 1]).timed())?;
    let endless = device.endless(1, Order::default())?;
    let completion = device.done(timed)?;
    expect(completion.device_ns.is_some_and(|ns| ns > 0) == backend.capabilities().timestamps, || {
        format!("{completion:?} of a timed launch")
    })?;
    backend.cancel(endless)?;
    device.stopped(endless, "a cancelled launch")?;
    for _ in 0..300 {
        let ticket = backend.submit(&device.add_one, &Launch::new(&bindings, [256, 1, 1]))?;
        device.done(ticket)?;
        backend.forget(ticket);
    }
    for _ in 0..2 {
        expect(backend.poll(timed)? == Some(completion), || "a time has changed".to_owned())?;
        expect(backend.wait(timed, None)? == Some(completion), || "a time has changed".to_owned())?;
        refused(backend.poll(endless), &codes::backend::STOPPED, "a cancelled launch later")?;
        refused(backend.wait(endless, None), &codes::backend::STOPPED, "a cancelled launch later")?;
    }
    backend.forget(timed);
    backend.forget(endless);
    super::works(backend)
}

fn deadlines(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let buffer = device.buffer([1, 2, 3, 4])?;
    let endless = device.endless(1, Order::default())?;
    let begin = Instant::now();
    let soon = || Order { deadline: Some(Instant::now() + Duration::from_millis(30)), ..Order::default() };
    let mut bytes = [7; 16];
    refused(
        backend.download(&buffer, 0, &mut bytes, &soon()),
        &codes::backend::TIMEOUT,
        "reading behind an endless launch",
    )?;
    expect(bytes == [7; 16], || "a read that gave up has changed its bytes".to_owned())?;
    let mut expected = vec![1, 2, 3, 4];
    match backend.upload(&buffer, 4, &words([9]), &soon()) {
        Ok(ticket) => {
            expected[1] = 9;
            backend.forget(ticket);
        }
        Err(error) => expect(error.code() == codes::backend::TIMEOUT.id, || error.to_string())?,
    }
    expect(begin.elapsed() < LONG / 2, || "giving up took too long".to_owned())?;
    expect(backend.poll(endless)?.is_none(), || "giving up ended a launch".to_owned())?;
    backend.cancel(endless)?;
    device.stopped(endless, "a launch before copies")?;
    let later = Order { deadline: Some(Instant::now() + LONG), ..Order::default() };
    let found = device.read(&buffer, &later)?;
    expect(found == expected, || format!("{found:?} instead of {expected:?}"))
}

fn after_failure(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let buffer = device.buffer([5; 256])?;
    let endless = device.endless(1, Order::default())?;
    let last = device.queues() - 1;
    let named = device.add_one(&buffer, Order { queue: last, after: &[endless], deadline: None })?;
    let behind = device.add_one(&buffer, Order { queue: 0, after: &[named], deadline: None })?;
    backend.cancel(endless)?;
    device.done(behind)?;
    device.done(named)?;
    device.stopped(endless, "a launch before others")?;
    // What is over may be named, whatever became of it.
    let again = device.add_one(&buffer, Order { queue: last, after: &[endless, behind], deadline: None })?;
    device.done(again)?;
    let values = device.read(&buffer, &Order::default())?;
    expect(values == [8; 256], || format!("{:?} after three launches behind a failure", &values[..4]))
}

fn unknown_tickets(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let buffer = device.buffer([1; 64])?;
    let known = device.add_one(&buffer, Order::default())?;
    let never = Ticket { number: known.number + 1000, ..known };
    let unknown = &codes::backend::UNKNOWN_TICKET;
    refused(backend.wait(never, Some(LONG)), unknown, "waiting for an unknown ticket")?;
    refused(backend.poll(never), unknown, "polling an unknown ticket")?;
    refused(backend.cancel(never), unknown, "cancelling an unknown ticket")?;
    backend.forget(never);
    let after = [never];
    let order = Order { after: &after, ..Order::default() };
    refused(device.add_one(&buffer, order), unknown, "a launch after an unknown ticket")?;
    refused(backend.upload(&buffer, 0, &[1], &order), unknown, "an upload after an unknown ticket")?;
    refused(backend.download(&buffer, 0, &mut [1], &order), unknown, "a download after an unknown ticket")?;
    let (from, to) = (part(&buffer, 0, 64), part(&buffer, 64, 64));
    refused(backend.copy(&from, &to, &order), unknown, "a copy after an unknown ticket")?;
    refused(backend.clear(&from, &order), unknown, "a clear after an unknown ticket")?;
    let nowhere = on(device.queues());
    let limit = &codes::backend::LIMIT;
    refused(device.add_one(&buffer, nowhere), limit, "a launch on a queue that is not there")?;
    refused(backend.upload(&buffer, 0, &[1], &nowhere), limit, "an upload on a queue that is not there")?;
    refused(backend.download(&buffer, 0, &mut [1], &nowhere), limit, "a download on a queue that is not there")?;
    expect(backend.wait(Ticket { queue: device.queues(), number: 1 }, None).is_err(), || {
        "an unknown queue".to_owned()
    })?;
    expect(device.read(&buffer, &Order::default())? == [2; 64], || "a refused call did something".to_owned())
}

fn adopted(backend: &dyn VyreBackend) -> Checked {
    let memory = Arc::new(HostMemory::new(1 << 16).ok_or("there is no memory")?);
    memory.fill(0, &words(0..1 << 14));
    if !backend.capabilities().unified_memory {
        return refused(backend.adopt(&memory), &codes::backend::NOT_RESIDENT, "adopting memory");
    }
    let device = Device::new(backend)?;
    let buffer = backend.adopt(&memory)?;
    expect(buffer.bytes() == 1 << 16, || format!("{buffer:?}"))?;
    let ticket = device.add_one(&buffer, Order::default())?;
    drop(buffer);
    device.done(ticket)?;
    let mut bytes = vec![0; 1 << 16];
    memory.copy_to(0, &mut bytes);
    expect(bytes == words(1..(1 << 14) + 1), || "adopted memory was copied, or not written".to_owned())
}

fn recordings(backend: &dyn VyreBackend) -> Checked {
    let device = Device::new(backend)?;
    let (first, second) = (device.buffer([1; 256])?, device.buffer([0; 256])?);
    let launch = |buffer: &Buffer, groups| Step::Launch {
        pipeline: Arc::clone(&device.add_one),
        bindings: vec![Binding::from(buffer.clone())],
        grid: [groups, 1, 1],
    };
    let steps = [
        launch(&first, 4),
        Step::Copy { from: part(&first, 0, 1024), to: part(&second, 0, 1024) },
        launch(&second, 4),
        Step::Clear(part(&first, 0, 512)),
    ];
    if !backend.capabilities().recordings {
        return refused(backend.record(&steps), &codes::backend::NOT_RESIDENT, "recording");
    }
    let halves = |low: u32, high: u32| (0..256).map(move |i| if i < 128 { low } else { high }).collect::<Vec<_>>();
    let recording = backend.record(&steps)?;
    expect(recording.steps() == 4, || format!("{} steps of 4", recording.steps()))?;
    expect(device.read(&first, &Order::default())? == [1; 256], || "recording did something".to_owned())?;
    let last = device.queues() - 1;
    let before = device.add_one(&first, Order::default())?;
    let ticket = backend.replay(&recording, &Order { queue: last, after: &[before], deadline: None })?;
    device.done(ticket)?;
    let found = [device.read(&first, &on(last))?, device.read(&second, &on(last))?];
    expect(found == [halves(0, 3), halves(4, 4)], || "the first replay is wrong".to_owned())?;
    // Other buffers, another grid, another part; what is not named stays.
    let third = device.buffer([50; 256])?;
    backend.revise(
        &recording,
        &[(2, launch(&third, 2)), (1, Step::Copy { from: part(&second, 0, 512), to: part(&third, 512, 512) })],
    )?;
    for _ in 0..3 {
        let ticket = backend.replay(&recording, &on(last))?;
        backend.forget(ticket);
    }
    let found = [device.read(&first, &on(last))?, device.read(&second, &on(last))?, device.read(&third, &on(last))?];
    expect(found == [halves(0, 6), halves(4, 4), halves(53, 4)], || "replays after a revision are wrong".to_owned())?;
    // A revision keeps to what was recorded.
    expect(backend.revise(&recording, &[(0, Step::Clear(part(&first, 0, 4)))]).is_err(), || "another kind".to_owned())?;
    expect(backend.revise(&recording, &[(9, launch(&first, 1))]).is_err(), || "a step that is not there".to_owned())?;
    drop(recording);
    super::works(backend)
}

/// A grid that the launch before writes.
fn indirect(backend: &dyn VyreBackend) -> Result<(), Box<dyn Error>> {
    let device = Device::new(backend)?;
    for (before, ran) in [([1, 0, 0], 2), ([3, 0, 0], 4), ([u32::MAX; 3], 0)] {
        let (grid, data) = (device.buffer(before)?, device.buffer([5; 4 * LANES as usize])?);
        let counted = device.add_one(&grid, Order::default())?;
        let bindings = [Binding::from(data.clone())];
        let after = [counted];
        let order = Order { after: &after, ..Order::default() };
        let launch = Launch { order, ..Launch::new(&bindings, [4, 1, 1]) };
        let ticket = backend.submit_indirect(&device.add_one, &launch, &Binding::from(grid))?;
        device.done(ticket)?;
        let found = device.read(&data, &Order::default())?;
        let expected = (0..4 * LANES).map(|at| if at < ran * LANES { 6 } else { 5 });
        expect(found.iter().copied().eq(expected), || format!("a grid of {ran} workgroups ran otherwise"))?;
        backend.forget(counted);
        backend.forget(ticket);
    }
    let data = [Binding::from(device.buffer([0; 4])?)];
    let wrong = backend.submit_indirect(&device.add_one, &Launch::new(&data, [1; 3]), &data[0]);
    refused(wrong, &codes::backend::BAD_RANGE, "four numbers are no grid")
}
