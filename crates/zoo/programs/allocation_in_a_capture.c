// Memory is allocated while a stream of the thread is capturing.
//
// A routing solver allocated temporary memory in the middle of a graph capture. With CUDA 13 that
// came from a resource that is not stream-ordered, and all captures failed.
// Report: https://github.com/NVIDIA/cuopt/issues/1748
// Wrong: cudaMalloc is not allowed while the thread captures, and kills the capture.
// Finds: Capture
#include "zoo.h"

static bool program(void) {
  char *tensor = device_memory(BYTES);
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  void *temporary = NULL;

  if (fixed) OK(cudaMalloc(&temporary, BYTES));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  if (!fixed) (void)cudaMalloc(&temporary, BYTES);
  (void)cudaMemsetAsync(tensor, 1, BYTES, stream);
  const bool captured = cudaStreamEndCapture(stream, &graph) == cudaSuccess;
  if (captured) OK(cudaGraphDestroy(graph));
  if (temporary) OK(cudaFree(temporary));
  OK(cudaStreamSynchronize(stream));
  return captured;
}
