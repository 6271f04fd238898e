"""Packs the wheel: the modules, the drop-in CUDA runtime and the metadata, without any tool.

    python3 python/backend.py LIBRARIES FOLDER      scripts/wheel calls it

`pip wheel ./python` and `pip install ./python` call it too (PEP 517), with the libraries of
PINLANE_CUDART or target/cudart. The tag says which glibc the libraries need: the newest version of
a symbol that they name.
"""
from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDED = ("libcudart.so.13", "libcudart.so.12", "libcuda.so.1")
"""The folder of libraries may have others, too."""
SOURCES = ("*.py", "*.cpp", "*.hpp", "*.h", "nv/target")
ENTRY_POINTS = """\
[console_scripts]
pinlane = pinlane.command:main

[pytest11]
pinlane = pinlane.pytest_plugin
"""
METADATA = """\
Metadata-Version: 2.1
Name: pinlane
Version: {version}
Summary: Finds races of PyTorch and CUDA programs, in their own lines, without a GPU
License: MIT OR Apache-2.0
License-File: LICENSE-MIT
License-File: LICENSE-APACHE
Keywords: pytorch,cuda,race,testing,non_blocking
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Framework :: Pytest
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Testing
Requires-Python: >=3.10
Description-Content-Type: text/markdown

"""


def version() -> str:
    """The version of the package, which is that of the crate."""
    text = (HERE / "pinlane" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)[1]  # type: ignore[index]


def libraries_in(folder: Path) -> list[str]:
    """The libraries of a folder, without links to them."""
    return sorted(path.name for path in folder.glob("lib*.so.*") if not path.is_symlink())


def tag(libraries: Path) -> str:
    """The wheel's tag, by the glibc and the processor of the libraries."""
    newest = (2, 17)
    for name in libraries_in(libraries):
        found = re.findall(rb"GLIBC_(\d+)\.(\d+)", (libraries / name).read_bytes())
        newest = max([newest, *((int(major), int(minor)) for major, minor in found)])
    return f"py3-none-manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def pack(libraries: Path, folder: Path) -> Path:
    """Writes the wheel."""
    names = libraries_in(libraries)
    missing = sorted(set(NEEDED) - set(names))
    if missing:
        raise SystemExit(f"{libraries} lacks {', '.join(missing)}: call scripts/build-cudart")
    with tempfile.TemporaryDirectory() as work:
        for name in names:
            shutil.copyfile(libraries / name, Path(work) / name)
            # Four fifths of them are debug information of this library, which no finding names.
            subprocess.run(["strip", "--strip-debug", Path(work) / name], check=True)
        tagged = tag(Path(work))
        files = {f"pinlane/lib/{name}": (Path(work) / name).read_bytes() for name in names}
        files.update(_modules())
        return _write(folder, tagged, files)


def _modules() -> dict[str, bytes]:
    package = HERE / "pinlane"
    paths = sorted(path for pattern in SOURCES for path in package.rglob(pattern))
    return {path.relative_to(HERE).as_posix(): path.read_bytes() for path in paths}


def _write(folder: Path, tagged: str, files: dict[str, bytes]) -> Path:
    info = f"pinlane-{version()}.dist-info"
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    wheel = f"Wheel-Version: 1.0\nGenerator: pinlane\nRoot-Is-Purelib: false\nTag: {tagged}\n"
    files = {
        **files,
        f"{info}/METADATA": (METADATA.format(version=version()) + readme).encode(),
        f"{info}/WHEEL": wheel.encode(),
        f"{info}/entry_points.txt": ENTRY_POINTS.encode(),
    }
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{info}/licenses/{name}"] = (HERE.parent / name).read_bytes()
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"pinlane-{version()}-{tagged}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # the same wheel each time
            entry.external_attr = (0o755 if ".so" in name else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


# ---- PEP 517 ------------------------------------------------------------------------------------


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Called by pip."""
    asked = os.environ.get("PINLANE_CUDART")
    libraries = Path(asked) if asked else HERE.parent / "target" / "cudart"
    return pack(libraries, Path(wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    """Called by pip."""
    raise SystemExit("the source of the package is the whole project, with its crates")


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]), Path(sys.argv[2])))
