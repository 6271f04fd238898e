"""Findings as the drop-in runtime reports them: a JSON object a line (PINLANE_CUDART_REPORT)."""
from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Frame:
    """A line of a program, and the function around it."""

    file: str
    line: int
    function: str | None = None

    @property
    def is_replay(self) -> bool:
        """Whether it is PyTorch's, where a CUDA graph is replayed."""
        return self.function == "replay" and self.file.endswith("torch/cuda/graphs.py")

    @classmethod
    def of(cls, value: dict[str, Any]) -> Frame:
        return cls(value["file"], value["line"], value.get("function"))


@dataclass(frozen=True)
class Site(Frame):
    """Where a call was made: the program's own innermost line."""

    callers: tuple[Frame, ...] = ()
    """The frames of Python from there inwards and outwards, innermost first."""
    in_worker: bool = False
    """A thread without Python made the call; the lines are those of the main thread."""

    @classmethod
    def of(cls, value: dict[str, Any] | None) -> Site | None:  # type: ignore[override]
        if value is None:
            return None
        callers = tuple(Frame.of(caller) for caller in value.get("callers") or ())
        worker = value.get("thread") == "worker"
        return cls(value["file"], value["line"], value.get("function"), callers, worker)

    @property
    def library(self) -> Frame | None:
        """The library's line that the program's line led to, if it is another. PyTorch's own line
        in `replay()` says no more than that of the program."""
        frame = next((frame for frame in self.callers if not frame.is_replay), None)
        if frame and (frame.file, frame.line) != (self.file, self.line):
            return frame
        return None


@dataclass(frozen=True)
class Use:
    """One of the two operations of a race."""

    operation: str
    access: str
    agent: str
    position: int
    site: Site | None
    start: int
    bytes: int
    label: str | None = None
    stream: str | None = None
    """The handle of its stream, as `torch.cuda.Stream.cuda_stream` in hexadecimal."""
    device: int | None = None

    @classmethod
    def of(cls, value: dict[str, Any]) -> Use:
        return cls(
            value["operation"], value["access"], value["agent"], value["position"],
            Site.of(value.get("site")), int(value["start"], 16), value["bytes"],
            value.get("label"), value.get("stream"), value.get("device"),
        )

    @property
    def is_host(self) -> bool:
        return self.operation.startswith("host ")


@dataclass(frozen=True)
class Memory:
    """The allocation that a race is about."""

    kind: str
    start: int
    bytes: int
    generation: int
    site: Site | None

    @classmethod
    def of(cls, value: dict[str, Any]) -> Memory:
        return cls(
            value["kind"], int(value["start"], 16), value["bytes"], value["generation"],
            Site.of(value.get("site")),
        )

    @property
    def is_on_device(self) -> bool:
        return self.kind.startswith("device")


@dataclass(frozen=True)
class Owner:
    """A tensor's memory, as PyTorch's allocator had it."""

    bytes: int
    made: Frame | None
    freed: Frame | None


@dataclass(frozen=True)
class Race:
    first: Use
    second: Use
    memory: Memory
    start: int
    bytes: int
    seen: tuple[str, ...]
    missing: str

    @classmethod
    def of(cls, value: dict[str, Any] | None) -> Race | None:
        if value is None:
            return None
        return cls(
            Use.of(value["first"]), Use.of(value["second"]), Memory.of(value["memory"]),
            int(value["start"], 16), value["bytes"], tuple(value["seen"]), value["missing"],
        )


@dataclass(frozen=True)
class Finding:
    """One observed misuse in one run."""

    kind: str
    message: str
    schedule: str
    race: Race | None = None
    site: Site | None = None
    label: str | None = None
    """The operator and its tensors that the call was made for, if there is no race."""
    owners: tuple[Owner, ...] = ()
    """The tensors that had the memory of the race, one after the other."""
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Finding:
        race, site = Race.of(value.get("race")), Site.of(value.get("site"))
        replay = value.get("replay", "")
        return cls(value["kind"], value["message"], replay, race, site, value.get("label"),
                   raw=value)


def read(file: Path) -> list[Finding]:
    """The findings in a report. The last line of a process that was killed may be cut."""
    found = []
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            found.append(Finding.of(json.loads(line)))
        except (ValueError, KeyError, TypeError):
            continue
    return found
