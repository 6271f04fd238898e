// A synchronous copy reads a result before the queue has computed it.
//
// alpaka's blocking queue copied with cudaMemcpy, which works on the legacy stream, what kernels of
// the queue's own, non-blocking stream had computed.
// Report: https://github.com/alpaka-group/alpaka/issues/850
// Wrong: the copy does not wait for the queue's stream, because that is non-blocking.
// Finds: Race: CopyD2H on legacy stream after Fill(0x02) on stream A
#include "zoo.h"

static bool program(void) {
  char *result = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t queue = new_stream();

  OK(cudaMemsetAsync(result, 2, BYTES, queue));  // the kernel
  if (fixed) {
    OK(cudaMemcpyAsync(host, result, BYTES, cudaMemcpyDeviceToHost, queue));
    OK(cudaStreamSynchronize(queue));
  } else {
    OK(cudaMemcpy(host, result, BYTES, cudaMemcpyDeviceToHost));
  }
  return all_are(host, 2, BYTES);
}
