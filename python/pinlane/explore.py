"""Looks for problems: one eager run, then runs under other schedules."""
from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from . import schedules, shrink
from .problems import EXITS_DIFFER, Problem, Problems, end, key
from .runs import Ended, Runs

FIRST_LIMIT = 600.0
"""How many seconds the first run may take, unless --timeout says."""
HANGS = 3
"""After so many runs that hang no more are made: each takes as long as it may."""
SHRINKING = 40
"""The most runs that make one problem's schedule smaller."""


def cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass
class Options:
    """How to look."""

    runs: int = 50
    time: float | None = None
    """Seconds; then as many runs as they allow."""
    modes: tuple[str, ...] = schedules.MODES
    jobs: int = field(default_factory=cores)
    timeout: float | None = None
    fail_fast: bool = False
    enough: int | None = None
    """The status of a run that is right and needs no others."""


@dataclass
class Explored:
    """What came of it."""

    problems: list[Problem]
    schedules: list[str]
    first: Ended
    notes: list[str]
    seconds: float


Watch = Callable[[Ended, int], None]
"""Called after each run, with the number of problems so far."""


def explore(
    runs: Runs, options: Options, *, live: bool = False, watch: Watch = lambda *_: None,
    after_first: Callable[[Ended], None] = lambda _: None, only: str | None = None,
) -> Explored:
    """Makes the runs. `after_first` may prepare the parent for the others. `only`: one schedule."""
    began = time.monotonic()
    schedule = only or schedules.EAGER
    problems, made, notes = Problems(), [schedule], []
    limit = options.timeout or FIRST_LIMIT
    first = runs.one(schedule, limit, live=live, modules=True)
    is_enough = first.how == f"exit {options.enough}"
    if is_enough:
        first.how = "exit 0"
    problems.add(first)
    watch(first, len(problems.list()))

    def done() -> Explored:
        return Explored(problems.list(), made, first, notes, time.monotonic() - began)

    if only or (is_enough and not first.findings):
        return done()
    if first.how != "exit 0" and not first.findings:
        notes.append("the first run failed by itself; no other schedule was run")
        return done()
    if options.fail_fast and problems.is_found():
        return done()
    after_first(first)
    limit = options.timeout or max(20.0, 20 * first.seconds)

    def each(ended: Ended) -> bool:
        if ended.how == f"exit {options.enough}":
            ended.how = "exit 0"
        made.append(ended.schedule)
        problems.add(ended)
        watch(ended, len(problems.list()))
        hangs.extend([ended.schedule] if ended.how == "hangs" else [])
        if len(hangs) == HANGS:
            notes.append(f"{HANGS} runs hang; no more were made")
            return False
        return not (options.fail_fast and problems.is_found())

    hangs: list[str] = []
    try:
        runs.all(_others(options, began), limit, options.jobs, each)
    except KeyboardInterrupt:
        notes.append("interrupted")
        return done()
    explored = done()
    for problem in explored.problems:
        if schedules.EAGER not in problem.schedules:
            _shrink(runs, problem, limit)
    return explored


def _others(options: Options, began: float) -> Iterator[str]:
    every = schedules.others(options.modes)
    if options.time is None:
        yield from itertools.islice(every, max(0, options.runs - 1))
        return
    while time.monotonic() < began + options.time:
        yield next(every)


def _shrink(runs: Runs, problem: Problem, limit: float) -> None:
    """Finds the smallest schedule of a problem that an eager run does not show."""
    left = SHRINKING
    last: Ended | None = None

    def fails(schedule: str) -> bool:
        nonlocal left, last
        left -= 1
        if left < 0:
            return False
        ended = runs.one(schedule, limit, record=True)
        if not _shows(ended, problem):
            return False
        last = ended
        return True

    schedule = problem.ended.schedule
    if problem.ended.how == "hangs" or not fails(schedule):
        return
    assert last is not None
    if last.record and fails(last.record[0]):
        problem.smallest = shrink.smallest(last.record[0], fails)
        problem.decisions = last.record[1:]


def _shows(ended: Ended, problem: Problem) -> bool:
    if problem.kind == EXITS_DIFFER:
        return end(ended) == problem.key[1]
    return any(key(finding) == problem.key for finding in ended.findings)
