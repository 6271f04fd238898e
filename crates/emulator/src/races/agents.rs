//! Streams and host threads, and what each of them knows.
//!
//! A call on a stream is an edge from the calling thread to the operation. The rules of the default
//! streams (10, 11, 15) are edges between streams of one device. All other edges come from calls.
//!
//! An operation knows what its agent knew when it was enqueued. What a stream waits for afterwards
//! is for its later operations. So an agent also keeps what it knew earlier, once there are
//! operations that the checker learns of late.
//!
//! # Invariants
//!
//! * The number of an agent that is gone goes to another only when all host threads know all that
//!   it did. The new agent's positions continue where the old one's ended. So an old epoch never
//!   looks newer than it is: it is ordered before everything that is still to come.

use std::collections::VecDeque;
use std::sync::Weak;

use super::clock::{Agent, Epoch, Knowledge};
use crate::words::name::letters;
use pinlane_driver::{Ordinal, RawStream};

/// The most streams whose end was not waited for. Work of older ones counts as done.
const MOST_GONE: usize = 1024;
/// The number of streams that are gone at which they are looked through.
const FEW: usize = 16;
/// How many earlier states of knowledge all agents keep together. An operation from before the
/// oldest counts as knowing what that one has.
const MOST_EARLIER: usize = 4096;

/// What a stream is called in a report, and how it is ordered by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Legacy,
    PerThread,
    Blocking,
    NonBlocking,
    /// One of those that run a graph.
    Branch,
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Stream {
        kind: Kind,
        device: Ordinal,
        number: u32,
        handle: usize,
    },
    /// What copies of a stream do ahead of its order: read pageable memory (rule 4).
    Ahead {
        of: Agent,
        kind: Kind,
        device: Ordinal,
        number: u32,
        handle: usize,
    },
    Thread {
        number: u32,
    },
}

#[derive(Debug)]
struct Member {
    who: Who,
    knowledge: Knowledge,
    /// Its earlier states of knowledge, each with the last position that had no more.
    earlier: VecDeque<Knowledge>,
    /// The position at which this agent took over the number.
    base: u64,
    /// Of a stream: the agent of its uses that are ahead of its order, once there are any.
    ahead: Option<Agent>,
}

impl Member {
    fn new(who: Who, at: Epoch) -> Self {
        let knowledge = Knowledge::new(at);
        Member { who, knowledge, earlier: VecDeque::new(), base: at.position, ahead: None }
    }

    /// Takes on what another knows; keeps at most so many earlier states.
    fn learn(&mut self, told: &Knowledge, kept: usize) {
        if self.knowledge.knows(told.at()) {
            return;
        }
        let is_new = self.earlier.back().is_none_or(|last| last.at() != self.knowledge.at());
        if kept > 0 && is_new {
            let excess = (self.earlier.len() + 1).saturating_sub(kept);
            self.earlier.drain(..excess);
            self.earlier.push_back(self.knowledge.clone());
        }
        self.knowledge.learn(told);
    }
}

/// The streams of a device that order each other.
#[derive(Debug)]
struct Ordered {
    legacy: Agent,
    blocking: Vec<Agent>,
    /// What blocking streams that are gone have done.
    gone: Vec<Knowledge>,
}

#[derive(Debug)]
struct Thread {
    id: u64,
    agent: Agent,
    alive: Weak<()>,
}

#[derive(Debug, Default)]
pub(super) struct Agents {
    members: Vec<Member>,
    devices: Vec<Ordered>,
    threads: Vec<Thread>,
    /// Each thread learns only what it waited for itself.
    apart: bool,
    /// Whether agents keep what they knew earlier.
    look_back: bool,
    gone: Vec<Agent>,
    streams: u32,
}

impl Agents {
    #[inline]
    pub(super) fn are_apart(&self) -> bool {
        self.apart
    }

    pub(super) fn set_apart(&mut self, apart: bool) {
        self.apart = apart;
    }

