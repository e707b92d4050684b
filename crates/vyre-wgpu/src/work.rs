//! Work on its way: commands that are gathered before the queue gets them, submissions that are not over, and what belongs to single
//! launches of them: stop words and clocks.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::{Completion, Ticket};
use vyre_spec::codes;

use crate::context::Context;
use crate::device::WgpuBuffer;
use crate::emit::{Facts, Report};
use crate::pipeline::{Made, WgpuPipeline};
use crate::raw::StopPage;

/// Launches that are gathered before they are given to the queue while it has others to do: few at first, so that it soon has, then
/// twice as many each time, as every submission costs.
const BATCH: std::ops::RangeInclusive<u64> = 32..=256;

/// Invocations of gathered launches: whoever waits for the first of them waits for all.
const HEAVY: u64 = 4 << 20;

/// Bind groups that are kept for the next launch on the same buffers.
const KEPT_GROUPS: usize = 256;

/// Submissions that may be over without anybody having looked.
const UNSEEN: usize = 2;

/// Work that is not over. It has the order of its tickets.
pub(crate) struct Work {
    /// The device is lost.
    ended: bool,
    open: Option<Open>,
    /// Launches that the next submission waits for.
    batch: u64,
    /// Bytes that the queue was told to write before its next submission.
    pub(crate) written: u64,
    /// The last ticket that a submission covers, or is going to.
    flushed: u64,
    /// Closed, but not with the queue yet.
    held: VecDeque<Held>,
    submissions: VecDeque<Submission>,
    groups: HashMap<(u64, Parts), Group>,
    latest: Option<((u64, Parts), Group)>,
    next_group: u64,
    pages: Vec<StopPage>,
    free: Vec<Slot>,
    watched: VecDeque<(u64, Slot)>,
    timed: VecDeque<(u64, Clock)>,
    idle_clocks: Vec<Clock>,
}

/// Commands of the tickets after `before` up to `last`.
struct Held {
    before: u64,
    last: u64,
    commands: wgpu::CommandBuffer,
    weight: u64,
}

/// What the queue got at once.
struct Submission {
    /// Its last ticket.
    last: u64,
    /// Absent when it failed or was empty: then it is over with the one before it.
    index: Option<wgpu::SubmissionIndex>,
}

/// The buffers of a bind group, by number, with offset and size.
type Parts = SmallVec<[(u64, u64, u64); 8]>;

/// Buffers with offset and size.
pub(crate) type Bindings<'a> = SmallVec<[(&'a WgpuBuffer, u64, u64); 8]>;

/// Immediate data.
pub(crate) type Words = SmallVec<[u32; 32]>;

/// A bind group, known by its number.
#[derive(Clone)]
pub(crate) struct Group {
    number: u64,
    group: wgpu::BindGroup,
}

/// The stop words of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    page: u32,
    slot: u32,
}

/// What takes the time of a launch.
struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// Commands that are being recorded.
struct Open {
    // Must end before its encoder does.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: wgpu::CommandEncoder,
    /// Pipeline and bind group that the pass has set.
    set: Option<(u64, u64)>,
    /// What the latest launch with these was told.
    told: Words,
    launches: u64,
    weight: u64,
}

/// One launch, checked.
pub(crate) struct Prepared<'a> {
    pub(crate) pipeline: &'a WgpuPipeline,
    pub(crate) made: &'a Made,
    pub(crate) bindings: Bindings<'a>,
    /// Where its stop words are and the base of each part are filled in.
    pub(crate) facts: Words,
    pub(crate) grid: [u32; 3],
    /// Where the grid is when the launch runs; then `grid` is the most that it is.
    pub(crate) indirect: Option<(&'a wgpu::Buffer, u64)>,
    pub(crate) timed: bool,
    /// It gets a submission of its own.
    pub(crate) alone: bool,
}

impl Prepared<'_> {
    /// The last word of each buffer counts even where only some of its bytes are the buffer's.
    pub(crate) fn count_last_words(&mut self) {
        for (at, (buffer, ..)) in self.bindings.iter().enumerate() {
            self.facts[Facts::LENGTHS as usize + at] = (buffer.buffer.size() / 4) as u32;
        }
    }
}

