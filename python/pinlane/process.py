"""`pinlane race`: in a process with the drop-in runtime, imports once and forks for each run."""
from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import allocations, dropin, installed, report
from .errors import Unavailable
from .explore import Explored, Options, explore
from .findings import Finding
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



def variables(strict: bool, stop: bool) -> dict[str, str]:
    """The drop-in runtime's variables in each run. `stop`: at kernels without a stand-in."""
    wanted = {"PINLANE_CUDART_PAGEABLE": "cuda" if strict else "staged"}
    if stop:
        wanted["PINLANE_CUDART_KERNELS"] = "stop"
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def prepare(torch: bool, operators: bool, imports: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Imports what all runs need. Gives the versions of what was found."""
    versions: dict[str, str | None] = {}
    if torch:
        versions.update(_import_torch(operators))
    _import(imports)
    if not dropin.is_entered():
        raise Unavailable(
            f"the process calls another CUDA runtime than pinlane's: {dropin.runtime()}. Remove it "
            "from LD_PRELOAD; or it is linked into a library that the program preloads."
        )
    if not is_untouched():
        raise Unavailable(
            "the imports have called CUDA already, so that forked runs cannot use it. A start-up "
            "file of Python (sitecustomize, a .pth file) or a module of --import does so."
        )
    gc.collect()
    gc.freeze()
    return versions


def _import_torch(operators: bool) -> dict[str, str | None]:
    import torch  # type: ignore[import-not-found]

    # The first question after the number of devices would build the device in this process; many
    # libraries ask it when they are imported.
    torch._C._cuda_getDeviceCount = dropin.devices
    allocations.record()
    count = None
    if operators:
        count = _operators()
    with contextlib.suppress(Exception):
        importlib.import_module("torch._meta_registrations")
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "operators": count}


def _operators() -> str | None:
    """Replaces PyTorch's operators; says how many. None if this package has no operators."""
    try:
        from . import operators  # type: ignore[attr-defined]
    except ImportError:
        return None
    try:
        return str(operators.load().count)
    except Unavailable as error:
        raise Unavailable(
            f"{error} Without operators (--operators=off), programs that only copy can be tested."
        ) from None


def _import(names: tuple[str, ...] | list[str]) -> None:
    """Imports modules; one that fails is left to the program."""
    for name in names:
        if name in sys.modules:
            continue
        nothing = io.StringIO()
        with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            with contextlib.suppress(BaseException), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def is_untouched() -> bool:
    """Whether this process has not called CUDA: whether its children can."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if dropin.answers() else 1)
    return os.waitpid(pid, 0)[1] == 0


def _libraries(modules: list[str], first: Program) -> Iterator[str]:
    """The modules of a run that are not the program's own: those of libraries."""
    for name in modules:
        if name in sys.modules or name == "__main__":
            continue
        if name.partition(".")[0] not in sys.modules and not _is_library(name.partition(".")[0]):
            continue
        yield name


def _is_library(name: str) -> bool:
    """Whether a module of that name lies in the standard library or in site-packages."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None or spec.origin is None:
        return False
    parts = ("/site-packages/", "/dist-packages/", "/lib/python")
    return spec.origin in ("built-in", "frozen") or any(part in spec.origin for part in parts)


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

    def prepare_others(first: Ended) -> None:
        if NO_IMPORTS in os.environ:
            return
        allocations.prepare(first.findings)
        _import(list(_libraries(first.modules, request.program)))
        if not is_untouched():
            _again_without_imports()
        gc.collect()
        gc.freeze()

    explored = explore(
        runs, options, live=request.json != "-", watch=progress.ended, after_first=prepare_others
    )
    progress.close()
    if not request.strict and explored.first.how == "exit 0":
        notes += _staged(runs, explored, options)
    return explored


def _again_without_imports() -> None:
    """Starts the whole command again: importing the program's libraries has called CUDA."""
    os.environ[NO_IMPORTS] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, sys.orig_argv)


def _staged(runs: Runs, explored: Explored, options: Options) -> list[str]:
    """Whether it mattered that uploads of pageable memory read their source at the call."""
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
    return [f"uploads of memory that is not pinned read it during the call here, as on today's "
            f"GPUs. CUDA does not promise that; --strict reports where it matters: "
            f"{', '.join(sorted(set(places)))}"]


def _is_pageable(finding: Finding) -> bool:
    if finding.race is None:
        return finding.kind in ("SourceChanged", "FreedInFlight")
    return finding.race.memory.kind == "pageable memory"


def _place(finding: Finding) -> str:
    site = finding.race.first.site if finding.race else finding.site
    from . import source
    return f"{source.short(site.file)}:{site.line}" if site else "an upload without a line"


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
