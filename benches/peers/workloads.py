#!/usr/bin/env python3
"""What users do, whole, with PyTorch: the workloads of this crate's benches/workloads.

    workloads.py [--only kv embedding experts optimizer checkpoint] [--quick] [--tensors COUNT]
                 [--files FOLDER] [--device DEVICE]

A figure has the name of this crate's own figure, and the way follows. Sizes and places are those of
benches/workloads. Page-locked memory is made before and used again; copies from and to it do not
block; where the CPU has a part, it works on one part while another is copied. Every workload looks
at its bytes once, outside the clock.
"""
import argparse
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from timing import sample, say

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PEER = "torch"
PARTS = 4  # that the CPU and the copies take turns with
PRODUCTS, ORDER, BUSY_SAMPLES = 16, 8192, 9


def scattered(count, limit):
    """Different numbers below `limit`, as benches/common/numbers.rs has them."""
    step = int(limit * 0.618034) | 1
    return [n * step % limit for n in range(count)]


class Bench:
    def __init__(self, torch, options):
        self.torch, self.gpu = torch, torch.device(options.device)
        self.small, self.files, self.tensors = options.quick, options.files, options.tensors
        self.factors = None

    def synchronize(self):
        self.torch.cuda.synchronize()

    def pinned(self, *shape, dtype):
        return self.torch.empty(*shape, dtype=dtype, pin_memory=True)

    def measure(self, name, size, work, unit="GB/s", count=1, method="", **how):
        """The figure of work that copies `size` bytes, or does something `count` times."""
        rounds = sample(work, self.synchronize, **how)
        convert = {"GB/s": lambda seconds: size / seconds / 1e9,
                   "us": lambda seconds: seconds / count * 1e6,
                   "ms": lambda seconds: seconds / count * 1e3}[unit]
        rounds.say(name, unit, convert, PEER, f"until the device is idle, host's clock; median; "
                                              f"{method}")
        rounds.say_cores(name, size / 1e9, PEER)

    def product(self):
        """Seconds of device time that the products take."""
        torch = self.torch
        if self.factors is None:
            self.factors = [torch.zeros(ORDER, ORDER, dtype=torch.bfloat16, device=self.gpu)
                            for _ in range(3)]
            self.stream = torch.cuda.Stream()
            self.marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        a, b, c = self.factors
        with torch.cuda.stream(self.stream):
            self.marks[0].record()
            for _ in range(PRODUCTS):
                torch.mm(a, b, out=c)
            self.marks[1].record()
        self.marks[1].synchronize()
        return self.marks[0].elapsed_time(self.marks[1]) / 1e3

    def beside(self, name, size, work):
        """The same work over and over while the products run, and what they lose."""
        if self.small:
            return
        torch = self.torch
        alone, times, often = [], [], []
        for _ in range(2):
            self.product()
        for _ in range(BUSY_SAMPLES):
            alone.append(self.product())
            rounds, stop, started = [0], threading.Event(), threading.Event()

            def loop():
                with torch.cuda.stream(torch.cuda.Stream()):
                    while not stop.is_set():
                        work()
                        torch.cuda.current_stream().synchronize()
                        rounds[0] += 1
                        started.set()

            thread = threading.Thread(target=loop)
            thread.start()
            started.wait()
            start, before = time.perf_counter(), rounds[0]
            times.append(self.product())
            often.append((rounds[0] - before) / (time.perf_counter() - start))
            stop.set()
            thread.join()
        middle = lambda values: sorted(values)[len(values) // 2]
        say(name=f"{name}.busy", value=middle(often) * size / 1e9, unit="GB/s", peer=PEER,
            method="the same beside 16 products of 8192 x 8192 in bfloat16; median")
        say(name=f"{name}.busy.loss", value=middle(times) / middle(alone) - 1, unit="ratio",
            peer=PEER, method="the time of those products over that of products alone, less 1")


def kv(bench):
    """Blocks of 64 tables, here parts of one tensor, go to places of page-locked memory, and back.

    Indices along the first dimension, and elements of 8 bytes, are the fastest for the CPU.
    """
    torch, tables = bench.torch, 64
    for block, size, count in ((2 * KIB, "2kib", 256), (16 * KIB, "16kib", 128),
                               (64 * KIB, "64kib", 32)):
        count = 4 if bench.small else count
        words, blocks, total = block // 8, tables * count, tables * count * block
        host = bench.pinned(8 * blocks, words, dtype=torch.int64)
        cache = torch.zeros(4 * blocks, words, dtype=torch.int64, device=bench.gpu)
        packed = bench.pinned(blocks, words, dtype=torch.int64)
        staged = torch.empty(blocks, words, dtype=torch.int64, device=bench.gpu)
        on_host = torch.tensor(scattered(count, 8 * count))
        on_device = torch.tensor(scattered(count, 4 * count))
        first = torch.arange(tables).unsqueeze(1)
        parts = [slice(start, start + blocks // PARTS)
                 for start in range(0, blocks, blocks // PARTS)]

        def places():
            """The rows of the two lists of numbers, in all tables."""
            there = (first * (4 * count) + on_device).flatten()
            return (first * (8 * count) + on_host).flatten(), there.to(bench.gpu)

        def up():
            here, there = places()
            for part in parts:
                torch.index_select(host, 0, here[part], out=packed[part])
                staged[part].copy_(packed[part], non_blocking=True)
                cache.index_copy_(0, there[part], staged[part])

        def down():
            (here, there), marks = places(), []
            for part in parts:
                torch.index_select(cache, 0, there[part], out=staged[part])
                packed[part].copy_(staged[part], non_blocking=True)
                marks.append(torch.cuda.current_stream().record_event())
            for part, mark in zip(parts, marks):
                mark.synchronize()
                host.index_copy_(0, here[part], packed[part])

        def up_kept():
            staged.copy_(packed, non_blocking=True)
            cache.index_copy_(0, places()[1], staged)

        def down_kept():
            torch.index_select(cache, 0, places()[1], out=staged)
            packed.copy_(staged, non_blocking=True)

        pairs = [(table * 8 * count + here, table * 4 * count + there) for table in range(tables)
                 for here, there in zip(on_host.tolist(), on_device.tolist())]

        def up_loop():
            for here, there in pairs:
                cache[there].copy_(host[here], non_blocking=True)

        def down_loop():
            for here, there in pairs:
                host[here].copy_(cache[there], non_blocking=True)

        host.copy_(torch.arange(host.numel()).view(host.shape))
        here = places()[0]
        before = host[here]
        for climb, sink in ((up, down), (up_loop, down_loop), (up, down_loop)):
            climb()
            bench.synchronize()
            host[here] = 0
            sink()
            bench.synchronize()
            assert torch.equal(host[here], before), "kv: the bytes did not arrive"

        for way, suffix, work, method in (
            ("h2d", ".index_select", up,
             "index_select into page-locked memory, a copy, index_copy_ there, in 4 parts"),
            ("d2h", ".index_select", down, "the way back"),
            ("h2d", ".kept", up_kept, "the host's blocks are contiguous: no index there"),
            ("d2h", ".kept", down_kept, "the way back"),
            ("h2d", ".loop", up_loop, "copy_ of every block"),
            ("d2h", ".loop", down_loop, "copy_ of every block"),
        ):
            name = f"workload.kv.{way}.{size}{suffix}"
            bench.measure(name, total, work, method=method)
            bench.beside(name, total, work)


def embedding(bench):
    """65,536 rows of 512 B at random places of 4 GiB."""
    torch, floats = bench.torch, 128
    size, count = (4 * MIB, 1000) if bench.small else (4 * GIB, 65_536)
    rows = size // (4 * floats)
    packed = bench.pinned(count, floats, dtype=torch.float32)
    there = torch.empty(count, floats, device=bench.gpu)
    steps = [torch.randint(rows, (count,)) for _ in range(8)]
    share = -(-count // PARTS)
    parts = [slice(start, start + share) for start in range(0, count, share)]
    step = [0]
    for place in ("pinned", "pageable"):
        if place == "pinned":
            table = bench.pinned(rows, floats, dtype=torch.float32)
        else:
            table = torch.empty(rows, floats)
        table.copy_(torch.arange(rows, dtype=torch.float32).unsqueeze(1).expand(rows, floats))

        def gather():
            step[0] += 1
            numbers = steps[step[0] % len(steps)]
            for part in parts:
                torch.index_select(table, 0, numbers[part], out=packed[part])
                there[part].copy_(packed[part], non_blocking=True)
            return numbers

        def plain():
            step[0] += 1
            return table[steps[step[0] % len(steps)]].to(bench.gpu)

        numbers = gather()
        bench.synchronize()
        assert torch.equal(there.cpu()[:, 7], numbers.float()), "embedding: the rows did not arrive"
        name, total = f"workload.embedding.{place}", 4 * floats * count
        bench.measure(f"{name}.index_select", total, gather, "us",
                      method="index_select into page-locked memory, and a copy, in 4 parts")
        bench.beside(f"{name}.index_select", total, gather)
        bench.measure(f"{name}.index_to", total, plain, "us", method="table[numbers].to(device)")
        del table


def experts(bench):
    """16 of 256 experts for each of 16 steps, while the step before computes."""
    torch, chosen, steps = bench.torch, 16, 16
    size = 16 * KIB if bench.small else 8 * MIB
    pageable = [torch.full((size,), number % 251, dtype=torch.uint8)
                for number in range(chosen * steps)]
    pinned = [bench.pinned(size, dtype=torch.uint8).copy_(expert) for expert in pageable]
    turns = scattered(chosen * steps, chosen * steps)
    places = [[torch.empty(size, dtype=torch.uint8, device=bench.gpu) for _ in range(chosen)]
              for _ in range(2)]
    staging = [[bench.pinned(size, dtype=torch.uint8) for _ in range(chosen)] for _ in range(2)]
    order = 64 if bench.small else ORDER
    a, b, c = (torch.zeros(order, order, dtype=torch.bfloat16, device=bench.gpu)
               for _ in range(3))
    copies, compute = torch.cuda.Stream(), torch.cuda.Stream()
    left = [None, None]  # when the last copies from or to each place are done

    def run(source, staged):
        free = [None, None]
        for step in range(steps):
            now, place = [source[n] for n in turns[step * chosen:][:chosen]], places[step % 2]
            with torch.cuda.stream(copies):
                if staged:
                    if step >= 2:
                        left[step % 2].synchronize()
                    for to, expert in zip(staging[step % 2], now):
                        to.copy_(expert)
                    now = staging[step % 2]
                if free[step % 2] is not None:
                    copies.wait_event(free[step % 2])
                for to, expert in zip(place, now):
                    to.copy_(expert, non_blocking=True)
                left[step % 2] = copies.record_event()
            with torch.cuda.stream(compute):
                compute.wait_event(left[step % 2])
                for _ in range(2):
                    torch.mm(a, b, out=c)
                free[step % 2] = compute.record_event()

    total = chosen * steps * size
    for name, source, staged, method in (
        ("pinned", pinned, False, "copy_ of each with non_blocking, on a stream of its own"),
        ("pageable", pageable, False, "the same"),
        ("pageable.staged", pageable, True, "copied by the CPU to page-locked memory before"),
    ):
        run(source, staged)
        bench.synchronize()
        for number, place in zip(turns[-chosen:], places[(steps - 1) % 2]):
            assert torch.equal(place.cpu(), pageable[number]), "experts: the bytes did not arrive"
        bench.measure(f"workload.experts.{name}", total, lambda: run(source, staged), "ms", steps,
                      method=f"a step with 2 products; {method}")


def optimizer(bench):
    """1.08 GB of state goes down, every number is changed, and it goes up, in 8 groups."""
    torch, groups = bench.torch, 8
    shapes = ((4, 32 * KIB), (8, KIB)) if bench.small else ((8, 16 * MIB), (64, 16 * KIB))
    lengths = [size // 4 for count, size in shapes for _ in range(count)]
    one = torch.ones(())
    down, up = torch.cuda.Stream(), torch.cuda.Stream()
    for suffix, lengths in (("", lengths), (".flat", [sum(lengths)])):
        host = [[bench.pinned(length, dtype=torch.float32).fill_(3) for length in lengths]
                for _ in range(groups)]
        gpu = [[tensor.to(bench.gpu, copy=True) for tensor in group] for group in host]

        def change(group):
            for tensor in group:
                tensor.lerp_(one, 0.1)

        def run(changes):
            marks = []
            with torch.cuda.stream(down):
                for group, there in zip(host, gpu):
                    for to, tensor in zip(group, there):
                        to.copy_(tensor, non_blocking=True)
                    marks.append(down.record_event())
            with torch.cuda.stream(up):
                for group, there, mark in zip(host, gpu, marks):
                    if changes:
                        mark.synchronize()
                        change(group)
                    up.wait_event(mark)
                    for tensor, to in zip(group, there):
                        to.copy_(tensor, non_blocking=True)

        for group in host:
            for tensor in group:
                tensor.zero_()
        run(True)
        bench.synchronize()
        expected = torch.full((), 3.0).lerp_(one, 0.1)
        assert all(bool((tensor == expected.to(bench.gpu)).all()) for group in gpu
                   for tensor in group), "optimizer: the state is not what it should be"
        total = groups * 4 * sum(lengths)
        method = "copy_ with non_blocking of each tensor, lerp_ by the CPU, in 8 groups"
        if suffix:
            method = f"the tensors of a group are parts of one; {method}"
        bench.measure(f"workload.optimizer.step{suffix}", 2 * total, lambda: run(True), "ms",
                      method=method)
        bench.measure(f"workload.optimizer.copies{suffix}", 2 * total, lambda: run(False),
                      method=method)
        bench.measure(f"workload.optimizer.cpu{suffix}", 2 * total,
                      lambda: [change(group) for group in host], "ms", method="the change alone")


def checkpoint(bench):
    """All tensors of the device to files in memory."""
    torch = bench.torch
    tiny = bench.small and not bench.tensors
    size, count = (MIB, 10) if tiny else (32 * MIB, bench.tensors or 256)
    whole = (count, size) == (256, 32 * MIB)
    shape = "8g6" if whole else f"{count}x{size // MIB}mib"
    parent = bench.files or Path("/dev/shm")
    free = shutil.disk_usage(parent).free
    if free < count * size * 9 // 8:
        return say(skipped={f"torch.checkpoint.{shape}": f"{free} bytes free in {parent}"})
    tensor = lambda number: torch.full((size // 2,), number % 100, dtype=torch.float16,
                                       device=bench.gpu)
    state = {f"layers.{number}.weight": tensor(number) for number in range(count)}
    kept = {name: bench.pinned(size // 2, dtype=torch.float16) for name in state}
    total, name = count * size, f"workload.checkpoint.{shape}"
    with tempfile.TemporaryDirectory(prefix="workloads-", dir=parent) as folder:
        path = Path(folder) / "checkpoint"

        def clean():
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)

        def save():
            torch.save(state, path)

        def save_kept():
            for key, tensor in state.items():
                kept[key].copy_(tensor, non_blocking=True)
            bench.synchronize()
            torch.save(kept, path)

        def check(load):
            for key, tensor in load().items():
                assert torch.equal(tensor, state[key].cpu()), f"checkpoint: {key} is not the same"

        how = {"prepare": clean, "warm": 1, "shortest": 0, "fewest": 2}
        bench.measure(f"{name}.save", total, save, method="torch.save of tensors on the device",
                      **how)
        check(lambda: torch.load(path, map_location="cpu", mmap=True))
        bench.measure(f"{name}.save_kept", total, save_kept,
                      method="copies to page-locked memory that is kept, and torch.save", **how)
        check(lambda: torch.load(path, map_location="cpu", mmap=True))
        clean()
        kept.clear()
        try:
            distributed(bench, name, total, state, path, how)
        except (ImportError, TypeError, AttributeError, RuntimeError, KeyError) as error:
            # Its interface changes from release to release.
            say(skipped={"torch.distributed.checkpoint": repr(error)})


def distributed(bench, name, total, state, path, how):
    """torch.distributed.checkpoint in one process."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    torch = bench.torch
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    writer = lambda: dcp.FileSystemWriter(path, thread_count=8, sync_files=False)
    blocked, stager = [], []
    try:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        stager.append(DefaultStager(StagingOptions(
            use_pinned_memory=bench.gpu.type == "cuda", use_shared_memory=False,
            use_async_staging=False, use_non_blocking_copy=bench.gpu.type == "cuda")))
        staged = {"async_stager": stager[0]}
    except ImportError:  # older: its own staging, by pageable memory
        staged = {}

    def save():
        dcp.save(state, storage_writer=writer())

    def save_async():
        start = time.perf_counter()
        future = dcp.async_save(state, storage_writer=writer(), **staged)
        blocked.append(time.perf_counter() - start)
        getattr(future, "upload_completion", future).result()

    try:
        bench.measure(f"{name}.dcp", total, save, method="dcp.save, 8 threads, no sync", **how)
        loaded = {key: torch.empty_like(tensor, device="cpu") for key, tensor in state.items()}
        dcp.load(loaded, storage_reader=dcp.FileSystemReader(path))
        for key, tensor in loaded.items():
            assert torch.equal(tensor, state[key].cpu()), f"checkpoint: {key} is not the same"
        try:
            save_async()
        except KeyError:  # PyTorch 2.11's staging to page-locked memory fails on some types
            staged.clear()
        blocked.clear()
        bench.measure(f"{name}.dcp_async", total, save_async,
                      method="dcp.async_save, 8 threads, no sync, until all is written", **how)
        later = sorted(blocked[how["warm"]:])
        say(name=f"{name}.dcp_async.blocked", value=total / later[len(later) // 2] / 1e9,
            unit="GB/s", peer=PEER, method="until dcp.async_save returns; the rest runs later")
    finally:
        for one in stager:
            one.close()
        dist.destroy_process_group()


WORKLOADS = {work.__name__: work for work in (kv, embedding, experts, optimizer, checkpoint)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--quick", action="store_true", help="small: figures mean little")
    parser.add_argument("--tensors", type=int, help="of a checkpoint, 32 MiB each; 256 if not said")
    parser.add_argument("--files", type=Path, help="where checkpoints go; /dev/shm if not said")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"no PyTorch: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    say(version={PEER: torch.__version__, "python": sys.version.split()[0]})
    bench = Bench(torch, options)
    for name in options.only:
        WORKLOADS[name](bench)


if __name__ == "__main__":
    main()
