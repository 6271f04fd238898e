//! The race checker: which operations are ordered, whatever a device may do.
//!
//! It looks at the calls of a program, not at when operations run. So one run finds a race, in any
//! mode, though the run itself went well; and it finds the same ones with every seed.
//!
//! ```text
//!   mod.rs    what the machine tells the checker
//!   agents    streams and host threads, and what each knows      clock   vector clocks
//!   memory    the allocations                                    shadow  who used which bytes
//!   rows      uses that are rows                                 site    where calls are made
//!   late      operations whose uses are told when they have run
//!   report    races as values and texts
//!   function  the host function that runs                        label   what calls are made for
//!   trail     the steps that led there                       side    what a copy that has run used
//!   freed     what a finding says of freed memory                described   what a report says
//! ```
//!
//! # Invariants
//!
//! * Only what CUDA documents as order is an edge (docs/semantics.md, "Races"). What it permits
//!   without promising, such as implicit synchronization, is no edge.
//! * Where the checker cannot know, it takes the order that a correct program may have: threads may
//!   hand anything to each other, and a host function may signal any thread that it was called.
//! * Its memory is bounded. What is forgotten counts as ordered.

mod agents;
mod clock;
mod described;
mod freed;
mod function;
mod label;
mod late;
mod memory;
mod report;
mod rows;
mod shadow;
mod side;
mod site;
mod trail;

use std::collections::{HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};

use self::agents::Agents;
use self::label::Labels;
use self::late::Late;
use self::memory::{Memory, Origin};
use self::shadow::{Conflict, Use, View};
use self::site::Sites;
use self::trail::{Step, Trail, What};
use crate::operation::Action;
use crate::operation::uses::{self, Touch};
use crate::words::thread::{alive, this_thread};
use pinlane_driver::{Call, Item, Ordinal};

pub(super) use self::agents::Kind;
pub(super) use self::clock::{Agent, Called, Epoch, Knowledge};
pub(super) use self::label::label_calls;
pub use self::report::{MemoryKind, Race, RacingAccess, RacingMemory, RacingUse};
pub(super) use self::rows::Rows;
pub(super) use self::side::Side;
pub use self::site::{Callers, Frame, Lines, Note, Site, leave_out};

/// An event as the checker knows it.
#[derive(Debug)]
pub(super) struct Snapshot {
    number: u32,
    /// What was known where it was last recorded.
    pub(super) knowledge: Option<Knowledge>,
}

/// A host function that is being called.
#[derive(Debug)]
struct Running {
    thread: u64,
    knowledge: Knowledge,
}

#[derive(Debug, Default)]
pub(super) struct Races {
    /// Whether it looks for races.
    pub(super) on: bool,
    agents: Agents,
    memory: Memory,
    late: Late,
    sites: Sites,
    labels: Labels,
    trail: Trail,
    events: u32,
    running: Option<Running>,
    /// Which operations were reported with which agents.
    reported: HashSet<(Epoch, Agent)>,
    /// The calls so far that use memory.
    calls: u64,
    /// The call whose operation runs, if that is an earlier one than the call that is being made.
    runs: Option<NonZeroU64>,
    /// The names of kernels that have used memory, and their numbers.
    kernels: Vec<&'static str>,
    kernel_numbers: HashMap<&'static str, NonZeroU32>,
    /// Races that are not reported yet.
    found: Vec<Race>,
    conflicts: Vec<Conflict>,
}

/// What an operation knows, and the agents.
struct Eyes<'a> {
    knowledge: &'a Knowledge,
    agents: &'a Agents,
}

impl View for Eyes<'_> {
    #[inline]
    fn knows(&self, epoch: Epoch) -> bool {
        self.knowledge.knows(epoch)
    }

    fn is_settled(&self, epoch: Epoch) -> bool {
        self.agents.is_settled(epoch)
    }
}

impl Races {
    pub(super) fn new() -> Self {
        Races { on: true, ..Races::default() }
    }

    pub(super) fn configure(&mut self, on: bool, apart: bool) {
        self.on = on;
        self.agents.set_apart(apart);
    }

    /// Notes the site of the call that is being made.
    #[cold]
    pub(super) fn called_from(&mut self, site: Option<Site>) {
        self.sites.set(site);
    }