impl Work {
    pub(crate) fn new(flushed: u64, page: Option<StopPage>) -> Work {
        let mut work = Work {
            ended: false,
            open: None,
            batch: *BATCH.start(),
            written: 0,
            flushed,
            held: VecDeque::new(),
            submissions: VecDeque::new(),
            groups: HashMap::new(),
            latest: None,
            next_group: 0,
            pages: Vec::new(),
            free: Vec::new(),
            watched: VecDeque::new(),
            timed: VecDeque::new(),
            idle_clocks: Vec::new(),
        };
        if let Some(page) = page {
            work.add_page(page);
        }
        work
    }

    /// Nothing more is taken; whether that is new. What still runs is told to end, so that the driver can let go of the device.
    pub(crate) fn end(&mut self) -> bool {
        self.open = None;
        self.held.clear();
        for (_, slot) in &self.watched {
            self.pages[slot.page as usize].stop(slot.slot);
        }
        !std::mem::replace(&mut self.ended, true)
    }

    fn add_page(&mut self, page: StopPage) {
        let number = self.pages.len() as u32;
        self.pages.push(page);
        // The first ones are used first, so that bind groups stay the same.
        self.free.extend((0..StopPage::SLOTS).rev().map(|slot| Slot { page: number, slot }));
    }

    /// There are commands that the queue does not have.
    pub(crate) fn has_commands(&self) -> bool {
        self.open.is_some() || !self.held.is_empty()
    }

    /// The submission that a ticket is over with, where the queue has it.
    pub(crate) fn submission_of(&self, ticket: Ticket) -> Option<wgpu::SubmissionIndex> {
        let covering = self.submissions.iter().find(|submission| submission.last >= ticket.number);
        covering.and_then(|submission| submission.index.clone())
    }

    /// Something that is not a launch was recorded.
    pub(crate) fn count_command(&mut self) {
        self.open.iter_mut().for_each(|open| open.launches += 1);
    }

    /// The slot is that of this ticket until it is over.
    pub(crate) fn watch(&mut self, ticket: Ticket, slot: Slot) {
        self.watched.push_back((ticket.number, slot));
    }

    pub(crate) fn free_slot(&mut self, slot: Slot) {
        self.free.push(slot);
    }
}

