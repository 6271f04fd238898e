"""Schedules: when the emulated device runs what it was given (docs/semantics.md).

A schedule is a text such as `3:lazy`, a seed and a mode, or `3:A#1`, a seed and what is done
otherwise than in an eager run. `PINLANE_REPLAY` takes it.
"""
from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

EAGER = "0:eager"
MODES = ("lazy", "random", "chunked", "pct:2", "pct:3")


def modes(text: str) -> tuple[str, ...]:
    """The modes of a list with commas; a ValueError names the one that is none."""
    listed = tuple(part.strip() for part in text.split(",") if part.strip())
    for mode in listed:
        if not re.fullmatch(r"eager|lazy|random|chunked|pct:[1-9]\d*", mode):
            raise ValueError(f"{mode!r} is no mode: eager, lazy, random, chunked, pct:2, pct:3 ...")
    if not listed:
        raise ValueError("no mode is named")
    return listed


def others(modes: tuple[str, ...]) -> Iterator[str]:
    """The schedules after the first, without end: the modes take turns."""
    for seed in itertools.count(1):
        for mode in modes:
            yield f"{seed}:{mode}"


def mode(schedule: str) -> str:
    """The mode of a schedule, or `decisions`."""
    text = schedule.partition(":")[2]
    return text if re.fullmatch(r"[a-z]+(:\d+)?", text) else "decisions"


def count(schedules: list[str]) -> list[tuple[str, int]]:
    """How many schedules there are of each mode, in the usual order of modes."""
    counts = Counter(mode(schedule) for schedule in schedules)
    usual = {name: at for at, name in enumerate(("eager", *MODES))}
    return sorted(counts.items(), key=lambda item: (usual.get(item[0], len(usual)), item[0]))
