"""PyTorch's CUDA operators on the emulated device: builds, caches and loads `operators/`."""

import atexit
import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from . import installed
from .errors import Unavailable

SOURCES = pathlib.Path(__file__).with_suffix("")
TESTED = ("2.14", "2.15")
LIBRARY = "libpinlane_operators.so"


class Operators:
    """The operators of this process."""

    def __init__(self, library):
        self._library = library
        for name in ("install", "refused", "failure", "sleep"):
            getattr(library, f"pinlane_operators_{name}").restype = ctypes.c_char_p
        library.pinlane_operators_launches.restype = ctypes.c_long
        wrong = library.pinlane_operators_install()
        if wrong:
            raise Unavailable(f"PyTorch's operators cannot be replaced: {wrong.decode()}")
        self.count = library.pinlane_operators_count()
        self.refused = library.pinlane_operators_refused().decode().split()

    @property
    def launches(self):
        """How many operators have been launched so far."""
        return self._library.pinlane_operators_launches()

    def unsupported(self, what):
        """Reports that the program needs something that runs only on a GPU."""
        self._library.pinlane_operators_unsupported(what.encode())

    def failure(self):
        """Takes the first failure of an operator on the device that no call has raised, or None."""
        return self._library.pinlane_operators_failure().decode() or None

    def sleep(self, cycles):
        """Stands in for the kernel of `torch.cuda._sleep`, which takes no time here."""
        wrong = self._library.pinlane_operators_sleep()
        if wrong:
            raise RuntimeError(wrong.decode())

    def raise_failure(self):
        text = self.failure()
        if text:
            raise RuntimeError(f"pinlane: an operator failed on the device: {text}")


_loaded = None


def load(quiet=True):
    """Replaces PyTorch's CUDA operators in this process, once. Initializes no device."""
    global _loaded
    if _loaded is None:
        torch = _import_torch()
        _loaded = Operators(ctypes.CDLL(str(library(torch)), mode=ctypes.RTLD_GLOBAL))
        _choose_backends(torch)
        torch._C._cuda_sleep = _loaded.sleep
        _refuse_compiled_kernels(torch, _loaded)
        atexit.register(_report_failure)
        if not quiet:
            print(f"pinlane: {_loaded.count} operators of PyTorch {torch.__version__}; "
                  f"{len(_loaded.refused)} others need a GPU", file=sys.stderr)
    return _loaded


def _report_failure():
    """A failure of an operator after the program's last call would be lost otherwise."""
    text = _loaded.failure()
    if text:
        _loaded.unsupported(text)
        print(f"pinlane: an operator failed on the device: {text}", file=sys.stderr)


def _import_torch():
    try:
        import torch
    except ImportError as error:
        raise Unavailable(f"PyTorch cannot be imported ({error}). Install it with pip, or run with "
                          "--operators=off.") from error
    installed.required(without="")
    if not hasattr(ctypes.CDLL(None), "pinlane_launch"):
        raise Unavailable("The CUDA runtime of this process is not pinlane's: it has no function "
                          "pinlane_launch. Run the program by `python -m pinlane race`, or preload "
                          "pinlane's libcudart.so.")
    return torch


def library(torch):
    """The path of the library for this PyTorch. Builds it the first time."""
    sources = sorted(p for p in SOURCES.rglob("*") if p.is_file())
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes() + b"\0")
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = home / "pinlane" / f"operators-{torch.__version__}-{digest.hexdigest()[:16]}"
    built = folder / LIBRARY
    if built.exists():
        return built
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not built.exists():
                _build(torch, built)
    except OSError as error:
        raise Unavailable(f"The operators cannot be built in {folder}: {error}. Set XDG_CACHE_HOME "
                          "to a folder that can be written to.") from error
    return built


