"""Computes on a side stream with what the default stream has not computed yet."""
import sys

import torch

side = torch.cuda.Stream()
weights = torch.ones(64, 64, device="cuda")
scaled = weights * 2
if "fixed" in sys.argv:
    side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    product = scaled @ weights
torch.cuda.current_stream().wait_stream(side)
print(product[0, 0].item())
