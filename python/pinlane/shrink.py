"""The smallest schedule that still shows a problem."""
from __future__ import annotations

from collections.abc import Callable

LONGEST = 100_000
"""Bytes of a schedule that is sure to fit into a variable of the environment."""

Fails = Callable[[str], bool]
"""Makes a run with a schedule, and says whether it still shows the problem."""


def smallest(record: str, fails: Fails) -> str:
    """The smallest schedule, as far as taking decisions away finds it.

    `record` is the run as the runtime has written it: `7:A#1,B#2+3`. `fails` may refuse more runs
    by saying no.
    """
    seed, _, listed = record.partition(":")
    decisions = [] if listed in ("", "eager") else listed.split(",")
    eager = f"{seed}:eager"
    if fails(eager):
        return eager

    def some(kept: list[str]) -> bool:
        text = f"{seed}:{','.join(kept)}"
        return len(text) < LONGEST and fails(text)

    # Operations that are held until a wait needs them do not depend on how often others run.
    held = [decision.partition("+")[0] for decision in decisions]
    if held != decisions and some(held):
        decisions = held
    decisions = _fewest(decisions, some)
    return f"{seed}:{','.join(decisions)}" if decisions else eager


def _fewest(decisions: list[str], some: Callable[[list[str]], bool]) -> list[str]:
    """Takes halves away, then quarters, and so on to single decisions."""
    size = (len(decisions) + 1) // 2
    while size:
        at, is_smaller = 0, False
        while at < len(decisions):
            fewer = decisions[:at] + decisions[at + size :]
            if fewer and some(fewer):
                decisions, is_smaller = fewer, True
            else:
                at += size
        size = size // 2 if size > 1 else int(is_smaller and len(decisions) > 1)
    return decisions