@contextlib.contextmanager
def _locked(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiler():
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if shutil.which(name):
            return name
    raise Unavailable("PyTorch's operators are built on this machine, and there is no C++ "
                      "compiler. Install one (Debian, Ubuntu: apt install g++), or set CXX.")


def _cuda_headers(torch):
    """The folders of CUDA's headers. For CUDA 12, each library's are in a package of its own."""
    packages = pathlib.Path(torch.__file__).parent.parent / "nvidia"
    folders = [packages / f"cu{torch.version.cuda.split('.')[0]}" / "include",
               packages / "cuda_runtime" / "include"]
    folders += [pathlib.Path(os.environ[name]) / "include"
                for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders.append(pathlib.Path("/usr/local/cuda/include"))
    for folder in folders:
        if (folder / "cuda_runtime_api.h").exists():
            others = packages.glob("*/include") if packages in folder.parents else []
            return [folder, *sorted(set(others) - {folder})]
    raise Unavailable("CUDA's headers (cuda_runtime_api.h) are missing, which PyTorch's headers "
                      f"need. They are in the package nvidia-cuda-runtime of PyTorch's wheel, or "
                      "in the folder that CUDA_HOME names. Looked in: "
                      + ", ".join(map(str, folders)))


def command(torch, output):
    """The compiler's command line."""
    headers = pathlib.Path(torch.__file__).parent / "include"
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    includes = [headers, headers / "torch" / "csrc" / "api" / "include", *_cuda_headers(torch)]
    return [
        _compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *(f"-isystem{folder}" for folder in includes), f"-idirafter{SOURCES / 'compat'}",
        "-o", str(output), str(SOURCES / "install.cpp"),
        f"-L{libraries}", "-ltorch_cpu", "-ltorch_cuda", "-lc10", "-lc10_cuda", "-ldl",
    ]


def _build(torch, built):
    began = time.monotonic()
    # The compiler does not need the emulated device.
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    handle, output = tempfile.mkstemp(dir=built.parent, suffix=".so")
    os.close(handle)
    try:
        line = command(torch, output)
        print(f"pinlane: building the operators for PyTorch {torch.__version__}, once. This takes "
              "about half a minute.", file=sys.stderr, flush=True)
        done = subprocess.run(line, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode:
            is_tested = ".".join(torch.__version__.split(".")[:2]) in TESTED
            hint = ("" if is_tested else
                    f"\nThe operators are tested with PyTorch {' and '.join(TESTED)}, and this is "
                    f"{torch.__version__}. Install one of those.")
            last = "\n".join(done.stdout.splitlines()[-20:])
            raise Unavailable(f"The operators cannot be built: {line[0]} failed with status "
                              f"{done.returncode}.\n{last}{hint}")
        os.chmod(output, 0o755)
        os.replace(output, built)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(output)
    print(f"pinlane: built in {time.monotonic() - began:.0f} s: {built}", file=sys.stderr)


def _choose_backends(torch):
    """Switches off what calls libraries that run only on a GPU, and imports what shapes need."""
    import torch._meta_registrations

    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._jit_override_can_fuse_on_gpu(False)  # TorchScript would compile kernels
    meta = torch.empty(2, device="meta")
    with _without("triton"):  # it would run no kernel, and complains at the end of the process
        meta + meta


@contextlib.contextmanager
def _without(module):
    """Lets no import find the module, unless it is there already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None
    try:
        yield
    finally:
        del sys.modules[module]


def _refuse_compiled_kernels(torch, loaded):
    """torch.compile writes kernels for a GPU: it stops with a text that says so."""
    inductor = getattr(torch, "_TorchCompileInductorWrapper", None)
    if inductor is None:
        return
    compile_graph = inductor.__call__

    def refuse(self, model, inputs):
        if any(getattr(t, "device", None) is not None and t.device.type == "cuda" for t in inputs):
            loaded.unsupported("torch.compile(backend='inductor')")
            raise RuntimeError("pinlane: torch.compile(backend='inductor') writes kernels that run "
                               "only on a GPU. Use backend='aot_eager', or set "
                               "TORCH_COMPILE_DISABLE=1.")
        return compile_graph(self, model, inputs)

    inductor.__call__ = refuse
