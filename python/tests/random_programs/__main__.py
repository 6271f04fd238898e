"""Runs random programs of PyTorch: right ones, and some of them with a wait less.

Each process has a schedule and runs some programs, one after the other. A finding, a wrong value or
an error in a program that is right is a mistake of pinlane, and so is a race that is not found. The
mistakes are printed with their programs.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter

from pinlane import dropin, installed, schedules
from pinlane.explore import cores
from pinlane.runs import Ended

LIMIT = 120.0
"""Seconds for a process, which takes a few. One that takes longer hangs, and is a mistake."""
MANY = 5
"""After so many mistakes no more programs are run."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak python", description=__doc__)
    parser.add_argument("programs", type=int, nargs="?", default=10_000, help="%(default)s")
    parser.add_argument("--wrong", type=int, default=10, metavar="N",
                        help="one program of N is also run without some of its waits; 0: none")
    parser.add_argument("--together", type=int, default=100, metavar="N",
                        help="how many programs a process runs (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="that of the first process")
    parser.add_argument("--mode", type=schedules.modes, default=("eager", *schedules.MODES),
                        metavar="LIST", help="modes of the processes, which take turns")
    parser.add_argument("--jobs", type=int, default=cores(), metavar="N")
    parser.add_argument("--print", type=int, metavar="SEED", help="only prints this program")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    if not dropin.is_entered():
        dropin.enter_as_it_was_called(installed.required().major, {"OMP_NUM_THREADS": "1"})
    from pinlane.imports import prepare, variables
    from pinlane.runs import Runs

    from . import judge, make

    if asked.print is not None:
        print(make.program(asked.print, "").text, end="")
        return 0
    prepare(torch=True, operators=True)
    began, counts, mistakes = time.monotonic(), Counter(), 0

    def each(ended: Ended) -> bool:
        nonlocal mistakes
        told = json.loads(ended.note or "{}")
        counts.update(told.get("counts", {}))
        texts = told.get("mistakes", [])
        if ended.how != "exit 0":
            texts.append(f"== a process of {ended.schedule} ended with {ended.how}: {ended.error}\n"
                         f"{ended.output}\n{ended.stack}")
        mistakes += len(texts)
        print(*texts, sep="\n", end="", flush=True)
        if sys.stderr.isatty():
            print(f"\r{counts['right']} of {asked.programs}", end="\r", file=sys.stderr)
        return mistakes < MANY

    runs = Runs(judge.body(asked.together, asked.wrong), variables(strict=False, stop=True))
    seeds = range(asked.seed, asked.seed + -(-asked.programs // asked.together))
    listed = (f"{seed}:{asked.mode[seed % len(asked.mode)]}" for seed in seeds)
    try:
        runs.all(listed, LIMIT, asked.jobs, each)
    finally:
        runs.close()
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    print(f"{mistakes:8} mistakes, {time.monotonic() - began:.0f} s")
    return 1 if mistakes else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # PyTorch's destructors take half a second, and print remarks
