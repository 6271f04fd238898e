"""Problems: what many runs have found, each once.

Findings of the same kind between the same two lines are one problem, whatever the schedule.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from .findings import Finding, Site, Use
from .runs import Ended

EXITS_DIFFER = "ExitsDiffer"
FAILS = "Fails"
HANGS = "Hangs"


@dataclass
class Problem:
    kind: str
    key: tuple[str, ...]
    finding: Finding | None
    """The first one. None for what is about the ends of runs."""
    ended: Ended
    """The run that showed it first."""
    schedules: list[str] = field(default_factory=list)
    smallest: str = ""
    """The schedule with the fewest decisions that shows it."""
    decisions: list[str] = field(default_factory=list)
    """That schedule, in words."""
    early_bytes: list[str] = field(default_factory=list)
    """The schedules in which the copy read what the host wrote too early."""
    ends: dict[str, list[str]] = field(default_factory=dict)
    """For `ExitsDiffer`: the schedules of each end."""


class Problems:
    """Gathers problems from runs."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[str, ...], Problem] = {}
        self.ends: dict[str, list[Ended]] = {}
        self.runs = 0

    def add(self, ended: Ended) -> None:
        self.runs += 1
        self.ends.setdefault(end(ended), []).append(ended)
        for finding in ended.findings:
            problem_key = key(finding)
            problem = self.by_key.get(problem_key)
            if problem is None:
                problem = Problem(finding.kind, problem_key, finding, ended)
                self.by_key[problem_key] = problem
            if ended.schedule not in problem.schedules:
                problem.schedules.append(ended.schedule)

    def list(self) -> list[Problem]:
        """All problems. Those that most schedules show come first."""
        found = self._without_echoes()
        found.sort(key=lambda problem: -len(problem.schedules))
        found += self._of_ends()
        for problem in found:
            problem.smallest = problem.smallest or problem.schedules[0]
        return found

    def _without_echoes(self) -> list[Problem]:
        """The problems, but for sources that changed because of a race which is one of them."""
        found = []
        races = [problem for problem in self.by_key.values()
                 if problem.kind in ("Race", "SourceChanged")]
        for problem in self.by_key.values():
            cause = next((race for race in races if _is_echo(problem, race)), None)
            if cause is None:
                found.append(problem)
            else:
                cause.early_bytes = problem.schedules
        return found

    def is_found(self) -> bool:
        return bool(self.by_key) or any(name != "exit 0" for name in self.ends)

    def _of_ends(self) -> list[Problem]:
        bad = [name for name in self.ends if name != "exit 0"]
        if not bad:
            return []
        first = self.ends[bad[0]][0]
        schedules = [run.schedule for name in bad for run in self.ends[name]]
        names = {name: [run.schedule for run in runs] for name, runs in self.ends.items()}
        hangs = all(run.how == "hangs" for name in bad for run in self.ends[name])
        kind = EXITS_DIFFER if len(self.ends) > 1 else HANGS if hangs else FAILS
        return [Problem(kind, (kind, end(first)), None, first, schedules, ends=names)]


def _is_echo(problem: Problem, cause: Problem) -> bool:
    """Whether a copy read what was written too early, and the race of that write is reported."""
    finding, race = problem.finding, cause.finding and cause.finding.race
    if problem.kind != "SourceChanged" or finding is None or finding.race or race is None:
        return False
    is_overwritten = race.second.access == "write" and race.second.is_host
    places = {_place(finding.site), _place(race.first.site)} - {""}
    return is_overwritten and race.first.access == "read" and len(places) <= 1


def end(ended: Ended) -> str:
    """How a run ended, with its exception: the same text for the same end."""
    if not ended.error:
        return ended.how
    error = re.sub(r"0x[0-9a-f]+", "0x...", ended.error)
    return f"{ended.how}, {error[:200]}"


def key(finding: Finding) -> tuple[str, ...]:
    """What findings of one problem have in common."""
    race = finding.race
    if race is None:
        return finding.kind, _place(finding.site) or _plain(finding.message)
    return finding.kind, race.memory.kind, _use(race.first), _use(race.second)


def _use(use: Use) -> str:
    return _place(use.site) or f"{use.label or use.operation} of {use.agent.split(' of ')[0]}"


def _place(site: Site | None) -> str:
    return f"{site.file}:{site.line}" if site else ""


def _plain(message: str) -> str:
    """A message without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+|\d+", "N", message.splitlines()[0])
