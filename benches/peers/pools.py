#!/usr/bin/env python3
"""The peers of the pool: PyTorch's caching host allocator and RMM's pool.

Each is compiled and runs workload.hpp. The figure of a first call is the median over fresh
processes.
"""
import argparse
import os
import shutil
import statistics
import sys
from pathlib import Path

from process import Missing, command, lines

HERE = Path(__file__).resolve().parent
FRESH_PROCESSES = 3
FIRST_CALLS = ("grow",)


def toolkit():
    """The CUDA toolkit's folder."""
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    if nvcc := shutil.which("nvcc"):
        places.insert(2, Path(nvcc).resolve().parent.parent)
    for place in filter(None, places):
        if (Path(place) / "include/cuda_runtime_api.h").is_file():
            return Path(place)
    raise Missing("no CUDA toolkit with headers; set CUDA_HOME")


def runtime_library(root):
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
        for name in ("libcudart_static.a", "libcudart.so"):
            if (root / folder / name).is_file():
                return root / folder / name
    raise Missing(f"no libcudart under {root}")


class Compiled:
    """A peer that is compiled by `build`, which sets `version`. `run` makes it do one job."""

    def measure(self):
        yield {"version": {self.name: self.version}}
        yield from lines(self.run("all"))
        for job in FIRST_CALLS:
            runs = [figure for _ in range(FRESH_PROCESSES) for figure in lines(self.run(job))]
            value = statistics.median(figure["value"] for figure in runs)
            yield dict(runs[0], value=value, method=f"{runs[0]['method']}, median of {len(runs)}")


class Torch(Compiled):
    """An extension module that PyTorch compiles and keeps in the build folder."""

    def __init__(self, options, name="torch", settings=""):
        self.build_folder, self.sizes = options.build / name, options.sizes
        self.name, self.settings = name, settings

    def measure(self):
        for line in super().measure():
            yield {**line, "peer": self.name} if "peer" in line else line

    def build(self):
        self.build_folder.mkdir(parents=True, exist_ok=True)
        self.version = self.child("build", 240).strip().splitlines()[-1]

    def run(self, job):
        return self.child(job, 120)

    def child(self, job, seconds):
        # ninja is often installed beside the Python of a virtual environment and nowhere else.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return command([sys.executable, HERE / "pools.py", job, "--build", self.build_folder,
                        "--sizes", self.sizes], seconds,
                       {"PATH": path, "PYTORCH_CUDA_ALLOC_CONF": self.settings})


class Rmm(Compiled):
    """A program that is linked with the libraries of the wheels."""

    name = "rmm"

    def __init__(self, options):
        self.folder, self.sizes = options.rmm, options.sizes
        self.program = options.build / "rmm"

    def build(self):
        if self.folder is None:
            raise Missing("no --rmm FOLDER with the unpacked wheels of librmm and rapids-logger")
        librmm, logger = self.folder / "librmm", self.folder / "rapids_logger"
        for part in (librmm / "include/rmm", librmm / "lib64/librmm.so",
                     logger / "lib64/librapids_logger.so"):
            if not part.exists():
                raise Missing(f"no {part}")
        root = toolkit()
        self.version = (librmm / "VERSION").read_text().strip()
        includes = [librmm / "include", librmm / "include/rapids", logger / "include",
                    root / "include"]
        libraries = [librmm / "lib64", logger / "lib64"]
        command(["g++", "-std=c++20", "-O3", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
                 *(word for folder in includes for word in ("-isystem", folder)),
                 HERE / "rmm.cpp", "-o", self.program,
                 *(f"-L{folder}" for folder in libraries), "-lrmm", "-lrapids_logger",
                 runtime_library(root), "-ldl", "-lrt", "-lpthread",
                 *(f"-Wl,-rpath,{folder}" for folder in libraries),
                 f"-Wl,-rpath,{runtime_library(root).parent}"], 120)

    def run(self, job):
        return command([self.program, job, *([self.sizes] if job == "all" else [])], 120)


def torch_child():
    """One job of the torch peer, in a process of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=["build", "all", "grow"])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--sizes", type=Path, required=True)
    options = parser.parse_args()
    try:
        import torch
        from torch.utils.cpp_extension import load
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    module = load(name="peers_torch", sources=[str(HERE / "torch_allocator.cpp")],
                  build_directory=str(options.build), extra_cflags=["-O3"], with_cuda=True)
    if options.job == "build":
        print(torch.__version__)
        return
    torch.ones(1, device="cuda")  # reads the allocator's settings
    if options.job == "all":
        module.all(str(options.sizes))
    else:
        module.grow()


if __name__ == "__main__":
    torch_child()
