// One event is recorded on several streams, and then waited for once.
//
// cutorch's streamWaitFor had one event for each GPU. It recorded it on every stream of the list,
// and then let the waiting stream wait.
// Report: https://github.com/torch/cutorch/pull/222
// Wrong: recording an event again overwrites it, so the wait covers the last stream only.
// Finds: Race: CopyD2H on stream C after Fill(0x05) on stream A
#include "zoo.h"

static bool program(void) {
  char *tensor = device_memory(2 * BYTES), *host = pinned_memory(2 * BYTES);
  cudaStream_t streams[2] = {new_stream(), new_stream()}, waiting = new_stream();
  cudaEvent_t event = new_event();

  for (int i = 0; i < 2; ++i) OK(cudaMemsetAsync(tensor + i * BYTES, 5, BYTES, streams[i]));
  for (int i = 0; i < 2; ++i) {
    OK(cudaEventRecord(event, streams[i]));
    if (fixed) OK(cudaStreamWaitEvent(waiting, event, 0));
  }
  if (!fixed) OK(cudaStreamWaitEvent(waiting, event, 0));
  OK(cudaMemcpyAsync(host, tensor, 2 * BYTES, cudaMemcpyDeviceToHost, waiting));
  OK(cudaStreamSynchronize(waiting));
  return all_are(host, 5, 2 * BYTES);
}
