"""Runs a function once for each schedule, each time in a forked child.

A fork starts in milliseconds what an import of PyTorch needs seconds for. The parent never calls
CUDA: in a child of a process that did, every call would fail.
"""
from __future__ import annotations

import atexit
import ctypes
import dataclasses
import faulthandler
import io
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import allocations, dropin, program
from .findings import Finding, Owner, read

RUN = "PINLANE_RUN"
"""Set in every run."""
GRACE = 2.0
"""How many seconds a run gets to write down where it hangs."""
SHOWN = 64 * 1024
"""The most bytes of a run's output that are kept: its end."""


@dataclass
class Ended:
    """How a run ended."""

    schedule: str
    how: str
    """`exit 0`, `killed by SIGSEGV`, `hangs`."""
    seconds: float
    findings: list[Finding] = field(default_factory=list)
    error: str | None = None
    """The exception, in a line."""
    file: str | None = None
    line: int | None = None
    output: str = ""
    stack: str = ""
    """Where it was when it hung or crashed."""
    modules: list[str] = field(default_factory=list)
    record: list[str] = field(default_factory=list)
    """The text that repeats it, then each decision in words."""
    note: bytes = b""
    """What the function has left in the file `note` of the run's folder."""

    @property
    def is_clean(self) -> bool:
        return self.how == "exit 0" and not self.findings


@dataclass
class _Child:
    schedule: str
    pid: int
    pidfd: int
    folder: Path
    began: float
    limit: float
    is_live: bool = False
    shown: int = 0


class Runs:
    """Makes runs of one function. `body` gets the run's folder; it may end by an exception."""

    def __init__(
        self, body: Callable[[Path], object], variables: dict[str, str], *,
        own_exits: bool = False,
    ) -> None:
        """`own_exits`: what the parent has registered by `atexit` does not run in children."""
        self.body = body
        self.variables = variables
        self.own_exits = own_exits
        self.owner = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix="pinlane-"))
        self.children: dict[int, _Child] = {}
        self.made = 0

    def close(self) -> None:
        """Ends the runs that are left. Only the process that made this object does anything."""
        if os.getpid() != self.owner:
            return
        for child in list(self.children.values()):
            self._end(child)
        shutil.rmtree(self.folder, ignore_errors=True)

    def one(
        self, schedule: str, limit: float, *, record: bool = False, live: bool = False,
        modules: bool = False,
    ) -> Ended:
        """Makes one run. `live` shows its output as it comes; `record` keeps its decisions."""
        child = self._start(schedule, limit, record=record, modules=modules)
        child.is_live = live
        while True:
            ended = self._wait(0.05 if live else 1.0)
            if ended:
                return ended[0]
            if live:
                _show(child)

    def all(
        self, schedules: Iterator[str], limit: float, jobs: int, each: Callable[[Ended], bool]
    ) -> None:
        """Makes a run for each schedule, so many at the same time. `each` says whether to go on."""
        goes_on, left = True, True
        while True:
            while goes_on and left and len(self.children) < jobs:
                schedule = next(schedules, None)
                if schedule is None:
                    left = False
                else:
                    self._start(schedule, limit)
            if not self.children:
                return
            for ended in self._wait(1.0):
                goes_on = each(ended) and goes_on
            if not goes_on:
                for child in list(self.children.values()):
                    self._end(child)

    def _start(
        self, schedule: str, limit: float, *, record: bool = False, modules: bool = False
    ) -> _Child:
        self.made += 1
        folder = self.folder / str(self.made)
        folder.mkdir()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            run = _Run(schedule, folder, limit, self.variables, record, modules)
            run.make(self.body, self.own_exits)
        child = _Child(schedule, pid, os.pidfd_open(pid), folder, time.monotonic(), limit)
        self.children[child.pidfd] = child
        return child

    def _wait(self, seconds: float) -> list[Ended]:
        """The runs that have ended; waits for one at most so long."""
        poll = select.poll()
        for pidfd in self.children:
            poll.register(pidfd, select.POLLIN)
        ready = {pidfd for pidfd, _ in poll.poll(seconds * 1000)}
        ended = []
        for child in list(self.children.values()):
            if child.pidfd in ready:
                ended.append(self._ended(child, self._reap(child)))
            elif time.monotonic() > child.began + child.limit + GRACE:
                self._kill(child)
                ended.append(self._ended(child, self._reap(child), hangs=True))
        return ended

    def _reap(self, child: _Child) -> int:
        _, status = os.waitpid(child.pid, 0)
        self._kill(child)  # what it has started
        os.close(child.pidfd)
        del self.children[child.pidfd]
        return os.waitstatus_to_exitcode(status)

    @staticmethod
    def _kill(child: _Child) -> None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _end(self, child: _Child) -> None:
        self._kill(child)
        try:
            os.kill(child.pid, signal.SIGKILL)  # it may not have its group yet
        except ProcessLookupError:
            pass
        self._reap(child)
        shutil.rmtree(child.folder, ignore_errors=True)

    def _ended(self, child: _Child, code: int, hangs: bool = False) -> Ended:
        how = f"exit {code}" if code >= 0 else f"killed by {_signal(-code)}"
        seconds = time.monotonic() - child.began
        ended = Ended(child.schedule, "hangs" if hangs else how, seconds)
        folder = child.folder
        owners = allocations.owners(folder / "owners")
        ended.findings = [_owned(finding, owners) for finding in read(folder / "report")]
        ended.output = _text(folder / "output")
        if hangs or code < 0:
            ended.stack = _without_own(_text(folder / "stack"))
        status = _json(folder / "status")
        ended.error = status.get("error")
        ended.file, ended.line = status.get("file"), status.get("line")
        ended.modules = status.get("modules", [])
        ended.record = _text(folder / "record").splitlines()
        ended.note = _bytes(folder / "note")
        if child.is_live:
            _show(child)
        shutil.rmtree(folder, ignore_errors=True)
        return ended