    fn add(&mut self, who: Who) -> Agent {
        if let Some(agent) = self.vacancy() {
            let member = &mut self.members[agent as usize];
            *member = Member::new(who, member.knowledge.at());
            return agent;
        }
        let agent = self.members.len() as Agent;
        self.members.push(Member::new(who, Epoch { agent, position: 0 }));
        agent
    }

    /// The number of an agent that is gone, and of which all threads know everything.
    fn vacancy(&mut self) -> Option<Agent> {
        let known = self.gone.iter().position(|&agent| self.is_settled(self.at(agent)));
        let crowded = (self.gone.len() > MOST_GONE).then_some(0);
        let agent = self.gone.remove(known.or(crowded)?);
        if known.is_none() {
            let told = self.knowledge(agent).clone();
            self.tell_all_hosts(&told);
        }
        Some(agent)
    }

    fn tell_all_hosts(&mut self, told: &Knowledge) {
        for at in 0..self.threads.len() {
            self.tell_host(self.threads[at].agent, told);
        }
    }

    pub(super) fn add_stream(&mut self, device: Ordinal, kind: Kind) -> Agent {
        let number = self.streams;
        self.streams += u32::from(kind != Kind::Legacy);
        let handle = if kind == Kind::PerThread { RawStream::PER_THREAD } else { 0 };
        let agent = self.add(Who::Stream { kind, device, number, handle });
        match kind {
            Kind::Legacy => {
                self.devices.push(Ordered { legacy: agent, blocking: vec![], gone: vec![] });
            }
            Kind::PerThread | Kind::Blocking => {
                self.devices[device as usize].blocking.push(agent);
            }
            Kind::NonBlocking | Kind::Branch => {}
        }
        agent
    }

    pub(super) fn remove_stream(&mut self, agent: Agent) {
        let Member { who: Who::Stream { kind, device, .. }, ref knowledge, ahead, .. } =
            self.members[agent as usize]
        else {
            return;
        };
        if !matches!(kind, Kind::NonBlocking | Kind::Branch) {
            let knowledge = knowledge.clone();
            let ordered = &mut self.devices[device as usize];
            ordered.blocking.retain(|&other| other != agent);
            ordered.gone.push(knowledge);
            if ordered.gone.len() > FEW {
                let mut gone = std::mem::take(&mut ordered.gone);
                gone.retain(|told| !self.is_settled(told.at()));
                let excess = gone.len().saturating_sub(MOST_GONE);
                gone.drain(..excess).for_each(|told| self.tell_all_hosts(&told));
                self.devices[device as usize].gone = gone;
            }
        }
        self.gone.push(agent);
        self.gone.extend(ahead);
    }

    #[inline]
    pub(super) fn knowledge(&self, agent: Agent) -> &Knowledge {
        &self.members[agent as usize].knowledge
    }

    #[inline]
    pub(super) fn at(&self, agent: Agent) -> Epoch {
        self.knowledge(agent).at()
    }

    /// One agent learns what another knows.
    #[inline]
    pub(super) fn learn_of(&mut self, agent: Agent, other: Agent) {
        if !self.knowledge(agent).knows(self.at(other)) {
            self.learn_all_of(agent, other);
        }
    }

    #[inline(never)]
    fn learn_all_of(&mut self, agent: Agent, other: Agent) {
        let told = self.knowledge(other).clone();
        self.learn(agent, &told);
    }

    pub(super) fn learn(&mut self, agent: Agent, told: &Knowledge) {
        let kept = if self.look_back { (MOST_EARLIER / self.members.len()).max(1) } else { 0 };
        self.members[agent as usize].learn(told, kept);
    }

    /// From now on agents keep what they knew earlier.
    pub(super) fn look_back(&mut self) {
        self.look_back = true;
    }

    /// What an agent knew when it did that.
    pub(super) fn knew(&self, epoch: Epoch) -> Knowledge {
        let Member { knowledge, earlier, .. } = &self.members[epoch.agent as usize];
        let next = earlier.partition_point(|other| other.at().position < epoch.position);
        earlier.get(next).unwrap_or(knowledge).as_of(epoch)
    }

