"""Problems in the words of PyTorch: what happens, why it is a race, and what to write instead."""
from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from . import source
from .findings import Finding, Frame, Race, Site, Use
from .problems import EXITS_DIFFER, FAILS, HANGS, Problem


@dataclass(frozen=True)
class Step:
    """A line of the program that takes part."""

    does: str
    site: Site | None
    code: str = ""
    label: str | None = None
    """The operator and its tensors."""
    use: Use | None = None
    """The operation of a race."""


@dataclass(frozen=True)
class Told:
    """A problem in words."""

    title: str
    why: str
    fixes: tuple[str, ...] = ()
    """What to write, the best first."""
    steps: tuple[Step, ...] = ()
    details: tuple[str, ...] = field(default=())


def tell(problem: Problem, has_torch: bool = True) -> Told:
    """Puts a problem into words: those of PyTorch, or of CUDA if the program does not use it."""
    if problem.finding is None:
        return _of_end(problem)
    race = problem.finding.race
    if race is None:
        return _of_misuse(problem.finding)
    told = _of_race(problem.finding, race)
    if problem.early_bytes:
        wrong = f"in {_runs(len(problem.early_bytes))} the copy took bytes that were written later"
        told = dataclasses.replace(told, details=(*told.details, wrong))
    if not has_torch:
        told = dataclasses.replace(told, why="", fixes=(race.missing,))
    return told


# ---- races --------------------------------------------------------------------------------------


def _of_race(finding: Finding, race: Race) -> Told:
    first, second = race.first, race.second
    if finding.kind == "FreedInFlight" or "free" in (first.access, second.access):
        told = _freed(race)
    elif second.is_host or first.is_host:
        told = _host(race)
    elif "allocation" in (first.access, second.access):
        told = _not_yet_allocated(race)
    else:
        told = _reused(finding, race) or _streams(finding, race)
    title, why, fixes = told
    steps = (_step(first), _step(second))
    details = [f"memory: {_memory(race)}"]
    if race.seen and not (first.is_host or second.is_host):
        seen = "; ".join(race.seen).replace("legacy stream", "default stream")
        details.append(f"order seen: {seen}")
    return Told(title, why, tuple(fixes), steps, tuple(details))


_Parts = tuple[str, str, list[str]]


def _host(race: Race) -> _Parts:
    """The program itself touches memory that a copy still uses."""
    host, other = (race.second, race.first) if race.second.is_host else (race.first, race.second)
    pageable = not race.memory.kind.startswith("page-locked")
    line = _line(host.site)
    before = f"before line {line}" if line else "before that"
    wait = f"{before}: {_synchronize(other)}"
    event = (
        f"or record an event after the copy (`event = torch.cuda.Event(); event.record()`), and "
        f"{before} `event.synchronize()`"
    )
    blocking = _blocking(other)
    call = "`non_blocking=True`"
    if _is_replay(other):
        call = "`graph.replay()`"
        event = event.replace("after the copy", "after the replay")
    if host.access == "read":
        return (
            "the host reads a tensor before its download is done",
            f"{call} returns before the copy has run. Nothing here waits for it, so the values "
            "may be old, new, or a mixture.",
            [wait, *blocking, event],
        )
    if other.access == "read":
        title = "the host overwrites a tensor before its upload is done"
        why = (
            f"{call} returns before the copy has read its source. Nothing here waits for it, so "
            "the device may get the new values instead of the old ones."
        )
        if _is_replay(other):
            return title, why, [wait, event]
        site = other.site
        name = (source.copied(site.file, site.line) if site else None) or "x"
        pin = "" if pageable else ".pin_memory()"
        clone = f"or upload a copy of its own: `{name}.clone(){pin}` instead of `{name}`"
        return title, why, [wait, event, clone, *blocking]
    return (
        "the host overwrites a tensor into which a download still writes",
        f"{call} returns before the copy has run. It may still write over what the host has "
        "written.",
        [wait, *blocking, event],
    )


