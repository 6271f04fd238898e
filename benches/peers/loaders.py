#!/usr/bin/env python3
"""How fast loaders of safetensors files bring a file that is in memory to the GPU.

    loaders.py [--folder FOLDER]

Makes one file of 8 GiB and one of 128 MiB in FOLDER, reads each once, and removes them at the end.
Without FOLDER they go to /dev/shm if it has room, else to the folder for temporary files. Each
loader runs in a process of its own. Its first load is `.first`; the figure is the median of the
later loads. A loader that is not installed is left out.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from process import Missing, command

MATRIX = 4096  # a tensor is MATRIX x MATRIX halves: 32 MiB
TENSOR = 2 * MATRIX * MATRIX
FILES = {"8g6": 256, "134m": 4}  # name: tensors
LOADS = 5
METHOD = ("one file of tensors of 32 MiB in the page cache or in tmpfs, from opening it until "
          "every tensor is on the device")


def say(**line):
    print(json.dumps(line), flush=True)


def use_safetensors(path):
    from safetensors.torch import load_file

    return lambda: load_file(path, device="cuda:0")


def use_fastsafetensors(path):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def load():
        loader = SafeTensorsFileLoader(SingleGroup(), "cuda:0", nogds=True)
        loader.add_filenames({0: [path]})
        buffers = loader.copy_files_to_device()
        tensors = {name: buffers.get_tensor(name) for name in loader.get_keys()}
        return tensors, buffers, loader

    return load


def use_runai(path):
    from runai_model_streamer import SafetensorsStreamer

    def load():
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(path)
            return {name: tensor.to("cuda:0") for name, tensor in streamer.get_tensors()}

    return load


def use_instanttensor(path):
    import inspect

    from instanttensor import safe_open

    # Older versions return views of a buffer that is reused. Newer ones have the option `copy`, and
    # copy by default.
    copied = "copy" in inspect.signature(safe_open).parameters

    def load():
        with safe_open(path, framework="pt", device=0) as file:
            return {name: tensor if copied else tensor.clone() for name, tensor in file.tensors()}

    return load


LOADERS = {
    "safetensors": ("safetensors", use_safetensors),
    "fastsafetensors": ("fastsafetensors", use_fastsafetensors),
    "runai": ("runai-model-streamer", use_runai),
    "instanttensor": ("instanttensor", use_instanttensor),
}


def child(peer, name, path):
    """One loader and one file, in a process of its own."""
    from importlib.metadata import PackageNotFoundError, version

    package, use = LOADERS[peer]
    try:
        import torch

        say(version={peer: version(package)})
        load = use(path)
    except (ImportError, PackageNotFoundError) as error:
        return say(skipped={peer: f"not installed: {error}"})
    torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    times = []
    for _ in range(1 + LOADS):
        start = time.perf_counter()
        loaded = load()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        # The tensors are deleted first, because some of them live in memory that `close` frees.
        tensors, *owners = loaded if isinstance(loaded, tuple) else (loaded,)
        del tensors, loaded
        for owner in owners:
            owner.close()
    rate = lambda seconds: FILES[name] * TENSOR / seconds / 1e9
    say(name=f"file.h2d.{name}", value=rate(statistics.median(times[1:])), unit="GB/s", peer=peer,
        method=METHOD)
    say(name=f"file.h2d.{name}.first", value=rate(times[0]), unit="GB/s", peer=peer,
        method=f"{METHOD}; the first in a process that has a CUDA context")


def make(path, tensors):
    """Makes a safetensors file. The bytes are random, and the same for every tensor."""
    header = {f"layers.{index}.weight": {"dtype": "F16", "shape": [MATRIX, MATRIX],
                                         "data_offsets": [index * TENSOR, (index + 1) * TENSOR]}
              for index in range(tensors)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    contents = os.urandom(TENSOR)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in range(tensors):
            file.write(contents)


def read(path):
    block = bytearray(1 << 24)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass


def place(folder):
    """A folder with room for the files, in memory if possible."""
    if folder:
        return folder
    shm, needed = Path("/dev/shm"), sum(FILES.values()) * TENSOR
    writable = shm.is_dir() and os.access(shm, os.W_OK)
    roomy = writable and shutil.disk_usage(shm).free > needed + (1 << 30)
    return shm if roomy else Path(tempfile.gettempdir())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    with tempfile.TemporaryDirectory(prefix="loaders-", dir=place(options.folder)) as folder:
        for name, tensors in FILES.items():
            path = Path(folder) / f"{name}.safetensors"
            make(path, tensors)
            read(path)
            for peer in LOADERS:
                arguments = [sys.executable, __file__, "--child", peer, name, path]
                try:
                    print(command(arguments, 90), end="", flush=True)
                except Missing as missing:
                    print(missing.output, end="", flush=True)
                    say(skipped={peer: str(missing)})
            path.unlink()


if __name__ == "__main__":
    main()
