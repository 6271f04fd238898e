// A graph is replayed after the memory that it copies from has been freed.
//
// candle's CUDA backend uploads small argument buffers with its kernels. Captured into a graph,
// they were dropped after the capture, and replays crashed or computed with other arguments.
// Report: https://github.com/huggingface/candle/pull/3352
// Wrong: each replay reads the page-locked source again, so it must live as long as the graph.
// Finds: FreedInFlight
#include "zoo.h"

static bool program() {
  char *arguments = device_memory(BYTES), *host = pinned_memory(BYTES);
  char* source = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t replay;

  memset(source, 1, BYTES);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemcpyAsync(arguments, source, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(host, arguments, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&replay, graph, 0));
  if (!fixed) OK(cudaFreeHost(source));
  bool right = cudaGraphLaunch(replay, stream) == cudaSuccess;
  right = cudaStreamSynchronize(stream) == cudaSuccess && right;
  (void)cudaGraphExecDestroy(replay);
  (void)cudaGraphDestroy(graph);
  if (fixed) OK(cudaFreeHost(source));
  return right && all_are(host, 1, BYTES);
}
