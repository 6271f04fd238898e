"""`pinlane race`: in a process with the drop-in runtime, imports once and forks for each run."""
from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import report, source
from .explore import Explored, Options, explore
from .findings import Finding
from .imports import prepare, prepare_others, variables
from .problems import Problems
from .program import Program
from .progress import Progress
from .report import Result
from .runs import Ended, Runs

NO_IMPORTS = "PINLANE_RACE_NO_IMPORTS"
"""Set when an import of the program's libraries calls CUDA: then each run imports them."""


@dataclass
class Request:
    """What the command line asks for."""

    program: Program
    options: Options = field(default_factory=Options)
    replay: str | None = None
    strict: bool = False
    operators: bool = True
    torch: bool = True
    imports: tuple[str, ...] = ()
    json: str | None = None
    html: str | None = None
    given: list[str] = field(default_factory=list)
    """The options of the command that change what a run does."""

    @property
    def command(self) -> list[str]:
        return (["-m"] if self.program.is_module else []) + self.program.arguments


def race(request: Request) -> int:
    """Makes the runs and prints the result. Gives the status of the command."""
    began = time.monotonic()
    imports = request.imports if NO_IMPORTS not in os.environ else ()
    versions = prepare(request.torch, request.operators, imports)
    warnings.filterwarnings("ignore", message=".*is multi-threaded, use of fork")
    has_operators = versions.get("operators") is not None
    runs = Runs(_body(request.program), variables(request.strict, has_operators))
    try:
        notes: list[str] = []
        if request.replay is not None:
            explored = explore(runs, request.options, live=True, only=request.replay)
        else:
            explored = _explore(runs, request, notes)
        notes += explored.notes
        seconds = time.monotonic() - began
    finally:
        runs.close()
    result = Result(
        request.command, explored.problems, explored.schedules, seconds, notes, versions,
        request.torch, ["pinlane", "race", *request.given, "--replay"],
    )
    _write(request, result)
    return 0 if result.is_clean else 1


def _body(program: Program) -> Callable[[Path], None]:
    """What a run does."""

    def run(folder: Path) -> None:
        program.run(folder)
        operators = sys.modules.get("pinlane.operators")
        if operators is not None:
            operators.load().raise_failure()

    return run


def _explore(runs: Runs, request: Request, notes: list[str]) -> Explored:
    options = request.options
    progress = Progress(None if options.time else options.runs)

    def after_first(first: Ended) -> None:
        if NO_IMPORTS not in os.environ and not prepare_others(first.modules, first.findings):
            runs.close()
            _again_without_imports()

    is_shown = request.json != "-" and NO_IMPORTS not in os.environ
    explored = explore(
        runs, options, live=is_shown, watch=progress.ended, after_first=after_first
    )
    progress.close()
    if not request.strict and explored.first.how == "exit 0" and len(explored.schedules) > 1:
        notes += _staged(runs, explored, options)
    return explored


def _again_without_imports() -> None:
    """Starts the whole command again: importing the program's libraries has called CUDA."""
    os.environ[NO_IMPORTS] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)


def _staged(runs: Runs, explored: Explored, options: Options) -> list[str]:
    """Whether it mattered that copies of pageable memory are done with it when they return."""
    variables = runs.variables
    runs.variables = dict(variables, PINLANE_CUDART_PAGEABLE="cuda")
    ended = runs.one("0:eager", options.timeout or max(20.0, 20 * explored.first.seconds))
    runs.variables = variables
    known = {problem.key for problem in explored.problems}
    problems = Problems()
    problems.add(ended)
    places = [_place(problem.finding) for problem in problems.list()
              if problem.finding and problem.key not in known and _is_pageable(problem.finding)]
    if not places:
        return []
    return [f"copies of memory that is not pinned are done with it when the call returns here, as "
            f"on today's GPUs. CUDA does not promise that; --strict reports where it matters: "
            f"{', '.join(sorted(set(places)))}"]


def _is_pageable(finding: Finding) -> bool:
    if finding.race is None:
        return finding.kind in ("SourceChanged", "FreedInFlight")
    return finding.race.memory.kind == "pageable memory"


def _place(finding: Finding) -> str:
    site = finding.race.first.site if finding.race else finding.site
    return f"{source.short(site.file)}:{site.line}" if site else "a copy without a line"


def _write(request: Request, result: Result) -> None:
    text = json.dumps(report.to_json(result), indent=2) + "\n"
    if request.json == "-":
        sys.stdout.write(text)
    else:
        if request.json:
            Path(request.json).write_text(text, encoding="utf-8")
        sys.stdout.write(report.text(result))
    if request.html:
        from . import html

        Path(request.html).write_text(html.page(result), encoding="utf-8")
    sys.stdout.flush()
