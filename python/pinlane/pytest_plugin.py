"""`pytest --pinlane-race`: each test runs in forks, once eagerly and then under other schedules.

pytest starts itself again with the drop-in runtime. It collects as always; then each test runs with
all its fixtures in a child, so that its session never calls CUDA. What the eager run reports is
what pytest reports, and a finding makes the test fail.
"""
from __future__ import annotations

import atexit
import logging
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from . import allocations, dropin, installed, report, schedules
from .errors import Unavailable
from .explore import Explored, Options, cores, explore
from .imports import is_untouched, prepare, variables
from .problems import FAILS, HANGS
from .report import Result
from .runs import Ended, Runs, redirect

ENOUGH = 77
"""The status of a run after which no other is needed: the test was skipped, or used no CUDA."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pinlane", "races of CUDA programs, without a GPU")
    group.addoption("--pinlane-race", action="store_true",
                    help="run each test on the emulated device under many schedules")
    group.addoption("--pinlane-runs", type=int, default=20, metavar="N",
                    help="how many runs of each test, the eager one included (20)")
    group.addoption("--pinlane-mode", default=",".join(schedules.MODES), metavar="LIST",
                    help="modes of the runs after the first")
    group.addoption("--pinlane-jobs", type=int, default=cores(), metavar="N",
                    help="how many runs at the same time (the cores)")
    group.addoption("--pinlane-timeout", type=float, metavar="SECONDS",
                    help="how long one run may take")
    group.addoption("--pinlane-strict", action="store_true",
                    help="uploads of memory that is not pinned may read it late, as CUDA allows")
    group.addoption("--pinlane-operators", choices=["auto", "off"], default="auto",
                    help="off: PyTorch's operators compute nothing")
    group.addoption("--pinlane-replay", metavar="SCHEDULE",
                    help="make only this run of each test")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts pytest again with the drop-in runtime, before it loads anything."""
    if not early_config.known_args_namespace.pinlane_race or dropin.is_entered():
        return
    try:
        if dropin.FORMER in os.environ:
            raise Unavailable("the drop-in CUDA runtime could not be preloaded")
        installed.check_python()
        major = installed.required("").major if installed.find() is not None else "13"
        dropin.folder()
    except Unavailable as error:
        raise pytest.UsageError(f"pinlane: {error}") from None
    # Not earlier: pytest needs it for an error.
    capture = early_config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    dropin.enter_as_it_was_called(major, threads)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "pinlane(runs=N, modes='lazy,random', strict=True): how --pinlane-race runs a "
        "test; runs=0 runs it as always, in pytest's own process",
    )
    if not config.option.pinlane_race:
        return
    if not dropin.is_entered():
        raise pytest.UsageError("pinlane: --pinlane-race must be given to the command itself")
    plugin = Plugin(config)
    # What is registered first runs last.
    atexit.register(plugin.end, os.getpid())
    try:
        schedules.modes(config.option.pinlane_mode)
        prepare(installed.find() is not None, config.option.pinlane_operators == "auto")
    except (Unavailable, ValueError) as error:
        raise pytest.UsageError(f"pinlane: {error}") from None
    config.pluginmanager.register(plugin, "pinlane-race")


class Plugin:
    """Is there only if the option asks for it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tests = self.runs = self.bad = 0
        self.session: pytest.Session | None = None

    def end(self, owner: int) -> None:
        """Ends the process of pytest at once, when all else is done.

        PyTorch's destructors take half a second, and print remarks on what its libraries leave.
        """
        if self.session is None or os.getpid() != owner:
            return
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(self.session.exitstatus))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items and not self.config.option.collectonly and not is_untouched():
            raise pytest.UsageError(
                "pinlane: a test module or conftest.py calls CUDA when it is imported. Then forked "
                "runs cannot use it. Move tensors on the device into tests or fixtures."
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        mark = item.get_closest_marker("pinlane")
        marked = dict(mark.kwargs) if mark else {}
        if marked.get("runs") == 0:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for each in self.race(item, marked):
            item.ihook.pytest_runtest_logreport(report=each)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def race(self, item: pytest.Item, marked: dict[str, Any]) -> list[pytest.TestReport]:
        """Makes the runs of a test; gives what the first one reported, with what was found."""
        asked = self.config.option
        options = Options(
            runs=marked.get("runs", asked.pinlane_runs), jobs=asked.pinlane_jobs,
            modes=schedules.modes(marked.get("modes", asked.pinlane_mode)),
            timeout=asked.pinlane_timeout, enough=ENOUGH,
        )
        strict = marked.get("strict", asked.pinlane_strict)
        runs = Runs(Body(item).run, variables(strict, asked.pinlane_operators == "auto"),
                    own_exits=True)
        try:
            explored = explore(runs, options, only=asked.pinlane_replay,
                               after_first=lambda first: allocations.prepare(first.findings))
        finally:
            runs.close()
        self.tests += 1
        self.runs += len(explored.schedules)
        return self.reports(item, explored)

    def reports(self, item: pytest.Item, explored: Explored) -> list[pytest.TestReport]:
        reports = _reports(self.config, explored.first)
        if reports:  # a test that fails by itself is reported by pytest
            problems = [each for each in explored.problems if each.kind not in (FAILS, HANGS)]
        else:
            problems = explored.problems
            reports = [pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "call")]
        if not problems:
            return reports
        self.bad += 1
        before = ["pytest", "--pinlane-race", "--pinlane-replay"]
        result = Result([item.nodeid], problems, explored.schedules, explored.seconds,
                        explored.notes, replay_by=before)
        call = next((each for each in reports if each.when == "call"), reports[-1])
        own = call.longreprtext + "\n\n" if call.failed else ""
        call.outcome = "failed"
        call.longrepr = own + report.text(result)
        return reports

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.tests:
            found = "nothing found" if not self.bad else f"problems in {self.bad} of them"
            terminalreporter.write_line(
                f"pinlane: {self.tests} tests, {self.runs} runs; {found}"
            )


class Body:
    """A run of one test, in the child."""

    def __init__(self, item: pytest.Item) -> None:
        self.item = item

    def run(self, folder: Path) -> None:
        from _pytest.runner import runtestprotocol

        config = self.item.config
        capture = config.pluginmanager.getplugin("capturemanager")
        # The parent's files of captured output are shared by all children.
        capturing = capture is not None and capture.is_globally_capturing()
        if capture is not None:
            capture.stop_global_capturing()
        redirect(folder)
        if capturing:
            capture.start_global_capturing()
        reports = runtestprotocol(self.item, log=False, nextitem=None)
        if capture is not None:
            capture.stop_global_capturing()
        redirect(folder)
        note = [config.hook.pytest_report_to_serializable(config=config, report=each)
                for each in reports]
        (folder / "note").write_bytes(pickle.dumps(note))
        failed = [each for each in reports if each.failed]
        for each in failed:
            print(each.longreprtext)
        if failed:
            sys.exit(1)
        skipped = any(each.skipped for each in reports)
        sys.exit(ENOUGH if skipped or not _uses_cuda() else 0)


def _uses_cuda() -> bool:
    """Whether this run has used CUDA; yes, if that cannot be known."""
    torch = sys.modules.get("torch")
    return torch is None or bool(torch.cuda.is_initialized())


def _reports(config: pytest.Config, ended: Ended) -> list[pytest.TestReport]:
    """What a run reported; nothing if it crashed."""
    if not ended.note:
        return []
    return [config.hook.pytest_report_from_serializable(config=config, data=data)
            for data in pickle.loads(ended.note)]