    /// The next operation of a stream: after what the calling thread knows, and after what the
    /// rules of the default streams say.
    #[inline]
    pub(super) fn enqueue(&mut self, stream: Agent, host: Agent) -> Epoch {
        self.learn_of(stream, host);
        if let Who::Stream { kind, device, .. } = self.members[stream as usize].who {
            match kind {
                Kind::NonBlocking | Kind::Branch => {}
                Kind::Legacy => self.learn_of_device(stream, device),
                Kind::PerThread | Kind::Blocking => {
                    self.learn_of(stream, self.devices[device as usize].legacy);
                }
            }
        }
        let knowledge = &mut self.members[stream as usize].knowledge;
        knowledge.step();
        knowledge.at()
    }

    /// What the next operation of a stream does ahead of the stream's order, at any time from the
    /// call on. It has the number of that operation, which is done only when this is.
    pub(super) fn ahead(&mut self, stream: Agent, host: Agent) -> Epoch {
        let &Member { who, base, ahead, .. } = &self.members[stream as usize];
        let number = self.at(stream).position + 1 - base;
        let ahead = ahead.unwrap_or_else(|| {
            let Who::Stream { kind, device, number, handle } = who else {
                unreachable!("a stream")
            };
            let ahead = self.add(Who::Ahead { of: stream, kind, device, number, handle });
            self.members[stream as usize].ahead = Some(ahead);
            ahead
        });
        self.learn_of(ahead, host);
        let member = &mut self.members[ahead as usize];
        member.knowledge.step_to(member.base + number);
        let at = member.knowledge.at();
        self.learn_of(stream, ahead);
        at
    }

    /// Whether `later` is ahead of the order of a stream that does `earlier` before it.
    pub(super) fn overtakes(&self, later: Epoch, earlier: Epoch) -> bool {
        match self.members[later.agent as usize].who {
            Who::Ahead { of, .. } => {
                of == earlier.agent && self.position(earlier) < self.position(later)
            }
            _ => false,
        }
    }

    pub(super) fn is_ahead(&self, agent: Agent) -> bool {
        matches!(self.members[agent as usize].who, Who::Ahead { .. })
    }

    /// What the legacy and the blocking streams of a device have been given so far.
    pub(super) fn learn_of_device(&mut self, agent: Agent, device: Ordinal) {
        let at = device as usize;
        let (blocking, gone) = {
            let device = &mut self.devices[at];
            (std::mem::take(&mut device.blocking), std::mem::take(&mut device.gone))
        };
        gone.iter().for_each(|told| self.learn(agent, told));
        blocking.iter().for_each(|&other| self.learn_of(agent, other));
        let legacy = self.devices[at].legacy;
        self.learn_of(agent, legacy);
        self.devices[at].blocking = blocking;
        if agent != legacy {
            self.devices[at].gone = gone;
        }
    }

    /// What the streams of a device know, those included that are gone.
    pub(super) fn of_device(&self, device: Ordinal) -> impl Iterator<Item = &Knowledge> {
        let is_its = move |member: &&Member| match member.who {
            Who::Stream { device: of, .. } => of == device,
            // Its stream knows what it does.
            Who::Ahead { .. } | Who::Thread { .. } => false,
        };
        self.members.iter().filter(is_its).map(|member| &member.knowledge)
    }

    /// A host thread has waited: it learns that, and what it does next is after it.
    pub(super) fn tell_host(&mut self, host: Agent, told: &Knowledge) {
        if !self.knowledge(host).knows(told.at()) {
            self.learn(host, told);
            self.step_host(host);
        }
    }

    /// Any thread may know, unless threads are apart.
    pub(super) fn tell_any_host(&mut self, told: &Knowledge) {
        if let Some(first) = self.threads.first()
            && !self.apart
        {
            self.tell_host(first.agent, told);
        }
    }

