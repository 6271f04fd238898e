"""Runs the programs that measure peers, each in a process of its own, and reads their output."""
import json
import os
import subprocess
from pathlib import Path


class Missing(Exception):
    """A peer cannot be measured here, or not completely: the reason, and the output until then."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


def command(arguments, seconds, environment=None):
    """Runs a program and returns its standard output."""
    arguments = [str(argument) for argument in arguments]
    try:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=seconds, env=dict(os.environ, **(environment or {})))
    except FileNotFoundError:
        raise Missing(f"no {arguments[0]}") from None
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        raise Missing(f"{Path(arguments[0]).name}: not done after {seconds} s", output) from None
    if done.returncode != 0:
        names = " ".join(Path(argument).name for argument in arguments)
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Missing(f"{names}: status {done.returncode}: {why}", done.stdout)
    return done.stdout


def lines(output):
    """The lines that a peer's program printed for us.

    Each is a figure, {"version": {PEER: VERSION}} or {"skipped": {PEER: REASON}}.
    """
    ours = (line for line in output.splitlines() if line.startswith("{") and line.endswith("}"))
    return [json.loads(line) for line in ours]
