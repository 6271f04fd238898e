"""Test modules that call CUDA when they are imported: only runs import them.

pytest's own process must not call CUDA, because its children could not. So a child collects the
tests, and tells their names. Each run then collects its one test again, which imports the module.
"""
from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from . import dropin, schedules
from .explore import FIRST_LIMIT
from .runs import Runs

REMOTE = "PINLANE_PYTEST_REMOTE"
"""Set if runs import the test modules."""


def is_on() -> bool:
    return REMOTE in os.environ


def start(config: pytest.Config) -> NoReturn:
    """Starts pytest again, to do so."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
    print("\npinlane: test modules call CUDA when they are imported. pytest starts again, and each "
          "run imports the module of its test.")
    dropin.start_again({REMOTE: "1"})


class Test(pytest.Item):
    """A test that is not imported here."""

    location: tuple[str, int | None, str]
    marked: dict[str, Any]

    def runtest(self) -> None:
        raise AssertionError("runs do this")

    def collected(self) -> pytest.Item:
        """The test itself, in a run."""
        reports: list[pytest.CollectReport] = []
        for arguments in ([str(self.config.rootpath / self.nodeid)], None):
            for item in _collect(self.session, arguments, reports):
                if item.nodeid == self.nodeid:
                    return item
        failed = [each.longreprtext for each in reports if each.failed]
        raise LookupError("\n".join([f"{self.nodeid} cannot be collected again", *failed]))


def collect(session: pytest.Session, variables: dict[str, str],
            output: Callable[[Path], AbstractContextManager[None]]) -> None:
    """Collects in a child. `output` redirects what it prints."""

    def body(folder: Path) -> None:
        reports: list[pytest.CollectReport] = []
        with output(folder):
            items = _collect(session, None, reports)
        told = [(item.nodeid, item.name, item.location, marked(item)) for item in items]
        serialize = session.config.hook.pytest_report_to_serializable
        bad = [serialize(config=session.config, report=each) for each in reports
               if each.outcome != "passed"]
        (folder / "note").write_bytes(pickle.dumps((told, bad)))

    runs = Runs(body, variables, own_exits=True)
    try:
        ended = runs.one(schedules.EAGER, FIRST_LIMIT)
    finally:
        runs.close()
    if not ended.note:
        raise pytest.UsageError(f"pinlane: the tests cannot be collected: {ended.error}\n"
                                f"{ended.output}{ended.stack}")
    told, bad = pickle.loads(ended.note)
    session.items = []
    for nodeid, name, location, marks in told:
        item = Test.from_parent(session, name=name, nodeid=nodeid)
        item.location, item.marked = location, marks
        session.items.append(item)
    session.testscollected = len(session.items)
    hook = session.config.hook
    for data in bad:
        hook.pytest_collectreport(
            report=hook.pytest_report_from_serializable(config=session.config, data=data))
    hook.pytest_collectreport(
        report=pytest.CollectReport("", "passed", None, list(session.items)))
    hook.pytest_collection_finish(session=session)


def marked(item: pytest.Item) -> dict[str, Any]:
    """What the mark `pinlane` says of a test."""
    if isinstance(item, Test):
        return item.marked
    mark = item.get_closest_marker("pinlane")
    return dict(mark.kwargs) if mark else {}


def _collect(session: pytest.Session, arguments: list[str] | None,
             reports: list[pytest.CollectReport]) -> list[pytest.Item]:
    class Listener:
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            reports.append(report)

    listener = Listener()
    session.config.pluginmanager.register(listener)
    try:
        return list(session.perform_collect(arguments))
    finally:
        session.config.pluginmanager.unregister(listener)
