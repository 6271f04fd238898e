// The host reads the destination of an asynchronous download at once.
//
// `tensor.to("cpu", non_blocking=True)` was followed by a comparison on the CPU. It failed, and did
// not after a sleep.
// Report: https://github.com/pytorch/pytorch/issues/86264
// Wrong: nothing waits for the copy before the host reads.
// Finds: Race: host read on host after CopyD2H on stream A
#include "zoo.h"

// ANCHOR: shown
static bool program(void) {
  char *tensor = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();

  OK(cudaMemsetAsync(tensor, 2, BYTES, stream));
  OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, stream));
  if (fixed) OK(cudaStreamSynchronize(stream));
  const bool right = all_are(host, 2, BYTES);
  OK(cudaStreamSynchronize(stream));
  return right;
}
// ANCHOR_END: shown
