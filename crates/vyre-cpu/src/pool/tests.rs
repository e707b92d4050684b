use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use super::worker::{Calling, Rest, asleep_among};
use super::*;

type Body = Arc<dyn Fn(usize, u64, &Stop) -> bool + Send + Sync>;

/// Closures as work: parts of each phase, and what they do.
#[derive(Default)]
struct Closure {
    phases: Vec<u64>,
    body: Option<Body>,
    /// Threads at first, if not all.
    few: Option<usize>,
    brief: bool,
}

impl Work for Closure {
    fn phases(&self) -> usize {
        self.phases.len()
    }

    fn parts(&self, phase: usize) -> u64 {
        self.phases[phase]
    }

    fn run(&self, phase: usize, part: u64, _: &mut Scratch, stop: &Stop) -> bool {
        self.body.as_ref().is_none_or(|body| body(phase, part, stop))
    }

    fn is_brief(&self) -> bool {
        self.brief
    }

    fn threads_at_first(&self) -> Threads {
        self.few.map_or(Threads::ALL, |few| Threads { any: few, awake: few })
    }

    fn clear(&mut self) {
        *self = Closure::default();
    }
}

fn pool(width: usize) -> Pool<Closure> {
    let pool = Pool::new(2, width);
    pool.reserve(1).unwrap();
    pool
}

fn submit(
    pool: &Pool<Closure>,
    order: &Order<'_>,
    phases: &[u64],
    body: impl Fn(usize, u64, &Stop) -> bool + Send + Sync + 'static,
) -> Ticket {
    pool.check(order).unwrap();
    let body: Body = Arc::new(body);
    pool.submit(order, false, true, |work| (work.phases, work.body) = (phases.to_vec(), Some(body))).unwrap()
}

fn on(queue: u32) -> Order<'static> {
    Order { queue, ..Order::default() }
}

fn until_stopped(_: usize, _: u64, stop: &Stop) -> bool {
    while !stop.is_set() {
        std::thread::yield_now();
    }
    false
}

#[test]
fn work_of_a_lane_runs_in_order_and_all_of_it() {
    for width in [1, 4] {
        let pool = pool(width);
        let running = Arc::new(AtomicU32::new(0));
        let sum = Arc::new(AtomicU64::new(0));
        let mut last = None;
        for number in 0..200u64 {
            let (running, sum) = (Arc::clone(&running), Arc::clone(&sum));
            last = Some(submit(&pool, &on(0), &[number % 3], move |_, _, _| {
                // All parts of a piece of work are of the same number, and no other is there.
                let seen = running.fetch_max(number as u32, SeqCst);
                assert!(u64::from(seen) <= number);
                sum.fetch_add(1, SeqCst);
                true
            }));
        }
        assert_eq!(pool.wait(last.unwrap(), None), Ok(Some(Completion::default())));
        assert_eq!(sum.load(SeqCst), (0..200).map(|number| number % 3).sum::<u64>());
    }
}

