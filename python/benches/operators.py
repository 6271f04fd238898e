"""How long operators take on the emulated device, compared with PyTorch's own on the CPU.

    pinlane race --runs 1 python/benches/operators.py [NAME...]

The tensors have 1 MiB each. Both are measured in this process, in turns. The figures are medians,
in microseconds of processor time of one call, so that other programs disturb them little.
"""

import statistics
import sys
import time

import torch
from torch.nn import functional

SIDE = 512
"""SIDE * SIDE * 4 bytes are 1 MiB."""
ROUNDS = 15
WORTH = 0.01
"""A round measures calls of so many seconds together."""


def tensors():
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    places = torch.randint(SIDE, (SIDE, SIDE), generator=generator)
    rows = torch.randint(SIDE, (SIDE,), generator=generator)
    return {"a": a, "b": b, "mask": b > 0, "places": places, "rows": rows, "out": a.clone(),
            "picture": a.view(1, 4, 256, 256), "weight": b[:8, :36].reshape(8, 4, 3, 3)}


OPERATORS = {
    "add": lambda t: t.a + t.b,
    "add_": lambda t: t.out.add_(t.a),
    "relu": lambda t: t.a.relu(),
    "exp": lambda t: t.a.exp(),
    "where": lambda t: torch.where(t.mask, t.a, t.b),
    "sum": lambda t: t.a.sum(),
    "mean of rows": lambda t: t.a.mean(1),
    "softmax": lambda t: t.a.softmax(1),
    "layer_norm": lambda t: functional.layer_norm(t.a, (SIDE,)),
    "cumsum": lambda t: t.a.cumsum(1),
    "sort": lambda t: t.a.sort(1),
    "matmul": lambda t: t.a @ t.b,
    "conv2d": lambda t: functional.conv2d(t.picture, t.weight),
    "cat": lambda t: torch.cat([t.a, t.b]),
    "transposed copy": lambda t: t.a.t().contiguous(),
    "index_select": lambda t: t.a.index_select(0, t.rows),
    "index": lambda t: t.a[t.rows],
    "index_add_": lambda t: t.out.index_add_(0, t.rows, t.a),
    "gather": lambda t: t.a.gather(1, t.places),
    "scatter_": lambda t: t.out.scatter_(1, t.places, t.a),
    "masked_fill": lambda t: t.a.masked_fill(t.mask, 0),
}


class On:
    """The tensors on a device, as attributes."""

    def __init__(self, device):
        for name, tensor in tensors().items():
            setattr(self, name, tensor.to(device))


def seconds(call, tensors, times):
    """Of one of so many calls."""
    began = time.process_time()
    for _ in range(times):
        call(tensors)
    torch.cuda.synchronize()
    return (time.process_time() - began) / times


def compare(call, cpu, gpu):
    """Medians: of the CPU's own, of ours, and of their ratio."""
    for tensors in (cpu, gpu):
        seconds(call, tensors, 3)
    times = max(3, int(WORTH / seconds(call, cpu, 3)))
    pairs = [(seconds(call, cpu, times), seconds(call, gpu, times)) for _ in range(ROUNDS)]
    own, ours = ([pair[side] for pair in pairs] for side in (0, 1))
    return [statistics.median(of) for of in (own, ours, [b / a for a, b in pairs])]


def main():
    cpu, gpu = On("cpu"), On("cuda")
    print("| operator | the CPU's own, us | on the device, us | times |\n|---|---:|---:|---:|")
    for name, call in OPERATORS.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            own, ours, times = compare(call, cpu, gpu)
            print(f"| {name} | {own * 1e6:.0f} | {ours * 1e6:.0f} | {times:.1f} |", flush=True)


main()
