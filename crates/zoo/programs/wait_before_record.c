// A stream waits for an event that is recorded only later.
//
// A scheduler has two workers, each with a stream. The one that consumes may be ahead, and then
// waits before the other one records.
// Report: https://github.com/sgl-project/sglang/pull/14214
// Wrong: the wait for an event that was never recorded is no wait.
// Finds: Race: Fill(0x06) on stream A after CopyD2H on stream B
#include "zoo.h"

static bool program(void) {
  char *tensor = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t producer = new_stream(), consumer = new_stream();
  cudaEvent_t produced = new_event();

  if (fixed) {
    OK(cudaMemsetAsync(tensor, 6, BYTES, producer));
    OK(cudaEventRecord(produced, producer));
  }
  OK(cudaStreamWaitEvent(consumer, produced, 0));
  OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, consumer));
  if (!fixed) {
    OK(cudaMemsetAsync(tensor, 6, BYTES, producer));
    OK(cudaEventRecord(produced, producer));
  }
  OK(cudaStreamSynchronize(producer));
  OK(cudaStreamSynchronize(consumer));
  return all_are(host, 6, BYTES);
}
