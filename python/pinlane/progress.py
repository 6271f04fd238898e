"""How far the runs are: one line on a terminal, which is gone at the end."""
from __future__ import annotations

import sys
import time

from .runs import Ended


class Progress:
    def __init__(self, total: int | None) -> None:
        self.total = total
        self.made = 0
        self.began = time.monotonic()
        self.is_shown = sys.stderr.isatty()

    def ended(self, ended: Ended, found: int) -> None:
        """A run has ended; so many problems are known."""
        self.made += 1
        if not self.is_shown or self.made == 1:
            return
        total = f" of {self.total}" if self.total else ""
        seconds = time.monotonic() - self.began
        sys.stderr.write(f"\r\x1b[Kpinlane: run {self.made}{total}, {found} found, {seconds:.0f} s")
        sys.stderr.flush()

    def close(self) -> None:
        if self.is_shown and self.made > 1:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
