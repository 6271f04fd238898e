"""What all runs need, imported once: PyTorch, its operators, and the libraries of the program."""
from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import io
import os
import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator

from . import allocations, dropin
from .errors import Unavailable
from .findings import Finding


def variables(strict: bool, stop: bool) -> dict[str, str]:
    """The drop-in runtime's variables in each run. `stop`: at kernels without a stand-in."""
    wanted = {"PINLANE_CUDART_PAGEABLE": "cuda" if strict else "staged"}
    if stop:
        wanted["PINLANE_CUDART_KERNELS"] = "stop"
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def prepare(torch: bool, operators: bool, imports: tuple[str, ...] = ()) -> dict[str, str | None]:
    """Imports what all runs need. Gives the versions of what was found."""
    versions: dict[str, str | None] = {}
    if torch:
        versions.update(_import_torch(operators))
    _import(imports)
    if not dropin.is_entered():
        raise Unavailable(
            f"the process calls another CUDA runtime than pinlane's: {dropin.runtime()}. Remove it "
            "from LD_PRELOAD; or it is linked into a library that the program preloads."
        )
    if not is_untouched():
        raise Unavailable(
            "the imports have called CUDA already, so that forked runs cannot use it. A start-up "
            "file of Python (sitecustomize, a .pth file) or a module of --import does so."
        )
    _settle()
    return versions


def prepare_others(modules: list[str], found: list[Finding]) -> bool:
    """After the first run, imports what it has imported of libraries, and what its findings need.

    Says whether the runs can still be forked: not if one of these libraries calls CUDA when it is
    imported.
    """
    allocations.prepare(found)
    _import(list(_libraries(modules)))
    _settle()
    return is_untouched()


def _settle() -> None:
    """Makes runs cheap: neither the collector nor PyTorch's end touches what was imported.

    PyTorch would deregister kernels when a run ends. That copies thousands of pages, and takes as
    long as a small program.
    """
    library = sys.modules.get("torch.library")
    ends = getattr(library, "_del_library", None)
    for finalizer, entry in list(getattr(weakref.finalize, "_registry", {}).items()):
        if ends is not None and entry.func is ends:
            finalizer.atexit = False
    gc.collect()
    gc.freeze()


def _import_torch(operators: bool) -> dict[str, str | None]:
    try:
        import torch  # type: ignore[import-not-found]
    except (ImportError, OSError) as error:
        raise Unavailable(
            f"PyTorch cannot be imported ({type(error).__name__}: {error}). Look whether "
            f"`{sys.executable} -c 'import torch'` works without pinlane."
        ) from error
    # The first question after the number of devices would build the device in this process; many
    # libraries ask it when they are imported.
    torch._C._cuda_getDeviceCount = dropin.devices
    torch.cuda._device_count_nvml = lambda: -1  # it would count the machine's GPUs
    allocations.record()
    count = None
    if operators:
        count = _operators()
    with contextlib.suppress(Exception):
        importlib.import_module("torch._meta_registrations")
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "operators": count}


def _operators() -> str | None:
    """Replaces PyTorch's operators; says how many. None if this package has no operators."""
    try:
        from . import operators  # type: ignore[attr-defined]
    except ImportError:
        return None
    try:
        return str(operators.load().count)
    except Unavailable as error:
        raise Unavailable(
            f"{error} Without operators (--operators=off), programs that only copy can be tested."
        ) from None


def _import(names: Iterable[str]) -> None:
    """Imports modules; one that fails is left to the program."""
    for name in names:
        if name in sys.modules:
            continue
        nothing = io.StringIO()
        with contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
            with contextlib.suppress(BaseException), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)


def _libraries(modules: list[str]) -> Iterator[str]:
    """The modules of a run that are not the program's own: those of libraries."""
    for name in modules:
        if name in sys.modules or name == "__main__":
            continue
        if name.partition(".")[0] not in sys.modules and not _is_library(name.partition(".")[0]):
            continue
        yield name


def _is_library(name: str) -> bool:
    """Whether a module of that name lies in the standard library or in site-packages."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    if spec is None or spec.origin is None:
        return False
    parts = ("/site-packages/", "/dist-packages/", "/lib/python")
    return spec.origin in ("built-in", "frozen") or any(part in spec.origin for part in parts)


def is_untouched() -> bool:
    """Whether this process has not called CUDA: whether its children can."""
    pid = os.fork()
    if pid == 0:
        os.environ["PINLANE_CUDART_REPORT"] = os.devnull  # "no" is the answer, and no finding
        os._exit(0 if dropin.answers() else 1)
    return os.waitpid(pid, 0)[1] == 0