#[test]
fn phases_wait_for_each_other() {
    let pool = pool(4);
    let done = Arc::new([const { AtomicU64::new(0) }; 4]);
    let phases = [7, 1, 0, 50];
    let counted = Arc::clone(&done);
    let ticket = submit(&pool, &on(1), &phases, move |phase, _, _| {
        for (before, &parts) in phases[..phase].iter().enumerate() {
            assert_eq!(counted[before].load(SeqCst), parts, "phase {before} is over before {phase}");
        }
        counted[phase].fetch_add(1, SeqCst);
        true
    });
    assert_eq!(pool.wait(ticket, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
    assert_eq!(done.each_ref().map(|done| done.load(SeqCst)), phases);
}

#[test]
fn a_panic_is_the_failure_of_its_work_alone() {
    let pool = pool(2);
    let first = submit(&pool, &on(0), &[40], |_, part, _| {
        assert!(part != 3, "as planned");
        true
    });
    let second = submit(&pool, &on(0), &[40], |_, _, _| true);
    assert_eq!(pool.wait(second, None), Ok(Some(Completion::default())));
    for _ in 0..2 {
        let error = pool.wait(first, None).unwrap_err();
        assert!(error.message().contains("as planned"), "{error}");
    }
    let third = pool.inline(&on(0)).unwrap().unwrap().run(|_| panic!("on the caller's thread"));
    let error = pool.wait(third, None).unwrap_err();
    assert!(error.message().contains("on the caller's thread"), "{error}");
    assert_eq!(pool.wait(submit(&pool, &on(0), &[1], |_, _, _| true), None), Ok(Some(Completion::default())));
}

#[test]
fn every_queue_has_a_thread_even_where_there_is_one_to_work_with() {
    let pool = pool(1);
    let endless = submit(&pool, &on(0), &[8], until_stopped);
    let beside = submit(&pool, &on(1), &[8], |_, _, _| true);
    assert_eq!(pool.wait(beside, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
    // So has somebody who waits for work of his own.
    let done = pool.run(Some(Instant::now() + Duration::from_secs(60)), |work| work.phases = vec![3]);
    assert!(matches!(done, Ok(Ok(None))));
    let late = pool.run(Some(Instant::now() + Duration::from_millis(10)), |work| {
        let body: Body = Arc::new(until_stopped);
        (work.phases, work.body) = (vec![3], Some(body));
    });
    assert!(matches!(late, Ok(Err(Failure::Stopped))));
    assert_eq!(pool.wait(endless, Some(Duration::ZERO)), Ok(None));
    pool.cancel(endless).unwrap();
    assert_eq!(pool.wait(endless, None).unwrap_err().code(), codes::backend::STOPPED.id);
}

#[test]
fn cancelled_work_ends_where_it_stands_in_the_queue() {
    let pool = pool(2);
    let endless = submit(&pool, &on(0), &[1], until_stopped);
    let ran = Arc::new(AtomicU32::new(0));
    let count = |by: u32| {
        let ran = Arc::clone(&ran);
        move |_: usize, _: u64, _: &Stop| {
            ran.fetch_add(by, SeqCst);
            true
        }
    };
    let cancelled = submit(&pool, &on(0), &[1], count(1));
    let after = Order { queue: 1, after: &[cancelled], deadline: None };
    let behind = submit(&pool, &after, &[1], count(10));
    pool.cancel(cancelled).unwrap();
    assert_eq!(pool.wait(cancelled, Some(Duration::from_millis(5))), Ok(None), "the one before it still runs");
    pool.cancel(endless).unwrap();
    assert_eq!(pool.wait(behind, None), Ok(Some(Completion::default())));
    assert_eq!(pool.wait(cancelled, None).unwrap_err().code(), codes::backend::STOPPED.id);
    assert_eq!(ran.load(SeqCst), 10);
    pool.cancel(behind).unwrap();
    assert_eq!(pool.wait(behind, None), Ok(Some(Completion::default())), "it was over");
}

#[test]
fn what_is_forgotten_leaves_nothing() {
    let pool = pool(1);
    let endless = submit(&pool, &on(0), &[1], until_stopped);
    let behind = submit(&pool, &on(0), &[1], |_, _, _| true);
    pool.forget(endless);
    pool.cancel(endless).unwrap();
    assert_eq!(pool.wait(behind, None), Ok(Some(Completion::default())));
    assert_eq!(pool.wait(endless, None), Ok(Some(Completion::default())), "nobody wanted to know");
}

#[test]
fn too_much_private_memory_is_refused() {
    let pool = pool(2);
    assert_eq!(pool.reserve(isize::MAX as usize - 8192).unwrap_err().code(), codes::backend::OUT_OF_MEMORY.id);
    assert_eq!(pool.wait(submit(&pool, &on(0), &[1], |_, _, _| true), None), Ok(Some(Completion::default())));
}

#[test]
fn work_that_cannot_be_stopped_is_done_as_a_whole_or_not_at_all() {
    const PARTS: u64 = 64;
    let pool = pool(4);
    let (mut whole, mut none) = (0, 0);
    for number in 0..400u64 {
        let done = Arc::new(AtomicU64::new(0));
        let body: Body = {
            let done = Arc::clone(&done);
            Arc::new(move |_, _, _| {
                done.fetch_add(1, SeqCst);
                true
            })
        };
        // What is before it in the queue takes longer each time, so that it is cancelled before and after it has begun.
        let before = submit(&pool, &on(0), &[1], move |_, _, _| {
            (0..number * 40).for_each(|_| std::hint::spin_loop());
            true
        });
        let fill = |work: &mut Closure| (work.phases, work.body) = (vec![PARTS], Some(body));
        let ticket = pool.submit(&on(0), false, false, fill).unwrap();
        (0..4000).for_each(|_| std::hint::spin_loop());
        pool.cancel(ticket).unwrap();
        pool.wait(before, None).unwrap();
        let outcome = pool.wait(ticket, None);
        match done.load(SeqCst) {
            0 => none += u32::from(outcome.is_err()),
            PARTS => whole += u32::from(outcome.is_ok()),
            some => panic!("{some} of {PARTS} parts were done: {outcome:?}"),
        }
    }
    assert_eq!(whole + none, 400, "what was told is what was done");
}

#[test]
fn work_that_takes_longer_than_expected_gets_more_threads() {
    let pool = pool(4);
    let threads_of = |parts: u64, time: Duration, few: Option<usize>| {
        let threads = Arc::new(Mutex::new(std::collections::HashSet::new()));
        let seen = Arc::clone(&threads);
        let body: Body = Arc::new(move |_, _, _| {
            seen.lock().unwrap().insert(std::thread::current().id());
            std::thread::sleep(time);
            true
        });
        let ticket = pool.submit(&on(0), false, true, |work| {
            (work.phases, work.body, work.few) = (vec![parts], Some(body), few);
        });
        let ticket = ticket.unwrap();
        // Who waits would help.
        while pool.ledger().outcome(ticket).unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        threads.lock().unwrap().len()
    };
    // Threads that are on their way to rest take what they find, and a busy machine makes short work long: not every piece is done by one.
    let short = (0..50).filter(|_| threads_of(4, Duration::ZERO, Some(1)) == 1).count();
    assert!(short > 5, "{short} of 50");
    assert!(threads_of(100, Duration::from_millis(1), Some(1)) > 1);
    // One thread is kept for who waits, but not from work that takes long and that nobody waits for.
    assert!(threads_of(400, Duration::from_millis(1), None) >= 4);
}

/// Who waits with a limit does what ends soon himself, and nothing else: he would be late, or not see that he is to stop.
#[test]
fn who_waits_with_a_limit_helps_with_what_ends_soon() {
    let here = std::thread::current().id();
    // A body, and how many of its parts this thread has run.
    let counting = || {
        let own = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&own);
        let body: Body = Arc::new(move |_, _, _| {
            counted.fetch_add(u64::from(std::thread::current().id() == here), SeqCst);
            std::thread::sleep(Duration::from_micros(500));
            true
        });
        (body, own)
    };
    let own_parts = |pool: &Pool<Closure>, brief: bool| {
        let (body, own) = counting();
        let fill = |work: &mut Closure| (work.phases, work.body, work.brief) = (vec![40], Some(body), brief);
        let ticket = pool.submit(&on(0), false, true, fill).unwrap();
        assert_eq!(pool.wait(ticket, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
        own.load(SeqCst)
    };
    let pool = pool(2);
    assert!(own_parts(&pool, true) > 0);
    assert_eq!(own_parts(&pool, false), 0);
    // The same for work that is in no queue.
    let (body, own) = counting();
    let done = pool.run(Some(Instant::now() + Duration::from_secs(60)), |work| {
        (work.phases, work.body, work.brief) = (vec![40], Some(body), true);
    });
    assert!(matches!(done, Ok(Ok(None))) && own.load(SeqCst) > 0);
}

/// The parts that are left when the time is over are for others, also where there is nobody at work any more.
#[test]
fn who_helps_leaves_at_his_limit_and_others_go_on() {
    for width in [1, 4] {
        let pool = pool(width);
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let body: Body = Arc::new(move |_, _, _| {
            std::thread::sleep(Duration::from_millis(2));
            counted.fetch_add(1, SeqCst);
            true
        });
        let fill = |work: &mut Closure| (work.phases, work.body, work.brief) = (vec![60, 60], Some(body), true);
        let ticket = pool.submit(&on(0), false, true, fill).unwrap();
        let began = Instant::now();
        let (mut waits, mut longest) = (0, Duration::ZERO);
        loop {
            let before = Instant::now();
            let outcome = pool.wait(ticket, Some(Duration::from_millis(5))).unwrap();
            longest = longest.max(before.elapsed());
            if outcome.is_some() {
                break;
            }
            waits += 1;
            assert!(began.elapsed() < Duration::from_secs(60), "{} of 120 parts", done.load(SeqCst));
            if waits % 2 == 0 {
                // Nobody waits here: the others go on by themselves.
                let before = done.load(SeqCst);
                let patience = Instant::now() + Duration::from_secs(30);
                while done.load(SeqCst) == before && pool.ledger().outcome(ticket).unwrap().is_none() {
                    assert!(Instant::now() < patience, "nobody goes on with {before} of 120 parts done");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        assert_eq!(done.load(SeqCst), 120);
        assert!(waits > 0 && longest < Duration::from_secs(5), "{waits} waits, the longest took {longest:?}");
    }
}

/// Work that others help with from within counts once, so that as many threads work on its parts as the pool is wide, and no more.
#[test]
fn work_within_work_has_all_threads() {
    for width in [1, 2, 5] {
        let pool = pool(width);
        let crew = Arc::new(pool.crew());
        let [inside, most, sum] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let (now, high, all) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&sum));
        let part: Body = Arc::new(move |_, part, _| {
            let here = now.fetch_add(1, SeqCst) + 1;
            high.fetch_max(here, SeqCst);
            // The others get time to come.
            let until = Instant::now() + Duration::from_millis(200);
            while now.load(SeqCst) < width as u64 && high.load(SeqCst) < width as u64 && Instant::now() < until {
                std::thread::yield_now();
            }
            all.fetch_add(part, SeqCst);
            now.fetch_sub(1, SeqCst);
            true
        });
        let outer = |crew: Arc<Crew<Closure>>, part: Body| {
            move |_: usize, _: u64, stop: &Stop| {
                for _ in 0..3 {
                    let done = crew.help(stop, |work| (work.phases, work.body) = (vec![20], Some(Arc::clone(&part))));
                    assert!(matches!(done, Ok(Ok(None))), "{done:?}");
                }
                true
            }
        };
        let ticket = submit(&pool, &on(0), &[1], outer(Arc::clone(&crew), Arc::clone(&part)));
        assert_eq!(pool.wait(ticket, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
        assert_eq!((most.load(SeqCst), sum.load(SeqCst)), (width as u64, 3 * 190));
        // Two at once on two queues don't wait for each other for ever.
        let two = [0, 1].map(|queue| submit(&pool, &on(queue), &[1], outer(Arc::clone(&crew), Arc::clone(&part))));
        for ticket in two {
            assert_eq!(pool.wait(ticket, None), Ok(Some(Completion::default())));
        }
        assert_eq!(sum.load(SeqCst), 9 * 190);
        // What panics within is a failure there.
        let broken: Body = Arc::new(|_, part, _| {
            assert!(part != 7, "as planned");
            true
        });
        let told = Arc::new(AtomicU64::new(0));
        let (again, seen) = (Arc::clone(&crew), Arc::clone(&told));
        let ticket = submit(&pool, &on(0), &[1], move |_, _, stop| {
            let done = again.help(stop, |work| (work.phases, work.body) = (vec![20], Some(Arc::clone(&broken))));
            seen.store(u64::from(matches!(done, Ok(Err(Failure::Broke(_))))), SeqCst);
            true
        });
        assert_eq!(pool.wait(ticket, None), Ok(Some(Completion::default())));
        assert_eq!(told.load(SeqCst), 1);
        let after = submit(&pool, &on(1), &[width as u64], |_, _, _| true);
        assert_eq!(pool.wait(after, None), Ok(Some(Completion::default())));
    }
}

/// Who waits for work that has others help from within takes parts of that, in the place of one of them.
#[test]
fn who_waits_helps_within() {
    for width in [2, 3] {
        let pool = pool(width);
        let crew = pool.crew();
        let [begun, goes] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let helpers = Arc::new(Mutex::new(Vec::new()));
        let (is_begun, may_go, seen) = (Arc::clone(&begun), Arc::clone(&goes), Arc::clone(&helpers));
        let caller = std::thread::current().id();
        let ticket = submit(&pool, &on(0), &[1], move |_, _, stop| {
            is_begun.store(1, SeqCst);
            while may_go.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            for time in 0..3 {
                seen.lock().unwrap().push(Vec::new());
                let seen = Arc::clone(&seen);
                let part: Body = Arc::new(move |_, _, _| {
                    let own = std::thread::current().id();
                    let all = || {
                        let seen: &mut Vec<_> = &mut seen.lock().unwrap()[time];
                        if !seen.contains(&own) {
                            seen.push(own);
                        }
                        seen.contains(&caller)
                    };
                    let patience = Instant::now() + Duration::from_secs(2);
                    while !all() && Instant::now() < patience {
                        std::thread::yield_now();
                    }
                    true
                });
                let done = crew.help(stop, |work| (work.phases, work.body) = (vec![40], Some(part)));
                assert!(matches!(done, Ok(Ok(None))), "{done:?}");
            }
            true
        });
        while begun.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        goes.store(1, SeqCst);
        assert_eq!(pool.wait(ticket, None), Ok(Some(Completion::default())));
        let helpers = helpers.lock().unwrap();
        // Each time others may be awake, but never more of them.
        let came = helpers.iter().any(|helpers| helpers.contains(&caller));
        assert!(came && helpers.iter().all(|helpers| helpers.len() <= width), "{helpers:?} of {width}, and {caller:?}");
    }
}

/// A launch that knows what was done of it: each part at most once, and none after its end.
struct Watched {
    done: Vec<Vec<AtomicU32>>,
    over: AtomicU32,
}

impl Watched {
    fn new(phases: &[u64]) -> Arc<Watched> {
        let done = phases.iter().map(|&parts| (0..parts).map(|_| AtomicU32::new(0)).collect()).collect();
        Arc::new(Watched { done, over: AtomicU32::new(0) })
    }

    fn body(self: &Arc<Watched>, spins: u64, breaks: bool) -> Body {
        let own = Arc::clone(self);
        Arc::new(move |phase, part, stop| {
            assert_eq!(own.over.load(SeqCst), 0, "a part runs after the end of its launch");
            for before in &own.done[..phase] {
                assert!(before.iter().all(|part| part.load(SeqCst) == 1), "a phase begins before the last is over");
            }
            assert!(!(breaks && part == 1), "as planned");
            for _ in 0..spins {
                if stop.is_set() {
                    return false;
                }
                std::hint::spin_loop();
            }
            own.done[phase][part as usize].fetch_add(1, SeqCst);
            true
        })
    }

    /// It is over. True when all of it was done; nothing was done twice.
    fn end(&self) -> bool {
        self.over.store(1, SeqCst);
        let counts: Vec<u32> = self.done.iter().flatten().map(|part| part.load(SeqCst)).collect();
        assert!(counts.iter().all(|&count| count <= 1), "a part was done twice: {counts:?}");
        counts.iter().all(|&count| count == 1)
    }
}

/// Launches of several threads on the same queues, and in none, with all that can happen to one: it is waited for or not, too shortly,
/// cancelled, forgotten, it panics, its time is over, it has others help from within, and threads come late or fall asleep.
#[test]
fn launches_meet_everything_that_can_happen_to_them() {
    for (width, seed) in [(1, 1), (2, 2), (5, 3), (16, 4)] {
        let pool = pool(width);
        let crew = Arc::new(pool.crew());
        std::thread::scope(|scope| {
            for user in 0..4u64 {
                let (pool, crew) = (&pool, Arc::clone(&crew));
                scope.spawn(move || {
                    let mut random = seed * 1000 + user + 1;
                    for _ in 0..150 {
                        one_launch(pool, &crew, &mut random);
                    }
                });
            }
        });
        // Everything before it on both queues ends, and nobody is counted twice or forgotten.
        for queue in [0, 1] {
            let last = submit(&pool, &on(queue), &[4], |_, _, _| true);
            assert_eq!(pool.wait(last, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
        }
        let patience = Instant::now() + Duration::from_secs(60);
        while pool.0.active.load(SeqCst) > 0 {
            assert!(Instant::now() < patience, "{} threads are still counted", pool.0.active.load(SeqCst));
            std::thread::yield_now();
        }
        let endless = submit(&pool, &on(0), &[8], until_stopped);
        drop(pool);
        let _ = endless;
    }
}

fn one_launch(pool: &Pool<Closure>, crew: &Arc<Crew<Closure>>, random: &mut u64) {
    let mut below = |limit: u64| {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*random >> 33) % limit
    };
    let phases: Vec<u64> = (0..1 + below(3)).map(|_| below(40)).collect();
    let (spins, breaks) = (below(2000), below(12) == 0);
    let watched = Watched::new(&phases);
    let mut body = watched.body(spins, breaks);
    if below(8) == 0 && !breaks {
        // Its parts are done by others, from within.
        let (crew, inner) = (Arc::clone(crew), body);
        body = Arc::new(move |phase, part, stop| {
            let inner = Arc::clone(&inner);
            let part: Body = Arc::new(move |_, _, stop| inner(phase, part, stop));
            let done = crew.help(stop, |work| (work.phases, work.body) = (vec![1], Some(part)));
            assert!(matches!(done, Ok(Ok(_))), "{done:?}");
            true
        });
    }
    let brief = below(2) == 0;
    let fill = |work: &mut Closure| (work.phases, work.body, work.brief) = (phases.clone(), Some(body), brief);
    let may_break = breaks && phases.iter().any(|&parts| parts > 1);
    if below(5) == 0 {
        let time = Duration::from_micros(below(400));
        match pool.run((below(2) == 0).then(|| Instant::now() + time), fill).unwrap() {
            Ok(_) => assert!(watched.end() && !may_break),
            Err(Failure::Stopped) => _ = watched.end(),
            Err(Failure::Broke(error)) => assert!(may_break && !watched.end(), "{error}"),
        }
        return;
    }
    let order = on(below(2) as u32);
    let ticket = pool.submit(&order, below(2) == 0, true, fill).unwrap();
    (0..below(3) * below(3000)).for_each(|_| std::hint::spin_loop());
    let what = below(6);
    if what == 0 {
        pool.cancel(ticket).unwrap();
    }
    if what == 1 {
        let _ = pool.wait(ticket, Some(Duration::from_micros(below(100))));
    }
    if what == 2 {
        // Nobody waits, but what is done after the end would still be seen.
        pool.forget(ticket);
        return;
    }
    match pool.wait(ticket, None) {
        Ok(completion) => assert!(completion.is_some() && watched.end() && !may_break),
        Err(error) if error.code() == codes::backend::STOPPED.id => assert!(what == 0, "{error}"),
        Err(error) => assert!(may_break && error.message().contains("as planned"), "{error}"),
    }
    watched.end();
    pool.forget(ticket);
}

/// Threads are called when they look for a call, when they fall asleep and when they sleep.
#[test]
fn launches_after_any_pause_are_done() {
    let pool = pool(4);
    let sum = Arc::new(AtomicU64::new(0));
    for round in 0..1500u64 {
        let counted = Arc::clone(&sum);
        let ticket = submit(&pool, &on((round % 2) as u32), &[8], move |_, _, _| {
            counted.fetch_add(1, SeqCst);
            true
        });
        assert_eq!(pool.wait(ticket, Some(Duration::from_secs(60))), Ok(Some(Completion::default())));
        assert_eq!(sum.load(SeqCst), 8 * (round + 1));
        let pause = Instant::now() + Duration::from_micros(round % 150);
        while Instant::now() < pause {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn only_threads_that_rest_are_called() {
    let (worker, mut calling) = (Arc::new(Worker::<Closure>::new(1)), Calling::default());
    let sleep = |worker: &Arc<Worker<Closure>>| asleep_among([worker].into_iter()).count();
    assert!(worker.rests().is_none(), "it is at work");
    worker.rest();
    assert!(worker.rests() == Some(Rest::Awake));
    worker.call(&mut calling, None);
    assert!(worker.rests().is_none() && sleep(&worker) == 0, "it was called");
    assert!(worker.wait().is_none());
    assert!(worker.rests().is_none(), "it is at work");
    worker.rest();
    assert!(matches!(worker.rise(), Rise::Free) && worker.rests().is_none(), "it looks for itself");
    worker.rest();
    worker.call(&mut calling, None);
    assert!(matches!(worker.rise(), Rise::Called(None)) && worker.rests().is_none(), "it was called before it rose");
    let worker = Arc::new(Worker::<Closure>::new(2));
    let sleeper = Arc::clone(&worker);
    let sleeps = std::thread::spawn(move || {
        sleeper.rest();
        sleeper.wait().is_none()
    });
    while worker.rests() != Some(Rest::Asleep) {
        std::thread::yield_now();
    }
    worker.call(&mut calling, None);
    if sleep(&worker) > 0 {
        worker.wake();
    }
    assert!(sleeps.join().unwrap() && worker.rests().is_none());
}
