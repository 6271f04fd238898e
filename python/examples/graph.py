"""Fills the pinned input of a CUDA graph, while the replay before still reads it."""
import sys

import torch

buffer = torch.zeros(4, 1024, pin_memory=True)
batch = torch.zeros(4, 1024, device="cuda")
total = torch.zeros(4, 1024, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    batch.copy_(buffer, non_blocking=True)
    total += batch
for step in range(3):
    if "fixed" in sys.argv and step > 0:
        done.synchronize()
    buffer.fill_(step)
    graph.replay()
    done = torch.cuda.Event()
    done.record()
assert int(total[0, 0]) == 0 + 1 + 2
