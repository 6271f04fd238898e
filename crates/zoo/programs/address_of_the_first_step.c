// A graph is captured with memory of the first step, and replayed in the next one.
//
// imp allocated the metadata of its KV cache anew at each step of the decoder, in the order of the
// stream. The graph that the first step captured kept the first address.
// Report: https://github.com/kekzl/imp/issues/1648
// Wrong: the memory of the first step is freed before the second one replays the graph.
// Finds: IllegalAddress
#include "zoo.h"

static bool program(void) {
  char *logits = device_memory(BYTES);
  char *hosts[2] = {pinned_memory(BYTES), pinned_memory(BYTES)};
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t forward;
  void *slots = NULL;
  bool right = true;

  for (int step = 0; step < 2; ++step) {
    // The mend: one allocation for all steps.
    if (step == 0 || !fixed) OK(cudaMallocAsync(&slots, BYTES, stream));
    OK(cudaMemsetAsync(slots, step + 1, BYTES, stream));
    if (step == 0) {
      OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      OK(cudaMemcpyAsync(logits, slots, BYTES, cudaMemcpyDeviceToDevice, stream));
      OK(cudaStreamEndCapture(stream, &graph));
      OK(cudaGraphInstantiate(&forward, graph, 0));
    }
    (void)cudaGraphLaunch(forward, stream);
    (void)cudaMemcpyAsync(hosts[step], logits, BYTES, cudaMemcpyDeviceToHost, stream);
    if (step == 1 || !fixed) (void)cudaFreeAsync(slots, stream);
  }
  right = cudaStreamSynchronize(stream) == cudaSuccess;
  (void)cudaGraphExecDestroy(forward);
  (void)cudaGraphDestroy(graph);
  return right && all_are(hosts[0], 1, BYTES) && all_are(hosts[1], 2, BYTES);
}
