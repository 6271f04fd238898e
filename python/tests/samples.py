"""Reports as the drop-in runtime writes them, and a program to which their lines belong."""
from __future__ import annotations

import json
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

from pinlane.findings import Finding
from pinlane.problems import Problem, key
from pinlane.runs import Ended

PROGRAM = """\
import torch
side = torch.cuda.Stream()
x = torch.ones(4, pin_memory=True)
y = x.to("cuda", non_blocking=True)
x.zero_()
with torch.cuda.stream(side):
    z = y * 2
y.add_(1)
host = z.to("cpu", non_blocking=True)
print(host[0])
del y
"""


def folder(test: unittest.TestCase) -> Path:
    """A folder that is removed after the test: by this process, not by its forked children."""
    path = tempfile.mkdtemp()
    test.addCleanup(shutil.rmtree, path)
    return Path(path)


class Script:
    """A program's file in a folder of its own."""

    def __init__(self, test: unittest.TestCase, text: str = PROGRAM) -> None:
        self.folder = folder(test)
        self.file = self.folder / "train.py"
        self.file.write_text(text, encoding="utf-8")

    def site(self, line: int, library: str | None = None) -> dict[str, Any]:
        callers = [{"file": str(self.file), "line": line, "function": "<module>"}]
        if library:
            callers.insert(0, {"file": library, "line": 7, "function": "inner"})
        return {"file": str(self.file), "line": line, "function": "<module>", "callers": callers}


def use(operation: str, access: str, agent: str, site: dict[str, Any] | None,
        label: str | None = None) -> dict[str, Any]:
    """One side of a race."""
    made = {"call": None if operation.startswith("host") else operation, "operation": operation,
            "access": access, "agent": agent, "position": 1, "site": site,
            "stream": None if agent == "host" else "0x0", "device": None if agent == "host" else 0,
            "start": "0x00007f0000001000", "bytes": 16}
    return made if label is None else {**made, "label": label}


def race(first: dict[str, Any], second: dict[str, Any], memory: str = "page-locked memory",
         kind: str = "Race", replay: str = "0:eager") -> Finding:
    """A finding with a race."""
    value = {
        "kind": kind, "message": f"{second['access']} after {first['access']}\n  more",
        "mode": "eager", "seed": 0, "replay": replay,
        "race": {
            "first": first, "second": second, "start": "0x00007f0000001000", "bytes": 1,
            "memory": {"kind": memory, "start": "0x00007f0000001000", "bytes": 4096,
                       "generation": 1, "site": None},
            "seen": [], "missing": "A#1 -> host#1; a synchronize would add it",
        },
    }
    return Finding.of(json.loads(json.dumps(value)))


def ended(schedule: str, *findings: Finding, how: str = "exit 0", **more: Any) -> Ended:
    """A run."""
    return Ended(schedule, how, 0.1, list(findings), **more)


def problem(finding: Finding) -> Problem:
    """The problem of one finding."""
    return Problem(finding.kind, key(finding), finding, ended("0:eager", finding), ["0:eager"])