    /// A host thread does something that operations may race with.
    pub(super) fn step_host(&mut self, host: Agent) -> Epoch {
        let knowledge = &mut self.members[host as usize].knowledge;
        knowledge.step();
        knowledge.at()
    }

    /// The agent of the calling thread, whose number `id` gives.
    ///
    /// Unless threads are apart there is one agent for all of them: what one of them has waited for
    /// may have reached any other, by ways that cannot be seen.
    #[inline]
    pub(super) fn host(
        &mut self,
        id: impl FnOnce() -> u64,
        alive: impl FnOnce() -> Weak<()>,
    ) -> Agent {
        match self.threads.first() {
            Some(first) if !self.apart => first.agent,
            _ => self.host_of(id(), alive),
        }
    }

    fn host_of(&mut self, id: u64, alive: impl FnOnce() -> Weak<()>) -> Agent {
        match self.threads.iter().find(|thread| thread.id == id) {
            Some(thread) => thread.agent,
            None => self.add_thread(id, alive()),
        }
    }

    /// Some thread, if one has made a call.
    pub(super) fn any_host(&self) -> Option<Agent> {
        self.threads.first().map(|thread| thread.agent)
    }

    /// A thread begins with what all others know: one of them has started it.
    #[cold]
    fn add_thread(&mut self, id: u64, alive: Weak<()>) -> Agent {
        let agent = self.add(Who::Thread { number: self.threads.len() as u32 });
        for at in 0..self.threads.len() {
            self.learn_of(agent, self.threads[at].agent);
        }
        self.members[agent as usize].knowledge.step();
        self.threads.push(Thread { id, agent, alive });
        agent
    }

    /// Hands what threads knew that have ended since the last look to all others, which may have
    /// joined them. Returns whether any thread had ended.
    #[cold]
    pub(super) fn bury(&mut self) -> bool {
        if !self.apart {
            return false;
        }
        let is_over = |thread: &Thread| thread.alive.strong_count() == 0;
        let ended: Vec<Agent> =
            self.threads.iter().filter(|thread| is_over(thread)).map(|t| t.agent).collect();
        self.threads.retain(|thread| !is_over(thread));
        for &agent in &ended {
            let told = self.knowledge(agent).clone();
            self.tell_all_hosts(&told);
            self.gone.push(agent);
        }
        !ended.is_empty()
    }

    /// Whether all host threads know of it, and so everything that is still to come.
    #[inline]
    pub(super) fn is_settled(&self, epoch: Epoch) -> bool {
        self.threads.iter().all(|thread| self.knowledge(thread.agent).knows(epoch))
    }

    /// The agent as a report names it.
    pub(super) fn name(&self, agent: Agent) -> String {
        let several = self.devices.len() > 1;
        let of = |device: Ordinal| if several { format!(" of device {device}") } else { "".into() };
        match self.members[agent as usize].who {
            Who::Stream { kind: Kind::Legacy, device, .. }
            | Who::Ahead { kind: Kind::Legacy, device, .. } => {
                format!("legacy stream{}", of(device))
            }
            Who::Stream { kind, device, number, .. } | Who::Ahead { kind, device, number, .. } => {
                let what = match kind {
                    Kind::PerThread => "per-thread stream",
                    Kind::Branch => "graph branch",
                    _ => "stream",
                };
                format!("{what} {}{}", letters(number), of(device))
            }
            Who::Thread { .. } if !self.apart => "host".into(),
            Who::Thread { number } => format!("host thread {number}"),
        }
    }

    /// The stream that the agent is, or whose uses it makes.
    pub(super) fn stream_of(&self, agent: Agent) -> Option<RawStream> {
        match self.members[agent as usize].who {
            Who::Stream { device, handle, .. } | Who::Ahead { device, handle, .. } => {
                Some(RawStream { device, handle })
            }
            Who::Thread { .. } => None,
        }
    }