def _blocking(copy: Use) -> list[str]:
    """The fix of a copy that did not wait, if its line says so."""
    site = copy.site
    if site and source.is_asynchronous(site.file, site.line):
        return [f"or on line {site.line}: `non_blocking=False`"]
    return [] if site else ["or copy with `non_blocking=False`"]


def _synchronize(use: Use) -> str:
    """The call that waits for a use."""
    stream = _stream(use)
    if stream.expression and stream.is_side:
        return f"`{stream.expression}.synchronize()`"
    return "`torch.cuda.synchronize()`"


def _reused(finding: Finding, race: Race) -> _Parts | None:
    """The allocator has given the memory of a tensor to the next one, which is used here."""
    first, second = race.first, race.second
    if (first.access, second.access) == ("write", "read"):
        return None  # a new tensor is written to before it is read: this reads the first one
    for former, owner in zip(finding.owners, finding.owners[1:]):
        if owner.made and second.site and former.freed and (
            owner.made.file, owner.made.line) == (second.site.file, second.site.line):
            break
    else:
        return None
    stream, own = _stream(first), _stream(second).expression or "own_stream"
    used = "uses" if first.access == "write" else "reads"
    why = (
        f"A tensor belongs to the stream that was current when it was made. The one of line "
        f"{_at(former.made, second.site)} is freed at line {_at(former.freed, second.site)}, and "
        f"its memory goes to the one of line {owner.made.line}: the allocator does not know that "
        f"{stream} still {used} it."
    )
    title = f"the memory of a tensor is reused while {stream} still {used} it"
    name = stream.expression or "side_stream"
    if _is_replay(first):
        wait = f"{_stream(second).before(second)}: `{own}.wait_stream({name})`"
        return title, why, [wait, KEEP_FOR_REPLAYS]
    after = f"after line {first.site.line}" if first.site else "after its last use"
    made = former.made
    tensor = (source.target(made.file, made.line) if made else None) or "x"
    what = ", where `x` is the first tensor" if tensor == "x" else ""
    return (
        title,
        why,
        [
            f"{after}: `{tensor}.record_stream({name})`{what}",
            f"or keep that tensor until `{name}.synchronize()`, or until its own stream waits: "
            f"`{own}.wait_stream({name})`",
        ],
    )


def _at(frame: Frame | None, beside: Site | None) -> str:
    """A line, with its file if that is another one."""
    if frame is None:
        return "?"
    same = beside is not None and frame.file == beside.file
    return str(frame.line) if same else f"{source.short(frame.file)}:{frame.line}"


def _streams(finding: Finding, race: Race) -> _Parts:
    """Two streams use the same bytes."""
    first, second = race.first, race.second
    a, b = _stream(first), _stream(second)
    verbs = {
        ("write", "read"): f"{b} reads what {a} writes, without waiting for it",
        ("read", "write"): f"{b} overwrites what {a} still reads",
        ("write", "write"): f"{a} and {b} write to the same memory in no order",
    }
    title = verbs.get((first.access, second.access), f"{a} and {b} use the same memory in no order")
    why = (
        f"Work on two streams runs in any order, or at the same time. Nothing makes {b} wait for "
        f"{a}."
    )
    fixes = []
    where = b.before(second)
    if a.expression and b.expression:
        fixes.append(f"{where}: `{b.expression}.wait_stream({a.expression})`")
    else:
        fixes.append(f"{where}, make {b} wait for {a}: `consumer.wait_stream(producer)`")
    is_replayed = _is_replay(first) or _is_replay(second)
    if len(finding.owners) > 1 and is_replayed:
        fixes.append(KEEP_FOR_REPLAYS)
    elif len(finding.owners) > 1 and second.access == "write":
        name = b.expression if b.is_side else a.expression
        fixes.append(
            "if the two lines use different tensors, the caching allocator has given the memory of "
            f"a tensor that is gone to a new one. Call `x.record_stream({name or 'stream'})` on "
            "the first one after its use, or keep it until the streams are synchronized"
        )
    return title, why, fixes