    /// A call is being made.
    #[inline]
    pub(super) fn begin_call(&mut self) {
        if self.agents.are_apart() {
            // From its first call on, a thread learns nothing by itself.
            self.host();
        }
    }

    /// The calling thread has the machine from now on.
    #[inline]
    pub(super) fn begin_turn(&mut self) {
        self.sites.set_callers();
        self.labels.set_current();
    }

    /// Calls are known by their callers, whose lines are found so.
    pub(super) fn look_up_sites(&mut self, lines: Lines) {
        self.sites.look_up_by(lines);
    }

    /// What stands for a place that a handler has noted: its callers, or an interpreter's line.
    pub(super) fn noted(&self, callers: Callers, note: &Note) -> Callers {
        self.sites.noted(callers, note)
    }

    /// Where the call is made, if calls are known by their callers.
    pub(super) fn called_at(&mut self) -> Option<Site> {
        if self.sites.are_looked_up() { self.here() } else { None }
    }

    /// What the call was made for.
    pub(super) fn called_for(&self) -> Option<&'static str> {
        self.labels.get(self.labels.current())
    }

    /// The call does what an earlier one did, whose label has this number. Gives the number so far,
    /// to restore it afterwards.
    pub(super) fn relabel(&mut self, label: u32) -> u32 {
        self.labels.replace(label)
    }

    /// The latest epoch of an agent.
    pub(super) fn latest(&self, agent: Agent) -> Epoch {
        self.agents.at(agent)
    }

    /// Whether all host threads know that it is complete.
    pub(super) fn is_settled(&self, epoch: Epoch) -> bool {
        self.agents.is_settled(epoch)
    }

    /// The call that is being made, or that of the operation which runs.
    #[inline]
    pub(super) fn called(&mut self) -> Called {
        let number = self.runs.map_or(self.calls, NonZeroU64::get);
        Called { number, site: self.sites.current(), label: self.labels.current() }
    }

    /// Where the call is made.
    pub(super) fn here(&mut self) -> Option<Site> {
        let current = self.sites.current();
        self.sites.get(current)
    }

    /// From now on an operation of that call runs. Returns the call so far, to restore it
    /// afterwards.
    #[inline]
    pub(super) fn exchange_called(&mut self, called: Called) -> Called {
        let number = NonZeroU64::new(called.number);
        let number = std::mem::replace(&mut self.runs, number).map_or(0, NonZeroU64::get);
        let (site, label) = (self.sites.exchange(called.site), self.labels.exchange(called.label));
        Called { number, site, label }
    }

    /// The host makes the access that was just found to race, where the calling thread is.
    pub(super) fn place_found(&mut self) {
        let site = self.sites.of_host();
        self.found.iter_mut().for_each(|race| race.second.site.clone_from(&site));
    }

    pub(super) fn take_found(&mut self) -> Vec<Race> {
        std::mem::take(&mut self.found)
    }

    #[inline]
    pub(super) fn has_found(&self) -> bool {
        !self.found.is_empty()
    }

    #[inline]
    fn host(&mut self) -> Agent {
        self.agents.host(this_thread, alive)
    }

    // ---- streams --------------------------------------------------------------------------------

    pub(super) fn stream_created(&mut self, device: Ordinal, kind: Kind) -> Agent {
        self.agents.add_stream(device, kind)
    }

    /// A new stream has that handle.
    pub(super) fn stream_has_handle(&mut self, agent: Agent, handle: usize) {
        self.agents.set_handle(agent, handle);
    }

    pub(super) fn stream_removed(&mut self, agent: Agent) {
        self.agents.remove_stream(agent);
    }

    /// An operation is enqueued on a stream. Gives what it knows, if that is needed when it runs,
    /// or is asked for.
    #[inline]
    pub(super) fn enqueued(
        &mut self,
        stream: Agent,
        action: &Action,
        is_asked: bool,
        at_once: bool,
    ) -> Option<Knowledge> {
        if !self.on {
            return None;
        }
        let host = self.host();
        let ahead = uses::is_ahead(action).then(|| self.agents.ahead(stream, host));
        let at = self.agents.enqueue(stream, host);
        if matches!(action, Action::Mark { .. } | Action::Join) {
            return is_asked.then(|| self.agents.knowledge(stream).clone());
        }
        let value = uses::value_of(action);
        let kernel = action.declared().map(|(name, _)| self.number_of(name));
        let user = Use { value, kernel, ..self.user(at, Some(action.call())) };
        uses::touches(action, |touch| {
            let at = ahead.filter(|_| touch.ahead).unwrap_or(at);
            self.touch(at, &user, touch, None);
        });
        let is_late = action.is_known_late() || matches!(action, Action::HostFunction(_));
        if is_late {
            self.agents.look_back();
        }
        if !at_once {
            self.expect_uses(stream, action);
        }
        (is_late || is_asked).then(|| self.agents.knowledge(stream).clone())
    }

    /// A stream is given an operation that uses no memory, and is complete at once.
    #[inline]
    pub(super) fn marked(&mut self, stream: Agent) {
        if self.on {
            let host = self.host();
            self.agents.enqueue(stream, host);
        }
    }

    /// What a move uses whose items were in device memory: known when it runs.
    pub(super) fn moved(&mut self, knowledge: &Knowledge, items: &[Item]) {
        let user = self.late_user(knowledge, Call::MoveItems);
        uses::of_items(items, |touch| self.touch(user.at, &user, touch, Some(knowledge)));
    }

    /// The number of a kernel's name.
    fn number_of(&mut self, kernel: &'static str) -> NonZeroU32 {
        let kernels = &mut self.kernels;
        *self.kernel_numbers.entry(kernel).or_insert_with(|| {
            kernels.push(kernel);
            NonZeroU32::new(kernels.len() as u32).expect("one was pushed")
        })
    }

    /// A use of memory by the call that is being made.
    #[inline]
    fn user(&mut self, at: Epoch, call: Option<Call>) -> Use {
        self.calls += 1;
        let (number, site, label) = (self.calls, self.sites.current(), self.labels.current());
        Use::by(at, call, Called { number, site, label })
    }

    /// The same by an operation that runs now.
    fn late_user(&mut self, knowledge: &Knowledge, call: Call) -> Use {
        Use::by(knowledge.at(), Some(call), self.called())
    }

    /// A stream will wait for the latest operation of another.
    pub(super) fn follows(&mut self, stream: Agent, other: Agent) {
        if self.on {
            self.agents.learn_of(stream, other);
        }
    }

    /// A stream will wait for that.
    pub(super) fn learns(&mut self, stream: Agent, of: &Knowledge) {
        if self.on {
            self.agents.learn(stream, of);
        }
    }

    /// A stream will wait for all that the blocking streams of a device have been given.
    pub(super) fn follows_device(&mut self, stream: Agent, device: Ordinal) {
        if self.on {
            self.agents.learn_of_device(stream, device);
        }
    }

    // ---- events ---------------------------------------------------------------------------------

    pub(super) fn event_created(&mut self) -> Snapshot {
        self.events = self.events.wrapping_add(1);
        Snapshot { number: self.events, knowledge: None }
    }

    /// The event gets a copy of what the stream knows.
    pub(super) fn recorded(&mut self, stream: Agent, event: &mut Snapshot) {
        if self.on {
            let knowledge = self.agents.knowledge(stream);
            let (by, what) = (knowledge.at(), What::Record(event.number));
            self.trail.push(Step { by, what, site: self.sites.current() });
            match &mut event.knowledge {
                Some(known) => known.clone_from(knowledge),
                none => *none = Some(knowledge.clone()),
            }
        }
    }

    /// The stream's next operation waits for what the event captured, as of now.
    pub(super) fn waits(&mut self, stream: Agent, event: &Snapshot) {
        if self.on {
            let told = event.knowledge.as_ref();
            let now = self.agents.at(stream);
            let by = Epoch { position: now.position + 1, ..now };
            let what = What::Wait(event.number, told.map(Knowledge::at));
            self.trail.push(Step { by, what, site: self.sites.current() });
            if let Some(told) = told {
                self.agents.learn(stream, told);
            }
        }
    }

    // ---- the host -------------------------------------------------------------------------------

    /// All that a stream has been given so far.
    pub(super) fn tail(&self, stream: Agent) -> Option<Knowledge> {
        self.on.then(|| self.agents.knowledge(stream).clone())
    }

    /// All that the streams of a device have been given so far, those included that are gone.
    pub(super) fn device_tail(&self, device: Ordinal) -> Vec<Knowledge> {
        if self.on { self.agents.of_device(device).cloned().collect() } else { Vec::new() }
    }

    /// The calling thread has learned that this is complete.
    pub(super) fn synchronized(&mut self, told: &Knowledge) {
        if self.on {
            let host = self.host();
            self.agents.tell_host(host, told);
            let (by, what) = (self.agents.at(host), What::Synchronize(told.at()));
            self.trail.push(Step { by, what, site: self.sites.current() });
        }
    }

    /// What the calling thread knows, as a token for another thread.
    pub(super) fn hand_over(&mut self) -> Knowledge {
        let host = self.host();
        self.agents.step_host(host);
        self.agents.knowledge(host).clone()
    }

    pub(super) fn take_over(&mut self, told: &Knowledge) {
        let host = self.host();
        self.agents.tell_host(host, told);
    }

    /// The host reads or writes memory, now.
    pub(super) fn host_access(&mut self, start: u64, bytes: u64, access: RacingAccess) {
        if !self.on || bytes == 0 {
            return;
        }
        let touch = Touch::new(start, bytes, access);
        if let Some(knowledge) = self.known_to_function().cloned() {
            let user = self.user(knowledge.at(), None);
            return self.touch(user.at, &user, touch, Some(&knowledge));
        }
        let host = self.host();
        let at = self.agents.step_host(host);
        let user = self.user(at, None);
        self.touch(at, &user, touch, None);
    }

    /// A call has read memory of the host, and is done with that when it returns: before all that
    /// comes later, and after what the stream has been given, if it has waited for one.
    pub(super) fn read_by_call(
        &mut self,
        call: Call,
        stream: Option<Agent>,
        start: u64,
        bytes: u64,
    ) {
        if !self.on || bytes == 0 {
            return;
        }
        let host = self.host();
        let at = self.agents.step_host(host);
        let mut knowledge = self.agents.knowledge(stream.unwrap_or(host)).clone();
        knowledge.learn(self.agents.knowledge(host));
        let user = self.user(at, Some(call));
        self.touch(at, &user, Touch::new(start, bytes, RacingAccess::Read), Some(&knowledge));
    }

    /// The host has written to what an operation uses before it could know that this is complete.
    /// `None` if that was reported already.
    pub(super) fn too_early(&mut self, side: Side) -> Option<Race> {
        let host = self.agents.any_host()?;
        let at = self.agents.at(host);
        let is_new = self.reported.len() < Self::KEPT && self.reported.insert((side.by, host));
        if !is_new {
            return None;
        }
        let (start, bytes) = (side.start as u64, side.bytes as u64);
        let by = Use::by(side.by, Some(side.call), side.called);
        let first = Use { start, bytes, access: side.access, ..by };
        let (access, called) = (RacingAccess::Write, Called::default());
        let second = Use { at, call: None, access, called, ..first };
        let origin = self.memory.origin_of(start);
        Some(self.race(&first, &second, origin, start, bytes))
    }

    // ---- memory ---------------------------------------------------------------------------------

    pub(super) fn allocated(&mut self, kind: MemoryKind, start: u64, bytes: usize) {
        let site = self.sites.current();
        self.allocated_at(kind, start, bytes, site);
    }

    /// The same, where an earlier call was made.
    pub(super) fn allocated_at(&mut self, kind: MemoryKind, start: u64, bytes: usize, site: u32) {
        if self.on {
            self.memory.add(kind, start, bytes as u64, site);
        }
    }

    /// How long an allocation is; 0 if none begins there.
    pub(super) fn bytes_at(&self, start: u64) -> usize {
        self.memory.bytes_at(start).unwrap_or(0) as usize
    }

    /// Whether a finding was about this operation.
    #[cold]
    pub(super) fn is_reported(&self, epoch: Epoch) -> bool {
        self.reported.iter().any(|&(first, _)| first == epoch)
    }

    /// Host memory is freed or unregistered: what uses it that the calling thread does not know to
    /// be complete.
    pub(super) fn host_freed(&mut self, call: Call, start: u64) -> Vec<Race> {
        let Some(bytes) = self.memory.bytes_at(start).filter(|_| self.on) else { return vec![] };
        let host = self.host();
        let at = self.agents.step_host(host);
        let touch = Touch::new(start, bytes, RacingAccess::Free);
        let earlier = std::mem::take(&mut self.found);
        let user = self.user(at, Some(call));
        self.touch(at, &user, touch, None);
        self.memory.remove(start);
        std::mem::replace(&mut self.found, earlier)
    }

    // ---- races ----------------------------------------------------------------------------------

    /// Notes a use of memory, by its agent's latest operation unless `knowledge` says otherwise.
    // Inlined, as what it calls is: a use takes so few steps that calls are a third of them.
    #[inline(always)]
    fn touch(&mut self, at: Epoch, user: &Use, touch: Touch, knowledge: Option<&Knowledge>) {
        let Touch { start, bytes, rows, access, .. } = touch;
        let end = start.saturating_add(bytes);
        let whole = Use { at, start, bytes, rows, access, ..*user };
        if !self.late.is_empty() {
            self.meet(whole, knowledge);
        }
        if let Some(next) = self.touch_one(&whole, end, knowledge) {
            self.touch_rest(&whole, next, end, knowledge);
        }
    }

    /// Notes a use from `next` on, where memory begins that lies next to that before it.
    #[cold]
    fn touch_rest(&mut self, whole: &Use, mut next: u64, end: u64, knowledge: Option<&Knowledge>) {
        while let Some(rest) = whole.after(next, end)
            && let Some(further) = self.touch_one(&rest, end, knowledge)
        {
            next = further;
        }
    }

    /// Notes a use in the allocation that it begins in. Gives where it goes on, if it ends later.
    #[inline(never)]
    fn touch_one(&mut self, new: &Use, end: u64, knowledge: Option<&Knowledge>) -> Option<u64> {
        let known = knowledge.unwrap_or_else(|| self.agents.knowledge(new.at.agent));
        let eyes = Eyes { knowledge: known, agents: &self.agents };
        let next = self.memory.touch(new, end, &eyes, &mut self.conflicts);
        if !self.conflicts.is_empty() {
            let origin = self.memory.origin_of(new.start);
            self.report(*new, origin, knowledge.is_some());
        }
        next
    }

    #[cold]
    fn report(&mut self, second: Use, origin: Origin, is_late: bool) {
        let mut conflicts = std::mem::take(&mut self.conflicts);
        // A use found late may conflict with work enqueued after it. That work is the later one, so
        // it stays.
        let after = |first: &Use| self.agents.knew(first.at).knows(second.at);
        let later = conflicts.extract_if(.., |conflict| is_late && after(&conflict.first));
        for Conflict { first, start, end } in later {
            let knowledge = self.agents.knew(first.at);
            let eyes = Eyes { knowledge: &knowledge, agents: &self.agents };
            self.memory.touch(&first.between(start, end), end, &eyes, &mut Vec::new());
        }
        if self.agents.bury() {
            let host = self.host();
            let mut knowledge = self.agents.knew(second.at);
            knowledge.learn(self.agents.knowledge(host));
            if !is_late {
                self.agents.learn_of(second.at.agent, host);
            }
            conflicts.retain(|conflict| !knowledge.knows(conflict.first.at));
        }
        for Conflict { first, start, end } in conflicts.drain(..) {
            let is_new = self.reported.len() < Self::KEPT
                && self.reported.insert((first.at, second.at.agent));
            if !is_new {
                continue;
            }
            // What a host function does is known when it runs, and what overtakes it at its call.
            // What a kernel or a move has used is known when it has run.
            let is_swapped = self.agents.overtakes(first.at, second.at)
                || second.called.number < first.called.number;
            let (first, second) = match is_swapped {
                true => (second, first),
                false => (first, second),
            };
            let race = self.race(&first, &second, origin, start, end - start);
            self.found.push(race);
        }
        self.conflicts = conflicts;
    }

    /// As many as the findings that are kept.
    const KEPT: usize = 1000;
}
