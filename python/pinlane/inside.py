"""`with pinlane.race():`, for a block of code in a process that has the drop-in runtime."""
from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from . import dropin, report
from .errors import Unavailable
from .findings import read
from .problems import Problem, Problems
from .runs import RUN, Ended

REPORT = "PINLANE_CUDART_REPORT"


class RacesFound(AssertionError):
    """The block has races; the text is the report."""


class race:
    """Gathers what is found while a block of code runs.

    Under `pinlane race` and `pytest --pinlane-race` the block runs in every schedule, and the
    command reports what was found. Elsewhere it runs once, in the schedule of `PINLANE_REPLAY`, and
    raises `RacesFound` at its end; `raises=False` leaves that to `problems` and `text`. The process
    must have the drop-in runtime, which cannot be loaded later: `env $(pinlane env) jupyter lab`.
    """

    def __init__(self, *, raises: bool = True) -> None:
        self.raises = raises and RUN not in os.environ
        self.problems: list[Problem] = []
        self._known = 0

    def __enter__(self) -> race:
        if not dropin.is_entered():
            raise Unavailable(
                "this process has no emulated device, which must be there from its start. Run the "
                "script by `pinlane race script.py`, the tests by `pytest --pinlane-race`, and a "
                "notebook's server by `env $(pinlane env) jupyter lab`."
            )
        if RUN not in os.environ:
            _prepare()
        self._known = len(read(Path(os.environ[REPORT])))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dropin.answers()  # a call reports what was found since the last one
        found = read(Path(os.environ[REPORT]))[self._known :]
        schedule = found[0].schedule if found else "0:eager"
        gathered = Problems()
        gathered.add(Ended(schedule, "exit 0", 0.0, found))
        self.problems = gathered.list()
        if self.problems and self.raises and kind is None:
            raise RacesFound(self.text)

    @property
    def text(self) -> str:
        """The report; empty if nothing was found."""
        result = report.Result([], self.problems, ["0:eager"], 0.0)
        parts = [report.problem_text(result, number, problem)
                 for number, problem in enumerate(self.problems, 1)]
        return "\n".join(parts)


def _remove(folder: str, owner: int) -> None:
    """Removes the folder, unless this is a forked child."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare() -> None:
    """Gives a process that no command has prepared a file for its findings, and operators."""
    if REPORT not in os.environ:
        folder = tempfile.mkdtemp(prefix="pinlane-")
        atexit.register(_remove, folder, os.getpid())
        os.environ[REPORT] = os.path.join(folder, "report")
        os.environ.setdefault("PINLANE_CUDART_QUIET", "1")
    if "torch" in sys.modules:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("pinlane.operators").load()
