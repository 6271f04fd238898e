"""Runs programs in a process with the drop-in runtime, one after the other."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pinlane import dropin, operators
from pinlane.findings import Finding, read

from .program import Program


@dataclass
class Ran:
    """What came of a program."""

    findings: list[Finding] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What it raised, each with its step."""
    addresses: dict[str, int] = field(default_factory=dict)
    """Where the memory of each variable was."""


class Runner:
    """Counts the findings of this process.

    The variables of a program are gone when it ends. If its functions kept them, in a circle, the
    garbage collector would find them later: perhaps in a worker of another program, where PyTorch
    ends the process if an event is destroyed.
    """

    def __init__(self) -> None:
        self.report = Path(os.environ["PINLANE_CUDART_REPORT"])
        self.read = 0

    def run(self, program: Program) -> Ran:
        """Runs a program up to its first error."""
        ran, names = Ran(), {}
        _execute(program.text, program.name, names, ran)
        names.clear()
        return self._end(ran)

    def run_by_steps(self, program: Program) -> Ran:
        """Runs each step, whatever the ones before it have raised, and notes addresses."""
        ran, names = Ran(), {}
        for step, lines in zip(program.steps, program.lines()):
            _execute("\n" * (lines.start - 1) + step.text, program.name, names, ran)
            for name in step.memory:
                if name in names:
                    ran.addresses[name] = names[name].untyped_storage().data_ptr()
        names.clear()
        return self._end(ran)

    def _end(self, ran: Ran) -> Ran:
        torch.cuda.synchronize()
        # Otherwise the next program would raise it.
        failed = operators.load().failure()
        if failed:
            ran.wrong.append(f"an operator failed at its turn: {failed}")
        dropin.answers()  # a call reports what was found since the last one
        ran.findings = self._new()
        return ran

    def forget(self) -> None:
        """Nothing of this process is reported again."""
        self.report.unlink(missing_ok=True)

    def _new(self) -> list[Finding]:
        """The findings since the last call."""
        if not self.report.exists():
            return []
        found = read(self.report)
        new, self.read = found[self.read :], len(found)
        return new


def _execute(text: str, file: str, names: dict[str, Any], ran: Ran) -> None:
    try:
        exec(compile(text, file, "exec"), names)
    except Exception as error:
        line = error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else 0
        ran.wrong.append(f"{file}:{line}: {type(error).__name__}: {error}")
