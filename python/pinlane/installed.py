"""This Python, and the PyTorch that is installed: what it is, found without importing it."""
from __future__ import annotations

import ast
import importlib.machinery
import mmap
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from .errors import Unavailable

NO_TORCH = "If the program does not use PyTorch, add --no-torch."
SUPPORTED = ("12", "13")
OTHERS = {"ROCm": "hip", "XPU": "xpu"}
"""Devices of others, and how torch/version.py names them."""
PYTHONS = (3, 10), (3, 15)
"""The oldest and the newest CPython of which the runtime names lines."""


def check_python() -> None:
    """Raises an error that says what to do, if findings could not name lines of this Python."""
    is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    is_cpython = sys.implementation.name == "cpython"
    oldest, newest = PYTHONS
    if is_cpython and oldest <= sys.version_info[:2] <= newest and not is_free_threaded:
        return
    what = f"{'CPython' if is_cpython else sys.implementation.name} {_dotted(sys.version_info)}"
    raise Unavailable(
        f"findings could not name lines of {'the free-threaded ' * is_free_threaded}{what} "
        f"({sys.executable}). Use CPython {_dotted(oldest)} to {_dotted(newest)}, "
        "in a build with the GIL."
    )


def _dotted(version: tuple[object, ...]) -> str:
    return ".".join(map(str, version[:2]))


@dataclass(frozen=True)
class Torch:
    version: str
    cuda: str | None
    """The version of CUDA that it was built for, such as 13.2; None if for none."""
    folder: Path
    other: str | None = None
    """What it was built for instead of CUDA, if for other devices."""

    @property
    def major(self) -> str:
        """The major version of CUDA: which drop-in library it needs."""
        return (self.cuda or "").split(".")[0]


def find() -> Torch | None:
    """The torch that `import torch` would find; None if there is none."""
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    about = _constants(folder / "version.py")
    other = next((name for name, known in OTHERS.items() if about.get(known)), None)
    return Torch(str(about.get("__version__", "unknown")), about.get("cuda"), folder, other)


def _constants(file: Path) -> dict[str, str | None]:
    """The constants that a module assigns, without running it."""
    found: dict[str, str | None] = {}
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return found
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign):
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            found[target.id] = value.value
    return found


def required(without: str = NO_TORCH) -> Torch:
    """The torch that is installed, if programs can run with it; else an error says what to do.

    `without` says it for programs that do not use PyTorch.
    """
    torch = find()
    if torch is None:
        wrong = (
            f"PyTorch is not installed for {sys.executable}. Install pinlane where your PyTorch "
            "is, or PyTorch here: `pip install torch` (a build for CUDA; it needs no GPU)."
        )
    else:
        wrong = _wrong(torch)
    if torch is None or wrong:
        raise Unavailable(f"{wrong} {without}".rstrip())
    return torch


def _wrong(torch: Torch) -> str:
    """Why this torch cannot run on the drop-in runtime, and what to do; empty if it can."""
    if not torch.cuda:
        kind = f"a build for {torch.other}" if torch.other else "a CPU-only build"
        return (
            f"torch {torch.version} in {torch.folder} is {kind}: it has no CUDA code to test. "
            "Replace it by a build for CUDA, which needs no GPU: `pip uninstall torch`, then "
            "`pip install torch` without --index-url."
        )
    if torch.major not in SUPPORTED:
        is_old = int(torch.major) < int(SUPPORTED[0])
        return (
            f"torch {torch.version} in {torch.folder} is built for CUDA {torch.cuda}; pinlane "
            "stands in for the runtimes of CUDA 12 and 13. "
            + ("`pip install --upgrade torch` installs a newer one."
               if is_old else "Install an older torch, or a newer pinlane.")
        )
    library = torch.folder / "lib" / "libc10_cuda.so"
    if library.exists() and not _names(library, b"libcudart.so."):
        return (
            f"torch {torch.version} is linked statically with the CUDA runtime ({library} does not "
            "need libcudart.so), which cannot be replaced. Use PyTorch's own wheel (`pip uninstall "
            "torch`, then `pip install torch`), or build torch with CAFFE2_STATIC_LINK_CUDA=OFF."
        )
    return ""


def _names(library: Path, name: bytes) -> bool:
    """Whether the dynamic section of a library can name another one: the text is in the file."""
    with library.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(name) >= 0


def imports_torch(script: Path) -> bool:
    """Whether the text of a script imports torch itself."""
    try:
        tree = ast.parse(script.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        if any(name.split(".")[0] == "torch" for name in names):
            return True
    return False
