// Two KV blocks are offloaded to the same block of the host, one after the other, on two streams.
//
// TensorRT-LLM's transfer manager kept no record of copies that were still pending. A block of the
// host could be given out again in the same step, and then held a mixture.
// Report: https://github.com/NVIDIA/TensorRT-LLM/pull/9056
// Wrong: the second copy into a block does not wait for the first one.
// Finds: Race: CopyD2H on stream B after CopyD2H on stream A
#include "zoo.h"

static bool program() {
  char *blocks[2] = {device_memory(BYTES), device_memory(BYTES)};
  char* secondary = pinned_memory(BYTES);
  cudaStream_t streams[2] = {new_stream(), new_stream()};
  cudaEvent_t written = new_event();

  for (int at = 0; at < 2; ++at) OK(cudaMemset(blocks[at], 1 + at, BYTES));
  OK(cudaDeviceSynchronize());
  for (int at = 0; at < 2; ++at) {
    if (fixed) OK(cudaStreamWaitEvent(streams[at], written, 0));
    OK(cudaMemcpyAsync(secondary, blocks[at], BYTES, cudaMemcpyDeviceToHost, streams[at]));
    OK(cudaEventRecord(written, streams[at]));
  }
  OK(cudaStreamSynchronize(streams[1]));
  OK(cudaStreamSynchronize(streams[0]));
  return all_are(secondary, 2, BYTES);
}
