"""`pytest --pinlane-race`: each test runs in forks, once eagerly and then under other schedules.

pytest starts itself again with the drop-in runtime. It collects as always; then each test runs with
all its fixtures in a child, so that its session never calls CUDA. What the eager run reports is
what pytest reports, and a finding makes the test fail. If test modules call CUDA when they are
imported, it starts once more, and only children collect (`pytest_remote`).
"""
from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import allocations, dropin, installed, pytest_remote, report, schedules
from .errors import Unavailable
from .explore import Explored, Options, cores, explore
from .imports import is_untouched, prepare, variables
from .problems import FAILS, HANGS
from .report import Result
from .runs import RUN, Ended, Runs, redirect

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
                    help="copies of memory that is not pinned may use it late, as CUDA allows")
    group.addoption("--pinlane-operators", choices=["auto", "off"], default="auto",
                    help="off: PyTorch's operators compute nothing")
    group.addoption("--pinlane-replay", metavar="SCHEDULE",
                    help="make only this run of each test")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts pytest again with the drop-in runtime, before it loads anything."""
    asked = early_config.known_args_namespace
    if not asked.pinlane_race or RUN in os.environ:
        return
    if dropin.is_entered():
        # Before any conftest.py, so that an error here is none of the tests'.
        _checked(prepare, installed.find() is not None, asked.pinlane_operators == "auto")
        return
    _checked(_check)
    # Not earlier: pytest needs it for an error.
    capture = early_config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    dropin.enter_as_it_was_called(_major(), threads)


def _check() -> None:
    """Raises what says why pytest cannot start with the runtime."""
    if dropin.FORMER in os.environ:
        raise Unavailable("the drop-in CUDA runtime could not be preloaded")
    installed.check_python()
    _major()
    dropin.folder()


def _major() -> str:
    return installed.required("").major if installed.find() is not None else "13"


def _checked(work: Callable[..., object], *arguments: object) -> None:
    """Does something that may be impossible: then pytest says why."""
    try:
        work(*arguments)
    except (Unavailable, ValueError) as error:
        raise pytest.UsageError(f"pinlane: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "pinlane(runs=N, modes='lazy,random', strict=True): how --pinlane-race runs a "
        "test; runs=0 runs it as always, in pytest's own process",
    )
    if not config.option.pinlane_race or RUN in os.environ:
        return
    if not dropin.is_entered():
        raise pytest.UsageError("pinlane: --pinlane-race must be given to the command itself")
    plugin = Plugin(config)
    # What is registered first runs last.
    atexit.register(plugin.end, os.getpid())
    _checked(schedules.modes, config.option.pinlane_mode)
    if not is_untouched():
        raise pytest.UsageError(
            "pinlane: a conftest.py or a plugin calls CUDA when it is imported, so that forked "
            "tests cannot use it. Make each run a whole session: "
            + shlex.join(["pinlane", "race", "-m", "pytest", *_others(config)])
        )
    config.pluginmanager.register(plugin, "pinlane-race")


def _others(config: pytest.Config) -> Iterator[str]:
    """The arguments of pytest that are not this plugin's."""
    arguments = iter(map(str, config.invocation_params.args))
    for each in arguments:
        if not each.startswith("--pinlane-"):
            yield each
        elif "=" not in each and each not in ("--pinlane-race", "--pinlane-strict"):
            next(arguments, None)


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
        if pytest_remote.is_on() or self.config.option.collectonly or not session.items:
            return
        if not is_untouched():
            pytest_remote.start(self.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        if not pytest_remote.is_on():
            return None
        asked = self.config.option
        wanted = variables(asked.pinlane_strict, asked.pinlane_operators == "auto")
        pytest_remote.collect(session, wanted, lambda folder: _output(self.config, folder))
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        marked = pytest_remote.marked(item)
        if marked.get("runs") == 0 and not pytest_remote.is_on():
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

        config, item = self.item.config, self.item
        with _output(config, folder):
            if isinstance(item, pytest_remote.Test):
                item = item.collected()
            reports = runtestprotocol(item, log=False, nextitem=None)
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


@contextlib.contextmanager
def _output(config: pytest.Config, folder: Path) -> Iterator[None]:
    """Sends what a child prints to its own files, and lets pytest capture it as in the parent.

    The parent's files of captured output are shared by all children.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    capturing = capture is not None and capture.is_globally_capturing()
    if capture is not None:
        capture.stop_global_capturing()
    redirect(folder)
    if capturing:
        capture.start_global_capturing()
    try:
        yield
    finally:
        if capture is not None:
            capture.stop_global_capturing()
        redirect(folder)


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
