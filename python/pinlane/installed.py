"""The PyTorch that is installed: what it is, found without importing it."""
from __future__ import annotations

import ast
import importlib.machinery
import mmap
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import Unavailable

NO_TORCH = "If the program does not use PyTorch, add --no-torch."
SUPPORTED = ("12", "13")


@dataclass(frozen=True)
class Torch:
    version: str
    cuda: str | None
    """The version of CUDA that it was built for, such as 13.2; None for CPU-only builds."""
    folder: Path

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
    return Torch(str(about.get("__version__", "unknown")), about.get("cuda"), folder)


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


def required() -> Torch:
    """The torch that is installed, if programs can run with it; else an error says what to do."""
    torch = find()
    if torch is None:
        raise Unavailable(
            f"PyTorch is not installed for {sys.executable}. Install a build of it for CUDA 12 or "
            f"13 (`pip install torch`; no GPU is needed). {NO_TORCH}"
        )
    check(torch)
    return torch


def check(torch: Torch) -> None:
    """Raises an error that says what to do, if this torch cannot run on the drop-in runtime."""
    if torch.cuda is None:
        raise Unavailable(
            f"torch {torch.version} in {torch.folder} is a CPU-only build: it has no CUDA code to "
            "test. Install a build for CUDA 12 or 13; it needs no GPU: "
            "`pip install torch` without --index-url. " + NO_TORCH
        )
    if torch.major not in SUPPORTED:
        raise Unavailable(
            f"torch {torch.version} is built for CUDA {torch.cuda}; pinlane stands in for the "
            f"runtimes of CUDA 12 and 13. Install a newer torch. {NO_TORCH}"
        )
    library = torch.folder / "lib" / "libc10_cuda.so"
    if library.exists() and not _names(library, b"libcudart.so."):
        raise Unavailable(
            f"torch {torch.version} is linked statically with the CUDA runtime ({library} does not "
            "need libcudart.so), which cannot be replaced. Use PyTorch's own wheel, or build "
            f"torch with CAFFE2_STATIC_LINK_CUDA=OFF. {NO_TORCH}"
        )


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
