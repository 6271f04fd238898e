"""Drops a tensor that a side stream still uses: its memory goes to the next tensor."""
import sys

import torch

side = torch.cuda.Stream()


def total(values):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        result = values.sum()
    if "fixed" in sys.argv:
        values.record_stream(side)
    return result


result = total(torch.ones(1024, device="cuda"))
other = torch.zeros(1024, device="cuda")
torch.cuda.current_stream().wait_stream(side)
print(result.item())
