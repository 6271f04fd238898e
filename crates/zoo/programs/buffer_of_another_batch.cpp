// Page-locked memory that a graph writes and reads is freed when the next batch has another size.
//
// KTransformers takes activations to the experts on the CPU and back through page-locked buffers.
// It kept those of captured batch sizes only, and the prefill graph had not registered its own.
// Report: https://github.com/kvcache-ai/ktransformers/pull/2174
// Wrong: the slot for all other sizes lets go of a buffer whose address a graph has.
// Finds: FreedInFlight
#include <map>
#include <vector>

#include "zoo.h"

namespace {

struct Slot {
  int batch = 0;
  char* buffer = nullptr;
} slot;

std::vector<char*> kept;

char* buffer_for(int batch, bool captures) {
  if (slot.batch != batch) {
    if (slot.buffer) OK(cudaFreeHost(slot.buffer));
    slot = {batch, pinned_memory(BYTES)};
  }
  char* buffer = slot.buffer;
  if (captures && fixed) {
    kept.push_back(buffer);
    slot = {};
  }
  return buffer;
}

void experts(char* activations, int batch, cudaStream_t stream, bool captures) {
  char* buffer = buffer_for(batch, captures);
  OK(cudaMemcpyAsync(buffer, activations, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemcpyAsync(activations, buffer, BYTES, cudaMemcpyHostToDevice, stream));
}

}  // namespace

static bool program() {
  char *activations = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t prefill;

  OK(cudaMemsetAsync(activations, 1, BYTES, stream));
  experts(activations, 8, stream, false);
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  experts(activations, 8, stream, true);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&prefill, graph, 0));

  experts(activations, 3, stream, false);
  (void)cudaGraphLaunch(prefill, stream);
  (void)cudaMemcpyAsync(host, activations, BYTES, cudaMemcpyDeviceToHost, stream);
  const bool right = cudaStreamSynchronize(stream) == cudaSuccess;
  (void)cudaGraphExecDestroy(prefill);
  (void)cudaGraphDestroy(graph);
  for (char* buffer : kept) OK(cudaFreeHost(buffer));
  return right && all_are(host, 1, BYTES);
}
