"""Fills one pinned buffer again and again, while uploads still read it."""
import sys

import torch

buffer = torch.empty(4, 1024, pin_memory=True)
batches = []
for step in range(3):
    if "fixed" in sys.argv and step > 0:
        done.synchronize()
    buffer.fill_(step)
    batches.append(buffer.to("cuda", non_blocking=True))
    done = torch.cuda.Event()
    done.record()
assert [int(batch[0, 0]) for batch in batches] == [0, 1, 2]
