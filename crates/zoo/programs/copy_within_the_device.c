// A synchronous copy within the device is not done when it returns.
//
// A transfer engine moved KV caches with cudaMemcpy from device memory to device memory, and told
// the reader that they had arrived. Profiles showed 2 TB/s.
// Report: https://github.com/kvcache-ai/Mooncake/pull/1918
// Wrong: cudaMemcpy within a device does not synchronize with the host.
// Finds: Race: CopyD2H on stream A after CopyD2D on legacy stream
#include "zoo.h"

static bool program(void) {
  char *from = device_memory(BYTES), *to = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t reader = new_stream();
  cudaEvent_t moved = new_event();

  OK(cudaMemset(from, 4, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(to, from, BYTES, cudaMemcpyDeviceToDevice));
  if (fixed) {
    OK(cudaEventRecord(moved, NULL));
    OK(cudaEventSynchronize(moved));
  }
  // The reader gets the message: it has a stream of its own.
  OK(cudaMemcpyAsync(host, to, BYTES, cudaMemcpyDeviceToHost, reader));
  OK(cudaStreamSynchronize(reader));
  return all_are(host, 4, BYTES);
}
