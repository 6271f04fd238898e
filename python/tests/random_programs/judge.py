"""Runs many programs in a process, and tells where pinlane is wrong."""
from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from . import make
from .program import Program
from .run import Ran, Runner

WAITS = 3
"""How many waits of a program are tried, one at a time."""


@dataclass
class Judge:
    """What was run in this process."""

    runner: Runner = field(default_factory=Runner)
    counts: Counter[str] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)

    def right(self, program: Program) -> None:
        """Runs a program that is right."""
        ran = self.runner.run(program)
        self.counts["right"] += 1
        if ran.findings or ran.wrong:
            self.mistakes.append(described("wrong about a program that is right", program, ran))

    def without_waits(self, program: Program, rng: random.Random) -> None:
        """Runs the program without some of its waits, one at a time."""
        waits = program.waits()
        for number in rng.sample(waits, min(WAITS, len(waits))):
            less = program.without(number, f"{program.name[:-3]}_without_{number}.py")
            ran = self.runner.run_by_steps(less)
            kind = program.steps[number].wait
            possible = less.order(False, ran.addresses)
            if less.order(True, ran.addresses).races:
                self.counts[f"wrong without a wait: {kind}"] += 1
                if not ran.findings:
                    self.mistakes.append(described(f"a race is missed, of {kind}", less, ran))
            elif possible.races or possible.is_loose:
                self.counts["perhaps wrong without a wait"] += 1
            else:
                self.counts["right without a wait"] += 1
                if ran.findings or ran.wrong:
                    text = f"wrong about a program that is right without its {kind}"
                    self.mistakes.append(described(text, less, ran))


def body(together: int, wrong: int) -> Callable[[Path], None]:
    """What a process does. The seed of its schedule says which programs it runs; of one program of
    `wrong`, it also runs those without a wait."""

    def run(folder: Path) -> None:
        first = int(os.environ["PINLANE_REPLAY"].split(":")[0]) * together
        judge = Judge()
        for seed in range(first, first + together):
            program = make.program(seed, f"/program_{seed}.py")
            judge.right(program)
            if wrong and seed % wrong == 0:
                judge.without_waits(program, random.Random(seed))
        told = {"counts": judge.counts, "mistakes": judge.mistakes}
        (folder / "note").write_text(json.dumps(told))
        judge.runner.forget()

    return run


def described(what: str, program: Program, ran: Ran) -> str:
    """A mistake, with all that is needed to look at it."""
    schedule = os.environ["PINLANE_REPLAY"]
    told = [finding.message for finding in ran.findings] + ran.wrong
    return "\n".join([f"== {what}, in {schedule}: {program.name}", *told, program.text])