    /// A new stream has that handle.
    pub(super) fn set_handle(&mut self, agent: Agent, of: usize) {
        if let Who::Stream { handle, .. } = &mut self.members[agent as usize].who {
            *handle = of;
        }
    }

    /// The same in short, with a position: `A#7`.
    pub(super) fn label(&self, epoch: Epoch) -> String {
        let name = self.name(epoch.agent);
        let name = name.strip_prefix("stream ").unwrap_or(&name);
        format!("{name}#{}", self.position(epoch))
    }

    pub(super) fn is_host(&self, agent: Agent) -> bool {
        matches!(self.members[agent as usize].who, Who::Thread { .. })
    }

    /// How many operations the agent had done by then, that one included.
    pub(super) fn position(&self, epoch: Epoch) -> u64 {
        epoch.position.saturating_sub(self.members[epoch.agent as usize].base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_stream_is_used_again_when_the_host_knows_its_end() {
        let mut agents = Agents::default();
        agents.add_stream(0, Kind::Legacy);
        let host = agents.host(|| 7, Weak::new);
        let first = agents.add_stream(0, Kind::NonBlocking);
        let last = agents.enqueue(first, host);
        agents.remove_stream(first);
        let second = agents.add_stream(0, Kind::NonBlocking);
        assert_ne!(second, first, "nobody has waited for it");
        let told = agents.knowledge(first).clone();
        agents.tell_host(host, &told);
        let third = agents.add_stream(0, Kind::NonBlocking);
        let next = agents.enqueue(third, host);
        assert_eq!((third, agents.position(next)), (first, 1));
        assert!(next.position > last.position && !agents.is_settled(next));
    }

    #[test]
    fn streams_that_nobody_waits_for_do_not_fill_the_memory() {
        let mut agents = Agents::default();
        agents.add_stream(0, Kind::Legacy);
        let host = agents.host(|| 7, Weak::new);
        for _ in 0..10 * MOST_GONE {
            let stream = agents.add_stream(0, Kind::NonBlocking);
            agents.enqueue(stream, host);
            agents.remove_stream(stream);
        }
        assert!(agents.members.len() < MOST_GONE + 10);
    }

    #[test]
    fn the_legacy_stream_follows_however_many_blocking_streams_are_gone() {
        let mut agents = Agents::default();
        let legacy = agents.add_stream(0, Kind::Legacy);
        let host = agents.host(|| 7, Weak::new);
        let streams = [(); 2 * MOST_GONE].map(|()| agents.add_stream(0, Kind::Blocking));
        let last = streams.map(|stream| agents.enqueue(stream, host));
        streams.iter().for_each(|&stream| agents.remove_stream(stream));
        assert!(agents.devices[0].gone.len() <= MOST_GONE);
        agents.enqueue(legacy, host);
        assert!(last.iter().all(|&epoch| agents.knowledge(legacy).knows(epoch)));
    }

    #[test]
    fn an_operation_knows_what_its_stream_knew_and_what_is_kept_of_that_is_bounded() {
        let mut agents = Agents::default();
        agents.add_stream(0, Kind::Legacy);
        agents.look_back();
        let host = agents.host(|| 7, Weak::new);
        let [a, b] = [(); 2].map(|()| agents.add_stream(0, Kind::NonBlocking));
        let pairs = [(); 2 * MOST_EARLIER].map(|()| {
            let first = agents.enqueue(a, host);
            let told = agents.knowledge(a).clone();
            agents.learn(b, &told);
            (first, agents.enqueue(b, host))
        });
        let kept = agents.members[b as usize].earlier.len();
        assert!((1..MOST_EARLIER).contains(&kept));
        for (at, pair) in pairs.windows(2).enumerate() {
            let [(first, second), (next, _)] = pair else { unreachable!() };
            let knew = agents.knew(*second);
            assert!(knew.knows(*first) && knew.at() == *second);
            let is_forgotten = at + 1 < pairs.len() - kept;
            assert_eq!(knew.knows(*next), is_forgotten, "{at}");
        }
    }
}
