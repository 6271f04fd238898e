"""Steps that two threads make at the same time."""
from __future__ import annotations

import random
from collections.abc import Iterator

from .order import HOST, Allocate, RecordStream, Uses
from .program import Step


def at_the_same_time(steps: list[Step], rng: random.Random) -> Iterator[Step]:
    """Lets two threads make two steps, here and there, if neither depends on the other."""
    waiting: Step | None = None
    for step in steps:
        if waiting is not None and are_independent(waiting, step) and rng.random() < 0.5:
            yield together(waiting, step)
            waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = step
    if waiting is not None:
        yield waiting


def are_independent(one: Step, other: Step) -> bool:
    """Whether two steps use memory on two streams, none that the other one writes."""
    uses = []
    for step in one, other:
        found = [effect for effect in step.effects if isinstance(effect, Uses)]
        # The first of two may be what the step reads before it allocates.
        if len(found) == 2 and found[0].reads == found[1].reads and not found[0].certain:
            del found[0]
        others = [effect for effect in step.effects
                  if not isinstance(effect, (Uses, Allocate, RecordStream))]
        if len(found) != 1 or others or found[0].agent == HOST or "Thread" in step.text:
            return False
        uses += found
    if uses[0].agent == uses[1].agent:
        return False
    names = [{name for name, _ in (*use.reads, *use.writes)} for use in uses]
    return not names[0] & names[1]


def together(one: Step, other: Step) -> Step:
    texts = []
    for number, step in enumerate((one, other)):
        known = "".join(f"    global {name}\n" for name in step.memory)
        body = "".join(f"    {line}\n" for line in step.text.split("\n"))
        texts.append(f"def part_{number}():\n{known}{body}")
    return Step(
        "".join(texts) + "threads = [threading.Thread(target=part) for part in (part_0, part_1)]\n"
        "for thread in threads:\n    thread.start()\nfor thread in threads:\n    thread.join()",
        one.effects + other.effects, one.memory + other.memory,
    )