def _freed(race: Race) -> _Parts:
    free, use = (race.second, race.first) if race.second.access == "free" else (
        race.first, race.second)
    stream = _stream(use)
    if race.memory.is_on_device:
        name = stream.expression or "stream"
        line = _line(use.site)
        after = f"after line {line}" if line else "after its use"
        tensor = (source.deleted(free.site.file, free.site.line) if free.site else None) or "x"
        what = ", where `x` is the tensor that is freed" if tensor == "x" else ""
        wait = f"before it is freed: `torch.cuda.current_stream().wait_stream({name})`"
        return (
            f"memory is freed while {stream} still uses it",
            "A tensor belongs to the stream that was current when it was made. When the tensor is "
            "gone, that stream may reuse the memory. It does not wait for other streams.",
            [wait, KEEP_FOR_REPLAYS] if _is_replay(use) else [
                f"{after}: `{tensor}.record_stream({name})`{what}",
                f"or {wait}",
                "or keep the tensor until the streams are synchronized",
            ],
        )
    line = _line(free.site)
    before = f"before line {line}" if line else "before that"
    return (
        "host memory is freed or unpinned while a copy uses it",
        "`non_blocking=True` returns before the copy has run, so its memory must stay until the "
        "copy is done.",
        [f"{before}: {_synchronize(use)}", "or keep the tensor until then"],
    )


def _not_yet_allocated(race: Race) -> _Parts:
    a, b = _stream(race.first), _stream(race.second)
    where = b.before(race.second)
    name, other = b.expression or "consumer", a.expression or "producer"
    return (
        f"{b} uses memory that {a} allocates, without waiting for it",
        "Memory that is allocated in stream order exists when that stream reaches the allocation.",
        [f"{where}: `{name}.wait_stream({other})`"],
    )


KEEP_FOR_REPLAYS = ("or keep the tensor for as long as the graph is replayed: each replay uses its "
                    "memory again, and `record_stream` knows nothing of later replays")


def _is_replay(use: Use) -> bool:
    """Whether the replay of a CUDA graph has made this use."""
    frames = use.site.callers if use.site else ()
    return any(frame.is_replay for frame in frames)


# ---- the parts of a race ------------------------------------------------------------------------

_DOES = {
    "CopyH2D": {"read": "uploads it", "write": "uploads to it"},
    "CopyD2H": {"read": "downloads it", "write": "downloads to it"},
    "CopyD2D": {"read": "copies it", "write": "copies to it"},
    "CopyPeer": {"read": "copies it to another device", "write": "copies to it"},
    "HostAlloc": {}, "HostFree": {}, "HostUnregister": {},
}


def does(use: Use) -> str:
    """What an operation does with the memory, in words."""
    stream = _stream(use)
    if use.is_host:
        return "the host writes to it" if use.access == "write" else "the host reads it"
    name = use.operation.partition("(")[0]
    if use.access == "free":
        return f"frees it ({use.operation})"
    if use.access == "allocation":
        return f"allocates it on {stream}"
    if name.startswith("Fill"):
        return f"fills it on {stream}"
    if name.startswith("kernel "):
        verb = "writes to it" if use.access == "write" else "reads it"
        return f"`{_kernel(use)}` {verb} on {stream}"
    known = _DOES.get(name, {}).get(use.access)
    if known:
        return f"{known} on {stream}"
    return f"{name} {'writes to it' if use.access == 'write' else 'reads it'} on {stream}"


def _kernel(use: Use) -> str:
    """The operator and its tensors: `mul float32[4], float32[4]`."""
    return use.operation.removeprefix("kernel ").removeprefix("aten::")


def _step(use: Use) -> Step:
    site = use.site
    code = source.text(site.file, site.line) if site else ""
    label = None if use.operation.startswith("kernel ") else use.label
    return Step(does(use), site, code, label, use)


_KINDS = {
    "page-locked memory": "pinned memory",
    "registered memory": "registered memory",
    "pageable memory": "pageable memory (not pinned)",
}


def _memory(race: Race) -> str:
    memory = race.memory
    # Of an access of the host, only the bytes of its first instruction are known.
    count = race.second.is_host and memory.bytes or race.bytes
    size = f"{count} byte{'' if count == 1 else 's'} of " if count else ""
    kind = _KINDS.get(memory.kind, f"memory of cuda:{memory.kind.removeprefix('device ')}")
    site = memory.site
    place = f", allocated at {source.short(site.file)}:{site.line}" if site else ""
    return f"{size}{kind}{place}"


