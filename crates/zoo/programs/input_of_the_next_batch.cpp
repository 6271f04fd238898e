// The input of the next micro-batch overwrites that of the running one.
//
// llama.cpp uploads inputs on the per-thread default stream and computes on non-blocking streams.
// With several micro-batches the draft model's acceptance fell to zero.
// Report: https://github.com/ggml-org/llama.cpp/issues/27572
// Wrong: nothing orders the upload after the graph that reads the same input tensor.
// Finds: Race: CopyH2D on per-thread stream B after CopyD2D on stream A
#include "zoo.h"

// ANCHOR: shown
static bool program() {
  char *input = device_memory(BYTES), *state = device_memory(BYTES);
  char *batches[2] = {pinned_memory(BYTES), pinned_memory(BYTES)};
  char* results = pinned_memory(2 * BYTES);
  cudaStream_t compute = new_stream();
  cudaEvent_t computed = new_event(), uploaded = new_event();

  for (int batch = 0; batch < 2; ++batch) {
    memset(batches[batch], 1 + batch, BYTES);
    if (fixed) OK(cudaStreamWaitEvent(cudaStreamPerThread, computed, 0));
    OK(cudaMemcpyAsync(
        input, batches[batch], BYTES, cudaMemcpyHostToDevice, cudaStreamPerThread));
    OK(cudaEventRecord(uploaded, cudaStreamPerThread));
    OK(cudaStreamWaitEvent(compute, uploaded, 0));
    OK(cudaMemcpyAsync(state, input, BYTES, cudaMemcpyDeviceToDevice, compute));  // the graph
    OK(cudaMemcpyAsync(results + batch * BYTES, state, BYTES, cudaMemcpyDeviceToHost, compute));
    OK(cudaEventRecord(computed, compute));
  }
  OK(cudaDeviceSynchronize());
  return all_are(results, 1, BYTES) && all_are(results + BYTES, 2, BYTES);
}
// ANCHOR_END: shown
