"""A loop over a DataLoader with pinned memory, and a metric that is read too early."""
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(64.0).reshape(16, 4), torch.ones(16))
loader = DataLoader(data, batch_size=4, pin_memory=True)
weights = torch.ones(4, 1, device="cuda")
losses = []
for inputs, targets in loader:
    inputs = inputs.to("cuda", non_blocking=True)
    targets = targets.to("cuda", non_blocking=True)
    loss = ((inputs @ weights).squeeze(1) - targets).abs().mean()
    losses.append(loss.detach().to("cpu", non_blocking="fixed" not in sys.argv))
    print(losses[-1].item())
