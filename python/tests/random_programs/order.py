"""What CUDA orders: a plain model of streams, events, the host, and PyTorch's allocators.

Positions count what each agent does. An agent knows positions of others; two uses of the same bytes
race if one writes, and the later one's agent does not know the earlier one's position.
"""
from __future__ import annotations

from dataclasses import dataclass, field

HOST = -1
"""The agent of all threads. Streams are 0, the default one, and up."""

Knowledge = dict[int, int]


@dataclass(frozen=True)
class Uses:
    """An agent reads or writes bytes. `bits` has one for each 4 bytes of the memory."""

    agent: int
    reads: tuple[tuple[str, int], ...] = ()
    writes: tuple[tuple[str, int], ...] = ()
    certain: bool = True
    """Whether each race of it is found, whatever the schedule. If not, only the strict model has
    it."""


@dataclass(frozen=True)
class Record:
    event: str
    stream: int


@dataclass(frozen=True)
class Wait:
    """A stream waits for an event."""

    stream: int
    event: str


@dataclass(frozen=True)
class WaitStream:
    stream: int
    other: int


@dataclass(frozen=True)
class Synchronize:
    """The host waits for a stream, or for all."""

    stream: int | None = None
    certain: bool = True
    """Whether CUDA promises it. If not, only the generous model has it."""


@dataclass(frozen=True)
class SynchronizeEvent:
    event: str


@dataclass(frozen=True)
class Allocate:
    memory: str
    agent: int
    """The stream whose memory it is; HOST for page-locked and pageable memory."""
    words: int
    """Of 4 bytes."""


@dataclass(frozen=True)
class RecordStream:
    memory: str
    stream: int


@dataclass(frozen=True)
class Free:
    """The last tensor of this memory is gone."""

    memory: str


Effect = (Uses | Record | Wait | WaitStream | Synchronize | SynchronizeEvent | Allocate
          | RecordStream | Free)


@dataclass(frozen=True)
class Past:
    """An earlier use."""

    agent: int
    position: int
    bits: int
    writes: bool
    step: int


@dataclass
class Memory:
    agent: int
    words: int
    pasts: list[Past] = field(default_factory=list)
    recorded: set[int] = field(default_factory=set)
    """Streams that the allocator waits for when the memory is freed."""
    shared: list[tuple[str, int]] = field(default_factory=list)
    """Memory that had the same addresses earlier, and how many words this one begins later."""


@dataclass(frozen=True)
class Race:
    """The steps of two uses that nothing orders."""

    first: int
    second: int


class Order:
    """Follows a program.

    `addresses` are those of a run: without them no two memories share bytes. PyTorch's allocators
    ask events whether freed memory may be used again; a yes orders what follows. The strict model
    has such an edge only where memory was used again; the generous one wherever it may be. So what
    races in the generous model races in every run, and what does not race in the strict one in
    none.
    """

    def __init__(self, generous: bool = False, addresses: dict[str, int] | None = None) -> None:
        self.generous = generous
        self.addresses = addresses or {}
        self.known: dict[int, Knowledge] = {HOST: {}}
        self.events: dict[str, Knowledge] = {}
        self.memories: dict[str, Memory] = {}
        self.pending: dict[str, list[Knowledge]] = {}
        self.step = 0
        self.races: list[Race] = []
        self.is_loose = False
        """Whether memory was freed that another stream may still use: a temporary may get it."""

    def apply(self, effect: Effect) -> None:
        match effect:
            case Uses():
                if effect.certain or not self.generous:
                    self._use(effect)
            case Record(event, stream):
                self.events[event] = dict(self._of(stream))
            case Wait(stream, event):
                learn(self._of(stream), self.events.get(event, {}))
            case WaitStream(stream, other):
                learn(self._of(stream), self._of(other))
            case Synchronize(stream, certain):
                if certain or self.generous:
                    for one in [stream] if stream is not None else list(self.known):
                        learn(self.known[HOST], self._of(one))
            case SynchronizeEvent(event):
                learn(self.known[HOST], self.events.get(event, {}))
            case Allocate():
                self._allocate(effect)
            case RecordStream(memory, stream):
                self.memories[memory].recorded.add(stream)
            case Free(memory):
                of = self.memories[memory]
                self.is_loose |= of.agent != HOST and bool(self.unfreeable(memory))
                streams = of.recorded - {of.agent}
                self.pending[memory] = [dict(self._of(stream)) for stream in streams]

    def _of(self, agent: int) -> Knowledge:
        return self.known.setdefault(agent, {})

    def _use(self, uses: Uses) -> None:
        if self.generous and uses.agent != HOST:  # for a temporary
            self._ask_all_events()
        for memory, bits in uses.reads + uses.writes:
            writes = (memory, bits) in uses.writes
            for past in self.unordered(uses.agent, memory, bits, writes):
                self.races.append(Race(past.step, self.step))
        mine = self._of(uses.agent)
        learn(mine, self.known[HOST])
        position = mine[uses.agent] = mine.get(uses.agent, 0) + 1
        for memory, bits in uses.reads + uses.writes:
            writes = (memory, bits) in uses.writes
            past = Past(uses.agent, position, bits, writes, self.step)
            self.memories[memory].pasts.append(past)

    def unordered(self, agent: int, memory: str, bits: int, writes: bool) -> list[Past]:
        """The earlier uses that race with a use by this agent now."""
        own, host = self._of(agent), self.known[HOST]

        def races(past: Past, bits: int) -> bool:
            return bool(
                (writes or past.writes) and past.agent != agent and past.bits & bits
                and max(own.get(past.agent, 0), host.get(past.agent, 0)) < past.position
            )

        of = self.memories[memory]
        found = [past for past in of.pasts if races(past, bits)]
        for name, later in of.shared:
            moved = bits << later if later >= 0 else bits >> -later
            found += [past for past in self.memories[name].pasts if races(past, moved)]
        return found

    def _allocate(self, new: Allocate) -> None:
        made = self.memories[new.memory] = Memory(new.agent, new.words)
        start = self.addresses.get(new.memory)
        for name, other in self.memories.items() if start is not None else ():
            its = self.addresses.get(name)
            if name == new.memory or its is None:
                continue
            if its < start + 4 * new.words and start < its + 4 * other.words:
                made.shared.append((name, (start - its) // 4))
                self._reuse(name)
        if self.generous:
            self._ask_all_events()

    def _ask_all_events(self) -> None:
        for name in list(self.pending):
            self._reuse(name)

    def _reuse(self, name: str) -> None:
        """The allocator has asked the events of freed memory."""
        for knowledge in self.pending.pop(name, []):
            learn(self.known[HOST], knowledge)

    def unfreeable(self, memory: str) -> list[Past]:
        """The uses that the next owner of this memory might meet, were it freed now."""
        of = self.memories[memory]
        own, host = self._of(of.agent), self.known[HOST]
        return [past for past in of.pasts if past.agent not in (of.agent, *of.recorded)
                and max(own.get(past.agent, 0), host.get(past.agent, 0)) < past.position]


def learn(mine: Knowledge, told: Knowledge) -> None:
    """Takes on what another knows."""
    for agent, position in told.items():
        if mine.get(agent, 0) < position:
            mine[agent] = position