@dataclass
class _Run:
    """The child's side."""

    schedule: str
    folder: Path
    limit: float
    variables: dict[str, str]
    record: bool
    modules: bool

    def make(self, body: Callable[[Path], object], own_exits: bool) -> None:
        """Runs the body and ends the process."""
        code = 70
        try:
            if own_exits:
                atexit._clear()  # type: ignore[attr-defined]
            self._prepare()
            outcome = program.outcome(lambda: body(self.folder))
            modules = sorted(sys.modules) if self.modules else []
            status = dict(dataclasses.asdict(outcome), modules=modules)
            (self.folder / "status").write_text(json.dumps(status))
            code = outcome.code
            program.finish()
            faulthandler.cancel_dump_traceback_later()
            if dropin.is_entered():
                dropin.answers()  # a call reports what was found since the last one
                allocations.write(self.folder / "report", self.folder / "owners")
            if self.record:
                ctypes.CDLL(None).exit(code)  # the runtime writes the record
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _prepare(self) -> None:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with its parent
        redirect(self.folder)
        stack = open(self.folder / "stack", "w", encoding="utf-8")
        os.set_inheritable(stack.fileno(), False)
        if not self.record:  # the runtime writes the record at a crash, unless that is handled
            faulthandler.enable(stack)
        faulthandler.dump_traceback_later(self.limit, file=stack)
        dropin.leave_environment()
        os.environ.update(self.variables)
        os.environ[RUN] = "1"
        os.environ["PINLANE_REPLAY"] = self.schedule
        os.environ["PINLANE_CUDART_REPORT"] = str(self.folder / "report")
        os.environ.setdefault("PINLANE_CUDART_QUIET", "1")
        for name in ("PINLANE_CUDART_MODE", "PINLANE_CUDART_SEED", "PINLANE_CUDART_RECORD"):
            os.environ.pop(name, None)
        if self.record:
            os.environ["PINLANE_CUDART_RECORD"] = str(self.folder / "record")


def _owned(finding: Finding, owners: dict[int, tuple[Owner, ...]]) -> Finding:
    start = finding.race.start if finding.race else 0
    return dataclasses.replace(finding, owners=owners.get(start, ()))


def redirect(folder: Path) -> None:
    """Lets this process read nothing, and write to the run's file of output."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = _writer(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _writer(2)  # type: ignore[misc]


def _writer(fd: int) -> io.TextIOWrapper:
    """A stream of text that loses nothing if the process is killed."""
    raw = open(fd, "wb", buffering=0, closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )


def _show(child: _Child) -> None:
    """Copies what is new of a run's output to the command's."""
    try:
        with open(child.folder / "output", "rb") as file:
            file.seek(child.shown)
            new = file.read()
    except OSError:
        return
    child.shown += len(new)
    sys.stdout.buffer.write(new)
    sys.stdout.flush()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _text(file: Path) -> str:
    data = _bytes(file)
    cut = b"" if len(data) <= SHOWN else b"...\n"
    return (cut + data[-SHOWN:]).decode("utf-8", "replace")


def _without_own(stack: str) -> str:
    """A stack without the frames of this package, which are the outermost ones."""
    hidden = (f'  File "{os.path.dirname(os.path.abspath(__file__))}', '  File "<string>"',
              "Extension modules:")
    lines = [line for line in stack.splitlines() if line and not line.startswith(hidden)]
    return "\n".join(lines) if any(line.startswith("  File") for line in lines) else ""


def _json(file: Path) -> dict[str, object]:
    try:
        value = json.loads(_bytes(file) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
