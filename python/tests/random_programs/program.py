"""A program as steps."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .order import Effect, Order

@dataclass(frozen=True)
class Step:
    """A statement."""

    text: str
    effects: tuple[Effect, ...] = ()
    memory: tuple[str, ...] = ()
    """The memory that it makes: the variables that are tensors of it."""
    wait: str | None = None
    """Which kind of wait this is, if the program may be wrong without it."""
    weaker: Step | None = None
    """What to write instead to make it wrong; None: nothing."""


@dataclass(frozen=True)
class Program:
    name: str
    steps: tuple[Step, ...]

    @property
    def text(self) -> str:
        return "\n".join(step.text for step in self.steps) + "\n"

    def lines(self) -> Iterator[range]:
        """The lines of each step."""
        line = 1
        for step in self.steps:
            count = step.text.count("\n") + 1
            yield range(line, line + count)
            line += count

    def waits(self) -> list[int]:
        """The steps that another program may lack."""
        return [number for number, step in enumerate(self.steps) if step.wait]

    def without(self, number: int, name: str) -> Program:
        """The same without a wait."""
        weaker = self.steps[number].weaker
        return Program(name, (*self.steps[:number], *([weaker] if weaker else []),
                              *self.steps[number + 1 :]))

    def order(self, generous: bool, addresses: dict[str, int] | None = None) -> Order:
        """What is ordered, and what races."""
        order = Order(generous, addresses)
        for number, step in enumerate(self.steps):
            order.step = number
            for effect in step.effects:
                order.apply(effect)
        return order
