"""What PyTorch's caching allocator did with the memory of a race.

It reuses the memory of a tensor that is gone without a call of CUDA. So the runtime cannot know
that two racing operations meant different tensors, but the allocator's own history does.
"""
from __future__ import annotations

import bisect
import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from . import source
from .findings import Finding, Frame, Owner, read

KEPT = 200_000
"""The newest events that are kept."""


def record() -> None:
    """Has this process and its children switch the history on when they begin to use CUDA."""
    import torch  # type: ignore[import-not-found]

    def switch_on() -> None:
        with contextlib.suppress(Exception):  # a private function, since torch 2.1
            torch.cuda.memory._record_memory_history(
                enabled="all", context="all", stacks="python", max_entries=KEPT
            )

    with contextlib.suppress(Exception):
        torch.cuda._lazy_call(switch_on)


def prepare(found: list[Finding]) -> None:
    """After a run with such races, imports in the parent what reading the history imports.

    That takes a second, which every other run would spend, too.
    """
    if "torch" in sys.modules and any(_is_about_device(finding) for finding in found):
        with contextlib.suppress(Exception):
            importlib.import_module("torch._inductor.codecache")


def _is_about_device(finding: Finding) -> bool:
    return finding.race is not None and finding.race.memory.is_on_device


def write(report: Path, file: Path) -> None:
    """Writes who had the memory of the races of this run, if it has such races."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    races = [finding.race for finding in read(report) if _is_about_device(finding)]
    starts = sorted({race.start for race in races if race})
    if not starts:
        return
    owners: dict[str, list[dict[str, Any]]] = {}
    with contextlib.suppress(Exception):
        for trace in torch.cuda.memory._snapshot()["device_traces"]:
            for event in trace:
                _note(event, starts, owners)
    file.write_text(json.dumps(owners))


def _note(event: dict[str, Any], starts: list[int], owners: dict[str, list[Any]]) -> None:
    """Notes an event for each racing address that its memory contains."""
    if event["action"] not in ("alloc", "free_requested"):
        return
    first = bisect.bisect_left(starts, event["addr"])
    for start in starts[first : bisect.bisect_left(starts, event["addr"] + event["size"])]:
        known = owners.setdefault(hex(start), [])
        site = _site(event["frames"])
        if event["action"] == "alloc":
            known.append({"bytes": event["size"], "made": site, "freed": None})
        elif known:
            known[-1]["freed"] = site


def _site(frames: list[dict[str, Any]]) -> list[Any] | None:
    """The program's own innermost line."""
    own = [frame for frame in frames if not source.is_library(frame["filename"])]
    chosen = next(iter(own or frames), None)
    return chosen and [chosen["filename"], chosen["line"], chosen["name"]]


def owners(file: Path) -> dict[int, tuple[Owner, ...]]:
    """What `write` has written: the owners of each address, the oldest first."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}

    def frame(of: list[Any] | None) -> Frame | None:
        return None if of is None else Frame(*of)

    return {
        int(start, 16): tuple(
            Owner(owner["bytes"], frame(owner["made"]), frame(owner["freed"])) for owner in listed
        )
        for start, listed in value.items()
    }