@dataclass(frozen=True)
class _Stream:
    """A stream: what it is called, and how the program writes it."""

    name: str
    expression: str | None
    is_side: bool
    block: source.Block | None

    def __str__(self) -> str:
        return self.name

    def before(self, use: Use) -> str:
        """Where a wait of this stream belongs."""
        line = _line(use.site)
        if line is None:
            return "before that"
        return f"before line {line}"


def _stream(use: Use) -> _Stream:
    site = use.site
    block = source.stream_block(site.file, site.line) if site else None
    device = re.search(r" of device (\d+)", use.agent)
    where = f" of cuda:{device[1]}" if device else ""
    if use.agent.startswith("legacy stream"):
        current = f"torch.cuda.current_stream({device[1] if device else ''})"
        default = f"torch.cuda.default_stream({device[1] if device else ''})"
        return _Stream(f"the default stream{where}", default if block else current, False, None)
    if block:
        return _Stream(f"stream `{block.stream}`{where}", block.stream, True, block)
    return _Stream(use.agent.split(" of device")[0] + where, None, True, None)


def _line(site: Site | None) -> int | None:
    return site.line if site else None


# ---- what is no race ----------------------------------------------------------------------------

_MISUSE = {
    "IllegalAddress": (
        "an operation uses device memory that is not allocated",
        "On a GPU this is `CUDA error: an illegal memory access was encountered`, sooner or later.",
    ),
    "CallAfterFork": (
        "a forked process uses CUDA",
        "CUDA cannot be used in a child of a process that has used it. Start workers with "
        "`multiprocessing_context=\"spawn\"`, or return CPU tensors from them. If the program "
        "makes no such call itself, Python's garbage collector does: it destroys tensors or events "
        "of the parent in the child. Then call `gc.collect()` before the workers start.",
    ),
    "Unsupported": (
        "an operation ran for which nothing stands in",
        "Its results are not computed, and its uses of memory are not checked.",
    ),
    "Deadlock": (
        "a call waits for a host function that cannot return",
        "A host function must not wait for the work of its own stream.",
    ),
}


def _of_misuse(finding: Finding) -> Told:
    first, _, rest = finding.message.partition("\n")
    title, why = _MISUSE.get(finding.kind, (first, ""))
    site, label = finding.site, finding.label
    code = source.text(site.file, site.line) if site else ""
    step = (Step("here", site, code, label),) if site or label else ()
    lines = [line.strip() for line in rest.splitlines()]
    told = ("called at ", "in ", "called for ")  # these are the step's
    details = tuple(line for line in lines if not line.startswith(told))
    if title != first:
        details = (first, *details)
    return Told(title, why, (), step, details)


def _of_end(problem: Problem) -> Told:
    ended = problem.ended
    step = ()
    if ended.file and ended.line:
        site = Site(ended.file, ended.line)
        step = (Step(ended.error or ended.how, site, source.text(ended.file, ended.line)),)
    # A traceback says no more than the step.
    output = () if step else tuple(ended.output.rstrip().splitlines()[-6:])
    stack = tuple(ended.stack.rstrip().splitlines()[:24])
    if problem.kind == EXITS_DIFFER:
        counts = tuple(f"{name}: {_runs(len(runs))}, such as {runs[0]}"
                       for name, runs in problem.ends.items())
        return Told(
            "exits differ: the program fails under some schedules only",
            "Each schedule is one that CUDA allows. The other findings, if there are any, say why; "
            "else look for results that are used before they are ready.",
            (), step, (*counts, *(stack or output)),
        )
    if problem.kind == HANGS:
        return Told(
            "the program does not end",
            "It was stopped after the time that a run may take (--timeout).",
            (), step, stack or output,
        )
    assert problem.kind == FAILS
    return Told(
        f"the program fails: {ended.how}",
        "It fails even when all work runs at once (eager): schedules do not matter.",
        (), step, stack or output,
    )


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
