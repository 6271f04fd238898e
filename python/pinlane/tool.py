"""The other command that is called `pinlane`: the tool in Rust, which looks at machines.

Who installs both has one of them first in PATH. Each hands over the commands that only the other
one has.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from .errors import Unavailable

COMMANDS = ("doctor", "bench", "advise", "load", "trace")
"""What the tool can do."""


def run(argv: list[str]) -> NoReturn:
    """Runs one of these commands, in place of this process."""
    tool = find(os.environ.get("PATH", os.defpath))
    if tool is None:
        raise Unavailable(
            f"`pinlane {argv[0]}` is a command of pinlane's tool in Rust, and PATH has none: "
            "`cargo install --path crates/cli` in pinlane's source tree installs it."
        )
    sys.stdout.flush()
    os.execv(tool, [str(tool), *argv])


def find(path: str) -> Path | None:
    """The tool: a program `pinlane` that is no script."""
    for folder in path.split(os.pathsep):
        file = Path(folder or ".") / "pinlane"
        try:
            with file.open("rb") as opened:
                if opened.read(4) == b"\x7fELF" and os.access(file, os.X_OK):
                    return file
        except OSError:
            continue
    return None
