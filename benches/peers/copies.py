#!/usr/bin/env python3
"""The transfers of this crate's benchmark, made by PyTorch and, where it is installed, TensorDict.

A figure has the name of this crate's own figure. If PyTorch can do it in several ways, the way
follows. Every figure is end to end: from the call until the data is there, the allocation of the
result included, as a median.
"""
import os
import subprocess
import sys
from importlib.metadata import version

from timing import sample, say

FLOATS = 1_000_000  # 4,000,000 bytes

METHOD = ("from the call until the device is idle, host's clock, the result's allocation included; "
          "median")


class Bench:
    def __init__(self, torch):
        self.torch, self.gpu = torch, torch.device("cuda:0")

    def measure(self, work, **how):
        return sample(work, self.torch.cuda.synchronize, **how)

    def figure(self, name, unit, work, convert, peer="torch"):
        self.measure(work).say(name, unit, convert, peer, METHOD)

    def host(self):
        """What copies cost the host's cores, and how late a short one may be."""
        torch, gpu, size = self.torch, self.gpu, 1 << 30
        tensor, there = torch.ones(size // 4), torch.ones(size // 4, device=gpu)
        for name, work in (("h2d", lambda: there.copy_(tensor, non_blocking=True)),
                           ("d2h", lambda: tensor.copy_(there))):
            say(name=f"host.core_seconds_per_gb.{name}", peer="torch", unit="s/GB",
                value=self.measure(work).cores / (size / 1e9),
                method="seconds of all threads of the process, by getrusage; copy_ of 1 GiB")
        short, place = torch.ones(1024), torch.ones(1024, device=gpu)
        for suffix, load in (("", len(os.sched_getaffinity(0))), (".idle", 0)):
            spin = [sys.executable, "-c", "while True: pass"]
            others = [subprocess.Popen(spin) for _ in range(load)]
            rounds = self.measure(lambda: place.copy_(short), shortest=0, fewest=3000, most=3000)
            for other in others:
                other.kill()
                other.wait()
            for name, seconds in (("p999", rounds.spread(float)["p999"]), ("p50", rounds.median)):
                say(name=f"host.{name}.4kb{suffix}", value=seconds * 1e6, unit="us", peer="torch",
                    method="copy_ of a tensor of 4 KiB to the device, while as many processes spin "
                           "as there are cores (.idle: none)")

    def single(self):
        """One tensor."""
        torch, gpu = self.torch, self.gpu
        for size, floats in (("1gib", 1 << 28), ("64mib", 1 << 24), ("16mib", 1 << 22)):
            tensor = torch.ones(floats)
            rate = lambda seconds: 4 * floats / seconds / 1e9
            self.figure(f"staged.h2d.{size}", "GB/s", lambda: tensor.to(gpu), rate)
            there = tensor.to(gpu)
            self.figure(f"staged.d2h.{size}", "GB/s", lambda: there.to("cpu"), rate)
            self.figure(f"staged.d2h.{size}.into_tensor", "GB/s", lambda: tensor.copy_(there), rate)
        micros = lambda seconds: seconds * 1e6
        tensor, pinned = torch.ones(FLOATS), torch.ones(FLOATS).pin_memory()
        there = tensor.to(gpu)
        for suffix, work in (
            ("", lambda: tensor.to(gpu)),
            (".pin_memory", lambda: tensor.pin_memory().to(gpu)),
            (".pin_memory_alone", lambda: tensor.pin_memory()),
            (".pinned", lambda: pinned.to(gpu)),
        ):
            self.figure("staged.h2d.4mb" + suffix, "us", work, micros)
        self.figure("staged.d2h.4mb", "us", lambda: there.to("cpu"), micros)

    def rows(self):
        """65,536 rows at random places of 1 GiB, gathered and scattered by their numbers."""
        torch, gpu, count = self.torch, self.gpu, 65_536
        micros = lambda seconds: seconds * 1e6
        for length in (256, 1024, 4096):
            table = torch.ones((1 << 30) // length, length // 4)
            numbers = torch.randperm(len(table))[:count]
            pinned = torch.empty(count, length // 4).pin_memory()
            there = torch.ones(count, length // 4, device=gpu)

            def gather():
                torch.index_select(table, 0, numbers, out=pinned)
                return there.copy_(pinned, non_blocking=True)

            def scatter():
                pinned.copy_(there)
                table.index_copy_(0, numbers, pinned)

            for name, suffix, work in (
                ("h2d", ".index_to", lambda: table[numbers].to(gpu)),
                ("h2d", ".index_select_pinned", gather),
                ("d2h", ".index_copy", lambda: table.index_copy_(0, numbers, there.to("cpu"))),
                ("d2h", ".index_copy_pinned", scatter),
            ):
                self.figure(f"rows.{name}.{length}.pageable{suffix}", "us", work, micros)

    def many(self):
        """Many tensors, small ones and large ones."""
        micros, millis = (lambda seconds: seconds * 1e6), (lambda seconds: seconds * 1e3)
        for count, floats in ((1000, 1000), (10_000, 64), (100, 64)):
            self.batch("batch", f"{count}x{4 * floats}", count, floats, "us", micros)
        self.batch("staged", "1000x4mb", 1000, FLOATS, "ms", millis)

    def batch(self, family, shape, count, floats, unit, convert):
        torch, gpu = self.torch, self.gpu
        tensors = [torch.ones(floats) for _ in range(count)]
        there = [tensor.to(gpu) for tensor in tensors]
        up, down = f"{family}.h2d.{shape}", f"{family}.d2h.{shape}"
        for name, work in (
            (up, lambda: [tensor.to(gpu) for tensor in tensors]),
            (f"{up}.non_blocking",
             lambda: [tensor.to(gpu, non_blocking=True) for tensor in tensors]),
            (f"{up}.foreach", lambda: torch._foreach_copy_(there, tensors, non_blocking=True)),
            (f"{up}.pin_memory",
             lambda: [tensor.pin_memory().to(gpu, non_blocking=True) for tensor in tensors]),
            (down, lambda: [tensor.to("cpu") for tensor in there]),
            (f"{down}.non_blocking",
             lambda: [tensor.to("cpu", non_blocking=True) for tensor in there]),
        ):
            self.figure(name, unit, work, convert)
        self.tensordict(up, tensors, unit, convert)
        pinned = [tensor.pin_memory() for tensor in tensors]
        del tensors
        up_pinned = f"batch.pinned.{shape}" if family == "batch" else f"{up}.pinned"
        for name, work in (
            (up_pinned, lambda: [tensor.to(gpu, non_blocking=True) for tensor in pinned]),
            (f"{down}.into_pinned",
             lambda: [to.copy_(tensor, non_blocking=True) for to, tensor in zip(pinned, there)]),
        ):
            self.figure(name, unit, work, convert)

    def tensordict(self, name, tensors, unit, convert):
        try:
            import tensordict
        except ImportError as error:
            return say(skipped={"tensordict": f"not installed: {error}"})
        say(version={"tensordict": version("tensordict")})
        whole = tensordict.TensorDict({str(index): tensor for index, tensor in enumerate(tensors)})
        for suffix, how in (
            ("", {}),
            (".threads4", {"non_blocking_pin": True, "num_threads": 4}),
            (".threads8", {"non_blocking_pin": True, "num_threads": 8}),
        ):
            self.figure(name + suffix, unit, lambda: whole.to(self.gpu, **how), convert,
                        peer="tensordict")


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    say(version={"torch": torch.__version__})
    torch.ones(1, device="cuda")
    bench = Bench(torch)
    bench.host()
    bench.single()
    bench.many()
    bench.rows()


if __name__ == "__main__":
    main()