impl Context {
    fn open_commands<'w>(&self, work: &'w mut Work) -> &'w mut Open {
        work.open.get_or_insert_with(|| Open {
            pass: None,
            encoder: self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()),
            set: None,
            told: Words::new(),
            launches: 0,
            weight: 0,
        })
    }

    /// The encoder, outside of any pass.
    pub(crate) fn encoder<'w>(&self, work: &'w mut Work) -> &'w mut wgpu::CommandEncoder {
        let open = self.open_commands(work);
        open.pass = None;
        open.set = None;
        &mut open.encoder
    }

    /// The ticket of what was just recorded.
    pub(crate) fn ticket(&self, work: &Work) -> Result<Ticket, BackendError> {
        if work.ended {
            return Err(self.lost_error());
        }
        self.ledger.submit(0)
    }

    /// Gives what was gathered to the queue, so that every ticket is covered by a submission. What fails here is the failure of the
    /// tickets concerned.
    pub(crate) fn flush(&self, work: &mut Work) {
        if work.ended {
            return;
        }
        let (before, last) = (work.flushed, self.ledger.submitted(0).unwrap_or(work.flushed));
        work.flushed = last;
        if let Some(mut open) = work.open.take() {
            let new = |(number, _): &&(u64, Slot)| *number > before;
            let mut pages: SmallVec<[u32; 4]> =
                work.watched.iter().rev().take_while(new).map(|(_, slot)| slot.page).collect();
            pages.sort_unstable();
            pages.dedup();
            let weight = open.weight;
            let commands = self.alone(|| {
                drop(open.pass);
                // The host reads what the kernels report.
                let reports = pages.iter().map(|&page| wgpu::wgt::BufferTransition {
                    buffer: &work.pages[page as usize].buffer,
                    state: wgpu::BufferUses::MAP_READ,
                });
                if !pages.is_empty() {
                    open.encoder.transition_resources(reports, std::iter::empty());
                }
                open.encoder.finish()
            });
            match commands {
                Ok(commands) => work.held.push_back(Held { before, last, commands, weight }),
                Err(error) => {
                    self.fail(before, last, &error);
                    self.cover(work, last);
                }
            }
        } else if work.written > 0 && work.held.is_empty() {
            work.written = 0;
            match self.alone(|| self.queue.submit([])) {
                Ok(index) => work.submissions.push_back(Submission { last, index: Some(index) }),
                Err(error) => {
                    self.fail(before, last, &error);
                    self.cover(work, last);
                }
            }
        } else if last > before {
            self.cover(work, last);
        }
        self.pump(work);
        // What nobody waits for must not pile up.
        let mut looks = 2 * UNSEEN;
        while work.submissions.len() > UNSEEN && looks > 0 && self.settle_first(work) {
            looks -= 1;
        }
    }

    fn fail(&self, before: u64, last: u64, error: &BackendError) {
        for number in before + 1..=last {
            self.ledger.fail(Ticket { queue: 0, number }, error.clone());
        }
    }

    /// Tickets without commands are over with the last ones that have some.
    fn cover(&self, work: &mut Work, last: u64) {
        if let Some(held) = work.held.back_mut() {
            held.last = last;
            return;
        }
        let index = work.submissions.back().and_then(|submission| submission.index.clone());
        work.submissions.push_back(Submission { last, index });
    }

    /// The queue would make the host wait if it got more.
    pub(crate) fn is_full(&self, work: &mut Work) -> bool {
        while self.one_at_a_time && !work.submissions.is_empty() {
            if !self.settle_first(work) {
                return true;
            }
        }
        false
    }

    /// Gives closed commands to the queue. Where a submission makes the host wait while the one before it runs, only when there is none.
    fn pump(&self, work: &mut Work) {
        while !work.held.is_empty() && !self.is_full(work) {
            self.submit_held(work);
        }
    }

    /// Gives everything to the queue, even where that takes until what is before it is over.
    pub(crate) fn flush_all(&self, work: &mut Work) {
        self.flush(work);
        while !work.held.is_empty() {
            self.submit_held(work);
        }
    }

    fn submit_held(&self, work: &mut Work) {
        let Some(Held { before, mut last, commands, mut weight }) = work.held.pop_front() else { return };
        let mut all: SmallVec<[_; 8]> = SmallVec::from_iter([commands]);
        // What has waited goes together if it could have been gathered.
        while let Some(next) = work.held.pop_front_if(|next| weight.saturating_add(next.weight) < HEAVY) {
            (last, weight) = (next.last, weight.saturating_add(next.weight));
            all.push(next.commands);
        }
        work.written = 0;
        match self.alone(|| self.queue.submit(all)) {
            Ok(index) => work.submissions.push_back(Submission { last, index: Some(index) }),
            Err(error) => {
                self.fail(before, last, &error);
                let index = work.submissions.back().and_then(|submission| submission.index.clone());
                work.submissions.push_back(Submission { last, index });
            }
        }
        let timed = work.timed.iter().filter(|(number, _)| (before + 1..=last).contains(number));
        for (_, clock) in timed {
            // Whether it worked is seen when it is read.
            clock.read.map_async(wgpu::MapMode::Read, .., |_| {});
        }
    }

    /// Closes the first submission if it is over.
    fn settle_first(&self, work: &mut Work) -> bool {
        let Some(Submission { last, index }) = work.submissions.front() else { return false };
        let (last, index) = (*last, index.clone());
        let is_over = index.is_none_or(|index| self.is_over(index, Duration::ZERO));
        if is_over {
            self.settle(work, last);
        }
        is_over
    }

    /// Everything up to this ticket is over: tells the ledger how it went, and takes back what it had.
    pub(crate) fn settle(&self, work: &mut Work, last: u64) {
        if work.ended {
            return;
        }
        let of = |number: u64| Ticket { queue: 0, number };
        while let Some(&(number, slot)) = work.watched.front()
            && number <= last
        {
            work.watched.pop_front();
            let (told_to, report) = work.pages[slot.page as usize].take(slot.slot);
            work.free_slot(slot);
            if report != 0 {
                self.ledger.fail(of(number), if told_to { stopped() } else { ended_early(report) });
            }
        }
        while work.timed.front().is_some_and(|(number, _)| *number <= last) {
            let Some((number, clock)) = work.timed.pop_front() else { break };
            let mut bytes = [0; 16];
            match self.read_mapped(&clock.read, &mut bytes) {
                Ok(()) => {
                    let [start, end] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
                    let ticks = end.saturating_sub(start) as f64;
                    self.ledger.took(of(number), (ticks * f64::from(self.queue.get_timestamp_period())) as u64);
                    work.idle_clocks.push(clock);
                }
                Err(error) => self.ledger.fail(of(number), error),
            }
        }
        while work.submissions.front().is_some_and(|submission| submission.last <= last) {
            work.submissions.pop_front();
        }
        self.ledger.complete(of(last));
    }

    /// The submission that has to be over next for a ticket, with the last of its tickets; what was gathered goes on its way for it.
    fn next_submission(&self, number: u64) -> Option<(u64, Option<wgpu::SubmissionIndex>)> {
        let mut work = self.work();
        if number > work.flushed {
            self.flush(&mut work);
        } else {
            self.pump(&mut work);
        }
        let covering = work.submissions.iter().find(|submission| submission.last >= number);
        covering.or(work.submissions.back()).map(|submission| (submission.last, submission.index.clone()))
    }

    /// Waits for work until it is over, or for so long.
    pub(crate) fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<Option<Completion>, BackendError> {
        loop {
            if let Some(completion) = self.ledger.outcome(ticket)? {
                return Ok(Some(completion));
            }
            if self.is_lost() {
                self.lose();
                continue;
            }
            // Somebody else may have closed the submission meanwhile.
            let Some((last, index)) = self.next_submission(ticket.number) else { continue };
            match index.map(|index| self.wait_for(&index, deadline)) {
                None | Some(Ok(true)) => self.settle(&mut self.work(), last),
                Some(Ok(false)) => return self.ledger.outcome(ticket),
                // The ledger says what that means for the ticket.
                Some(Err(_)) => {}
            }
        }
    }

    /// Tells a launch to end. One that can't be told goes on.
    pub(crate) fn stop(&self, number: u64) {
        let work = self.work();
        if let Ok(at) = work.watched.binary_search_by_key(&number, |(watched, _)| *watched) {
            let (_, slot) = work.watched[at];
            work.pages[slot.page as usize].stop(slot.slot);
        }
    }

    /// Drops what is kept for a buffer.
    pub(crate) fn forget_buffer(&self, number: u64) {
        let mut work = self.work();
        let without = |parts: &Parts| parts.iter().all(|part| part.0 != number);
        work.groups.retain(|(_, parts), _| without(parts));
        if work.latest.as_ref().is_some_and(|((_, parts), _)| !without(parts)) {
            work.latest = None;
        }
    }

    /// Records a launch, and gives it to the queue when that has nothing else to do.
    pub(crate) fn submit(&self, mut launch: Prepared<'_>) -> Result<Ticket, BackendError> {
        let mut guard = self.work();
        let work = &mut *guard;
        if launch.grid.contains(&0) {
            return self.ticket(work);
        }
        let pipeline = launch.pipeline;
        let slot = if pipeline.may_end_early() { Some(self.take_slot(work)?) } else { None };
        let made = self.group(work, pipeline.number, launch.made, &launch.bindings, slot).and_then(|group| {
            let clock = if launch.timed { Some(self.take_clock(work)?) } else { None };
            Ok((group, clock))
        });
        let (group, clock) = match made {
            Ok(made) => made,
            Err(error) => {
                slot.into_iter().for_each(|slot| work.free_slot(slot));
                return Err(error);
            }
        };
        if launch.alone {
            // Who waits for what comes before must not wait for this, nor fail with it.
            self.flush(work);
        }
        if let Some(clock) = &clock {
            let open = self.open_commands(work);
            open.pass = None;
            let writes = wgpu::ComputePassTimestampWrites {
                query_set: &clock.queries,
                beginning_of_pass_write_index: Some(0),
                end_of_pass_write_index: Some(1),
            };
            let pass = wgpu::ComputePassDescriptor { label: None, timestamp_writes: Some(writes) };
            open.pass = Some(open.encoder.begin_compute_pass(&pass).forget_lifetime());
            open.set = None;
        }
        match launch.indirect {
            Some((grid, at)) => {
                if let Some(slot) = slot {
                    launch.facts[Facts::STOP as usize] = slot.slot * 2;
                }
                let open = self.open_commands(work);
                open.launch_indirect(pipeline, launch.made, &group, &launch.facts, launch.grid, grid, at);
            }
            None => self.encode_launch(work, pipeline, launch.made, &group, slot, &mut launch.facts, launch.grid),
        }
        if let (Some(clock), Some(open)) = (&clock, &mut work.open) {
            open.pass = None;
            open.set = None;
            open.encoder.resolve_query_set(&clock.queries, 0..2, &clock.resolved, 0);
            open.encoder.copy_buffer_to_buffer(&clock.resolved, 0, &clock.read, 0, 16);
        }
        let ticket = self.ticket(work)?;
        slot.into_iter().for_each(|slot| work.watch(ticket, slot));
        clock.into_iter().for_each(|clock| work.timed.push_back((ticket.number, clock)));
        self.gathered(work, launch.alone);
        Ok(ticket)
    }

    /// Records a launch that can't fail any more.
    #[expect(clippy::too_many_arguments, reason = "all of a launch that two callers keep in two ways")]
    pub(crate) fn encode_launch(
        &self,
        work: &mut Work,
        pipeline: &WgpuPipeline,
        made: &Made,
        group: &Group,
        slot: Option<Slot>,
        facts: &mut Words,
        grid: [u32; 3],
    ) {
        if let Some(slot) = slot {
            facts[Facts::STOP as usize] = slot.slot * 2;
        }
        self.open_commands(work).launch(pipeline, made, group, facts, grid, self.max_grid);
    }

    /// Gives what is gathered to the queue when that has nothing else to do, or when it is enough.
    pub(crate) fn gathered(&self, work: &mut Work, alone: bool) {
        let Some(open) = &mut work.open else { return };
        if alone {
            open.weight = u64::MAX;
        }
        if work.flushed <= self.ledger.completed(0) {
            work.batch = *BATCH.start();
            self.flush(work);
        } else if open.launches >= work.batch || open.weight >= HEAVY {
            work.batch = (work.batch * 2).min(*BATCH.end());
            self.flush(work);
        }
    }

    pub(crate) fn take_slot(&self, work: &mut Work) -> Result<Slot, BackendError> {
        if work.free.is_empty() {
            let page = StopPage::new(&self.device).ok_or_else(|| {
                BackendError::with_code(&codes::backend::OUT_OF_MEMORY, "there is no memory for stop words")
            })?;
            work.add_page(page);
        }
        work.free.pop().ok_or_else(|| BackendError::with_code(&codes::wgpu::CALL_FAILED, "a page has no slots"))
    }

    /// The bind group of these buffers.
    pub(crate) fn group(
        &self,
        work: &mut Work,
        pipeline: u64,
        made: &Made,
        bindings: &Bindings<'_>,
        slot: Option<Slot>,
    ) -> Result<Group, BackendError> {
        let mut parts: Parts = bindings.iter().map(|(buffer, offset, size)| (buffer.number, *offset, *size)).collect();
        parts.extend(slot.map(|slot| (u64::MAX, u64::from(slot.page), 0)));
        let key = (pipeline, parts);
        if let Some((latest, group)) = &work.latest
            && *latest == key
        {
            return Ok(group.clone());
        }
        if let Some(group) = work.groups.get(&key) {
            let group = group.clone();
            work.latest = Some((key, group.clone()));
            return Ok(group);
        }
        let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = SmallVec::new();
        for (binding, (buffer, offset, size)) in bindings.iter().enumerate() {
            entries.push(wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffer.buffer,
                    offset: *offset,
                    size: std::num::NonZeroU64::new(*size),
                }),
            });
        }
        if let Some(slot) = slot {
            entries.push(wgpu::BindGroupEntry {
                binding: bindings.len() as u32,
                resource: work.pages[slot.page as usize].buffer.as_entire_binding(),
            });
        }
        let group = self.scoped(&codes::wgpu::CALL_FAILED, || {
            self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &made.layout,
                entries: &entries,
            })
        })?;
        if work.groups.len() >= KEPT_GROUPS {
            work.groups.clear();
        }
        work.next_group += 1;
        let group = Group { number: work.next_group, group };
        work.groups.insert(key.clone(), group.clone());
        work.latest = Some((key, group.clone()));
        Ok(group)
    }

    fn take_clock(&self, work: &mut Work) -> Result<Clock, BackendError> {
        if let Some(clock) = work.idle_clocks.pop() {
            return Ok(clock);
        }
        use wgpu::BufferUsages as Usage;
        let buffer = |usage| wgpu::BufferDescriptor { label: None, size: 16, usage, mapped_at_creation: false };
        self.scoped(&codes::wgpu::CALL_FAILED, || Clock {
            queries: self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: self.device.create_buffer(&buffer(Usage::QUERY_RESOLVE | Usage::COPY_SRC)),
            read: self.device.create_buffer(&buffer(Usage::MAP_READ | Usage::COPY_DST)),
        })
    }
}

