"""A prefetcher as in NVIDIA's Apex: it uploads the next batch on a stream of its own."""
import sys

import torch


class Prefetcher:
    def __init__(self, batches):
        self.batches = iter(batches)
        self.stream = torch.cuda.Stream()
        self.preload()

    def preload(self):
        self.next = next(self.batches, None)
        if self.next is not None:
            with torch.cuda.stream(self.stream):
                self.next = self.next.to("cuda", non_blocking=True)

    def __iter__(self):
        while self.next is not None:
            if "fixed" in sys.argv:
                torch.cuda.current_stream().wait_stream(self.stream)
                self.next.record_stream(torch.cuda.current_stream())
            batch = self.next
            self.preload()
            yield batch


batches = [torch.full((32, 64), float(n)).pin_memory() for n in range(4)]
total = torch.zeros((), device="cuda")
for batch in Prefetcher(batches):
    total += batch.mean()
print(total.item())
