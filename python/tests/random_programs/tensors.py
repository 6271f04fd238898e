"""The variables of a program, and their twins on the CPU."""
from __future__ import annotations

from dataclasses import dataclass

import torch

from .order import HOST

LARGE = 500
"""Values above are made smaller."""
MOST_ELEMENTS = 1000
"""Tensors with more are used no more: a program that doubles one again and again never ends."""


@dataclass
class Tensor:
    """A variable of the program."""

    name: str
    agent: int
    """The stream that it was made on, or HOST."""
    pinned: bool = False
    index: bool = False
    """It names rows of others, and never changes."""

    @property
    def on_device(self) -> bool:
        return self.agent != HOST


@dataclass
class View:
    """A tensor, or a part of it."""

    tensor: Tensor
    text: str
    twin: torch.Tensor

    @property
    def bits(self) -> int:
        return bits_of(self.twin)

    @property
    def use(self) -> tuple[str, int]:
        return self.tensor.name, self.bits


def bits_of(twin: torch.Tensor) -> int:
    """The words of 4 bytes that a view is, as bits."""
    words = twin.element_size() // 4
    if twin.is_contiguous():
        return (1 << twin.numel() * words) - 1 << twin.storage_offset() * words
    count = twin.untyped_storage().nbytes() // twin.element_size()
    places = torch.arange(count).as_strided(twin.size(), twin.stride(), twin.storage_offset())
    bits, one = 0, (1 << words) - 1
    for place in places.flatten().tolist():
        bits |= one << place * words
    return bits


def is_copied_at_once(twin: torch.Tensor) -> bool:
    """Whether a copy to new memory of the host is one copy. Otherwise PyTorch copies to pageable
    memory first, and from there at once, without a wait."""
    copy = twin.clone()
    return copy.is_contiguous() or copy.stride() == twin.stride()


def is_large(twin: torch.Tensor) -> bool:
    return bool(twin.numel()) and float(twin.abs().max()) > LARGE
