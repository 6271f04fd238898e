// cudaMemset returns before the memory is set, and a non-blocking stream does not wait for it.
//
// In alpaka, a buffer was set by cudaMemset and then used by a queue, whose stream is non-blocking.
// Report: https://github.com/alpaka-group/alpaka/issues/851
// Wrong: nothing orders the legacy stream, on which cudaMemset works, before the queue.
// Finds: Race: CopyD2H on stream A after Fill(0x01) on legacy stream
#include "zoo.h"

static bool program(void) {
  char *buffer = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t queue = new_stream();

  OK(cudaMemset(buffer, 1, BYTES));
  if (fixed) OK(cudaDeviceSynchronize());
  OK(cudaMemcpyAsync(host, buffer, BYTES, cudaMemcpyDeviceToHost, queue));
  OK(cudaStreamSynchronize(queue));
  return all_are(host, 1, BYTES);
}
