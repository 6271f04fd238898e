"""The result of a command, as text for people and as JSON for programs."""
from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass, field
from typing import Any

from . import schedules, source, words
from .findings import Frame, Site, Use
from .problems import Problem

VERSION = 1
"""The version of the JSON's schema (docs/guide/pytorch.md). New members do not change it."""
WIDTH = 96


@dataclass
class Result:
    """What a command has found."""

    command: list[str]
    """The program as the user names it: `train.py --epochs 1`, `-m package`."""
    problems: list[Problem]
    schedules: list[str]
    """The runs that were made, to look for problems."""
    seconds: float
    notes: list[str] = field(default_factory=list)
    """What a reader of the result must know."""
    versions: dict[str, str | None] = field(default_factory=dict)
    has_torch: bool = True
    """Whether the program uses PyTorch: else fixes are calls of CUDA."""
    replay_by: list[str] = field(default_factory=lambda: ["pinlane", "race", "--replay"])
    """The words of a command that repeats a run, before the schedule."""

    @property
    def is_clean(self) -> bool:
        return not self.problems

    def replay(self, schedule: str) -> str:
        """The command that repeats a run; the variable that does, if there is no command."""
        if not self.command:
            return f"PINLANE_REPLAY={schedule}"
        return shlex.join([*self.replay_by, schedule, *self.command])


# ---- text ---------------------------------------------------------------------------------------


def text(result: Result) -> str:
    """The result for people."""
    parts = [problem_text(result, number, problem)
             for number, problem in enumerate(result.problems, 1)]
    return "\n".join([*parts, summary(result)])


def summary(result: Result) -> str:
    """The last lines: what was run, and what came of it."""
    count = len(result.schedules)
    listed = ", ".join(f"{mode} {number}" for mode, number in schedules.count(result.schedules))
    found = len(result.problems)
    outcome = "nothing found" if not found else f"{found} problem{'s' if found > 1 else ''} found"
    runs = "1 run" if count == 1 else f"{count} runs"
    lines = [f"pinlane: {outcome} in {runs} of {shlex.join(result.command)}, "
             f"{result.seconds:.1f} s", f"  {listed}"]
    for note in result.notes:
        lines += wrapped(note, "  note: ", "        ")
    return "\n".join(lines) + "\n"


def problem_text(result: Result, number: int, problem: Problem) -> str:
    """One problem for people."""
    told = words.tell(problem, result.has_torch)
    shown = f"{problem.kind}, {len(problem.schedules)} of {len(result.schedules)} runs"
    lines = wrapped(f"{number}. {told.title}", "", "   ")
    lines.append(f"   ({shown})")
    for step in told.steps:
        lines += _step_lines(step)
    if told.why:
        lines += wrapped(told.why, "   why:  ", "         ")
    for at, fix in enumerate(told.fixes):
        lines += wrapped(fix, "   fix:  " if at == 0 else "         ", "         ")
    for detail in told.details:
        lines += [f"   {detail}"] if detail[:1] == " " else wrapped(detail, "   ", "     ")
    if problem.decisions:
        lines.append("   smallest schedule:")
        lines += [f"     {decision}" for decision in problem.decisions[:8]]
    lines.append(f"   replay: {result.replay(problem.smallest)}")
    return "\n".join(lines) + "\n"


def _step_lines(step: words.Step) -> list[str]:
    lines = [f"   {place(step.site)}  {step.code}".rstrip()] if step.site else []
    does = step.does if step.label is None else f"{step.does}: {step.label}"
    lines += wrapped(does, "     -> ", "        ")
    library = step.site.library if step.site else None
    if library:
        lines.append(f"        in {place(library)}")
    if step.site and step.site.in_worker:
        lines.append("        by a thread of a library, while the main thread was in this line")
    return lines


def place(frame: Frame | None) -> str:
    return f"{source.short(frame.file)}:{frame.line}" if frame else ""


def wrapped(text: str, first: str, other: str) -> list[str]:
    """Lines of a text, with what each begins with."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=other, break_long_words=False,
        break_on_hyphens=False,
    )


# ---- JSON ---------------------------------------------------------------------------------------


def to_json(result: Result) -> dict[str, Any]:
    """The result for programs: docs/guide/pytorch.md describes the members."""
    return {
        "schema": VERSION,
        "command": result.command,
        "versions": result.versions,
        "runs": len(result.schedules),
        "schedules": result.schedules,
        "seconds": round(result.seconds, 3),
        "clean": result.is_clean,
        "notes": result.notes,
        "problems": [_problem(result, problem) for problem in result.problems],
    }


def _problem(result: Result, problem: Problem) -> dict[str, Any]:
    told = words.tell(problem, result.has_torch)
    return {
        "kind": problem.kind,
        "title": told.title,
        "why": told.why,
        "fixes": list(told.fixes),
        "steps": [
            {"does": step.does, "site": site(step.site), "code": step.code, "label": step.label,
             **_on(step.use)}
            for step in told.steps
        ],
        "details": list(told.details),
        "schedules": problem.schedules,
        "smallest": problem.smallest,
        "decisions": problem.decisions,
        "replay": result.replay(problem.smallest),
        "ends": problem.ends,
        "finding": problem.finding.raw if problem.finding else None,
        "output": problem.ended.output if problem.finding is None else None,
    }


def _on(use: Use | None) -> dict[str, Any]:
    """Who does what a step says, as members of it."""
    if use is None:
        return {"agent": None, "stream": None, "device": None}
    return {"agent": use.agent, "stream": use.stream, "device": use.device}


def site(of: Site | None) -> dict[str, Any] | None:
    if of is None:
        return None
    callers = [{"file": frame.file, "line": frame.line, "function": frame.function}
               for frame in of.callers]
    return {"file": of.file, "line": of.line, "function": of.function, "callers": callers}
