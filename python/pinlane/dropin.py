"""The drop-in CUDA runtime: where its libraries are, and how a process gets them.

The dynamic linker reads LD_PRELOAD when a process starts. So the command starts itself again with
it (`enter`). The variables as they were are restored in each run, because programs that the user's
program starts need no CUDA runtime.
"""
from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from .errors import Unavailable

FORMER = "PINLANE_FORMER_ENVIRONMENT"
OURS = "PINLANE_PRELOADED"
PRELOADS = ("LD_PRELOAD", "LD_LIBRARY_PATH")


def folder() -> Path:
    """The folder of libcudart.so.13, libcudart.so.12 and libcuda.so.1."""
    asked = os.environ.get("PINLANE_CUDART")
    package = Path(__file__).resolve().parent
    places = [Path(asked)] if asked else [package / "lib", *_of_source_tree(package)]
    for place in places:
        if (place / "libcudart.so.13").exists():
            return place.resolve()
    if asked:
        raise Unavailable(f"PINLANE_CUDART={asked}: this folder has no libcudart.so.13")
    if sys.platform != "linux":
        raise Unavailable("pinlane's CUDA runtime needs Linux")
    raise Unavailable(
        "pinlane's CUDA runtime is not in this package. In a source tree, build it with "
        "`scripts/build-cudart`, and name its folder in PINLANE_CUDART."
    )


def _of_source_tree(package: Path) -> list[Path]:
    root = package.parent.parent
    return [root / "target" / "cudart"] if (root / "scripts" / "build-cudart").exists() else []


class _Found(ctypes.Structure):
    """`Dl_info`: which library an address belongs to."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def runtime() -> Path | None:
    """The library whose CUDA runtime the process calls; None if it has none.

    Other libraries of that name may be loaded, too: PyTorch loads NVIDIA's by its path. They are
    not called, because the dynamic linker looks into preloaded libraries first.
    """
    process = ctypes.CDLL(None)
    try:
        address = ctypes.cast(process.cudaGetDeviceCount, ctypes.c_void_p)
    except AttributeError:
        return None
    found = _Found()
    if not process.dladdr(address, ctypes.byref(found)) or not found.file:
        return None
    return Path(os.fsdecode(found.file))


def is_entered() -> bool:
    """Whether this process calls the drop-in runtime."""
    path = runtime()
    return path is not None and str(path) in os.environ.get(OURS, "").split(":")


def preloaded(major: str, variables: dict[str, str]) -> dict[str, str]:
    """The variables that give a process the drop-in runtime of this version of CUDA."""
    where = folder()
    ours = [str(where / f"libcudart.so.{major}"), str(where / "libcuda.so.1")]
    former = {name: list(filter(None, [variables.get(name)])) for name in PRELOADS}
    return {
        OURS: ":".join(ours),
        "LD_PRELOAD": ":".join([*ours, *former["LD_PRELOAD"]]),
        "LD_LIBRARY_PATH": ":".join([str(where), *former["LD_LIBRARY_PATH"]]),
    }


def environment(major: str, variables: dict[str, str]) -> dict[str, str]:
    """All variables of the command's own process."""
    env = {**variables, **preloaded(major, variables)}
    env[FORMER] = json.dumps({name: variables.get(name) for name in PRELOADS})
    env.setdefault("PYTHONHASHSEED", "0")  # a replay in another process meets the same sets
    return env


def enter(major: str, command: list[str], more: dict[str, str]) -> NoReturn:
    """Starts this Python again with the drop-in runtime: `python FLAGS COMMAND`."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    _start([*flags, *command], environment(major, {**os.environ, **more}))


def enter_as_it_was_called(major: str, more: dict[str, str]) -> NoReturn:
    """Starts this Python again with the drop-in runtime, by the same command line."""
    _start(sys.orig_argv[1:], environment(major, {**os.environ, **more}))


def start_again(more: dict[str, str]) -> NoReturn:
    """Starts this process again by the same command line; it has the runtime already."""
    _start(sys.orig_argv[1:], {**os.environ, **more})


def _start(arguments: list[str], env: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *arguments], env)


def leave_environment() -> None:
    """Gives a run the variables as the user has set them: its children need no runtime."""
    former = json.loads(os.environ.get(FORMER, "{}"))
    for name in PRELOADS:
        if former.get(name) is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = former[name]


def answers() -> bool:
    """Whether the runtime answers: it does not in a child of a process that has used CUDA.

    A call also reports what was found since the last one.
    """
    count = ctypes.c_int()
    return ctypes.CDLL(None).cudaGetDeviceCount(ctypes.byref(count)) == 0


def devices() -> int:
    """How many devices the runtime will have."""
    return int(os.environ.get("PINLANE_CUDART_DEVICES", "1"))
