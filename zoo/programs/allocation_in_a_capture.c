// Memory is allocated on a stream that is capturing.
//
// Copies and temporary memory of a routing solver were allocated in the middle of a graph capture.
// The allocator was another one with CUDA 13, and all captures failed.
// Report: https://github.com/NVIDIA/cuopt/issues/1748
// Wrong: a stream-ordered allocation does not belong into a capture that is to be replayed.
// Finds: Capture
#include "zoo.h"

static bool program(void) {
  char *tensor = device_memory(BYTES);
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  void *temporary = NULL;

  if (fixed) OK(cudaMallocAsync(&temporary, BYTES, stream));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  if (!fixed) (void)cudaMallocAsync(&temporary, BYTES, stream);
  (void)cudaMemsetAsync(tensor, 1, BYTES, stream);
  const bool captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess;
  if (captured) OK(cudaGraphDestroy(graph));
  if (temporary) OK(cudaFreeAsync(temporary, stream));
  OK(cudaStreamSynchronize(stream));
  return captured;
}
