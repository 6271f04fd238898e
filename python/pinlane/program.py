"""Runs a script or a module as Python does: as `__main__`, with its arguments and its path."""
from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path

from . import source


@dataclass(frozen=True)
class Program:
    """What the user wants to run."""

    arguments: list[str]
    """The script or module, then its arguments."""
    is_module: bool = False

    @property
    def name(self) -> str:
        return self.arguments[0]

    def run(self, folder: Path) -> None:
        """Runs it; what it raises leaves this function. Nothing is written to the folder."""
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        sys.argv = list(self.arguments)
        if self.is_module:
            sys.path.insert(0, os.getcwd())
            runpy._run_module_as_main(self.name)  # type: ignore[attr-defined]
            return
        path = os.path.abspath(self.name)
        if os.path.isdir(path):  # with a __main__.py
            sys.path.insert(0, path)
            runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
            return
        sys.path.insert(0, os.path.dirname(path))
        main.__dict__.update(
            __file__=path, __cached__=None, __spec__=None,
            __loader__=SourceFileLoader("__main__", path),
        )
        exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


@dataclass(frozen=True)
class Outcome:
    """How a program ended by itself."""

    code: int
    error: str | None = None
    """The last line of its traceback."""
    file: str | None = None
    line: int | None = None


def outcome(run: Callable[[], object]) -> Outcome:
    """Runs a function as the main program, and prints what it raises."""
    try:
        run()
    except SystemExit as end:
        return _exit(end)
    except BaseException as error:
        trace = _own(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        last = traceback.format_exception_only(type(error), error)[-1].strip().partition("\n")[0]
        frames = traceback.extract_tb(trace)
        own = [frame for frame in frames if not source.is_library(frame.filename)]
        frame = next(reversed(own or frames), None)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        return Outcome(code, last, frame and frame.filename, frame and frame.lineno)
    return Outcome(0)


def _exit(end: SystemExit) -> Outcome:
    if end.code is None:
        return Outcome(0)
    if isinstance(end.code, int):
        return Outcome(end.code & 0xFF)
    print(end.code, file=sys.stderr)
    return Outcome(1, f"SystemExit: {end.code}")


def _own(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The part of a traceback that is the program's."""
    here = os.path.dirname(os.path.abspath(__file__))
    hidden = (here + os.sep, "<frozen runpy>", runpy.__file__)
    every = trace
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(hidden):
        trace = trace.tb_next
    return trace or every


def finish() -> None:
    """What Python does at the end, but for its own modules: those have no work on the device, and
    PyTorch's destructors take half a second."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    main = sys.modules["__main__"].__dict__
    for name in list(main):
        if name != "__builtins__":
            main[name] = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