impl Open {
    /// The pass, with a pipeline and its buffers set.
    fn pass(&mut self, pipeline: &WgpuPipeline, made: &Made, group: &Group) -> &mut wgpu::ComputePass<'static> {
        let Open { pass, encoder, set, told, .. } = self;
        let pass = pass.get_or_insert_with(|| {
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        });
        let wanted = (pipeline.number, group.number);
        if *set != Some(wanted) {
            if set.is_none_or(|(set, _)| set != pipeline.number) {
                pass.set_pipeline(&made.pipeline);
            }
            pass.set_bind_group(0, &group.group, &[]);
            *set = Some(wanted);
            told.clear();
        }
        pass
    }

    fn tell(&mut self, facts: &Words) {
        if self.told != *facts
            && let Some(pass) = &mut self.pass
        {
            pass.set_immediates(0, bytemuck::cast_slice(facts));
            self.told.clone_from(facts);
        }
    }

    fn count(&mut self, pipeline: &WgpuPipeline, grid: [u32; 3]) {
        self.launches += 1;
        self.weight = self.weight.saturating_add(pipeline.weight(grid));
    }

    /// Records the parts of a launch.
    fn launch(
        &mut self,
        pipeline: &WgpuPipeline,
        made: &Made,
        group: &Group,
        facts: &mut Words,
        grid: [u32; 3],
        max_grid: u32,
    ) {
        self.pass(pipeline, made, group);
        let parts = |axis: usize| (0..grid[axis]).step_by(max_grid as usize);
        for z in parts(2) {
            for y in parts(1) {
                for x in parts(0) {
                    let base = [x, y, z];
                    facts[Facts::BASE as usize..][..3].copy_from_slice(&base);
                    self.tell(facts);
                    let size = |axis: usize| (grid[axis] - base[axis]).min(max_grid);
                    self.pass(pipeline, made, group).dispatch_workgroups(size(0), size(1), size(2));
                }
            }
        }
        self.count(pipeline, grid);
    }

    /// Records a launch whose grid is in a buffer; it is at most `most`.
    #[expect(clippy::too_many_arguments, reason = "all of a launch, and where its grid is")]
    fn launch_indirect(
        &mut self,
        pipeline: &WgpuPipeline,
        made: &Made,
        group: &Group,
        facts: &Words,
        most: [u32; 3],
        grid: &wgpu::Buffer,
        at: u64,
    ) {
        self.pass(pipeline, made, group);
        self.tell(facts);
        self.pass(pipeline, made, group).dispatch_workgroups_indirect(grid, at);
        // wgpu may have set a pipeline of its own to look at the numbers.
        self.set = None;
        self.count(pipeline, most);
    }
}

fn stopped() -> BackendError {
    BackendError::with_code(&codes::backend::STOPPED, "the launch was cancelled")
}

fn ended_early(report: u32) -> BackendError {
    match report {
        Report::ROUNDS => BackendError::with_code(
            &codes::wgpu::LOOP_LIMIT,
            "an invocation made as many rounds of its loops as this driver is sure to make",
        ),
        _ => stopped(),
    }
}
