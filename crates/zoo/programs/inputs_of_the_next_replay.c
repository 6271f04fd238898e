// The host writes the inputs of the next replay while the last one still reads them.
//
// rtp-llm prepares the inputs of attention in buffers of the host, which its graphs read. The work
// of the next step waited for the replay before; the thread that fills the buffers did not.
// Report: https://github.com/alibaba/rtp-llm/pull/1360
// Wrong: the order of a stream does not keep the host from overwriting what a replay reads.
// Finds: Race: host write on host after CopyH2D on stream A
#include "zoo.h"

static bool program(void) {
  char *inputs = pinned_memory(BYTES), *lengths = device_memory(BYTES);
  char *seen[2] = {pinned_memory(BYTES), pinned_memory(BYTES)};
  cudaStream_t stream = new_stream();
  cudaEvent_t forward = new_event();
  cudaGraph_t graph;
  cudaGraphExec_t replay;

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  OK(cudaMemcpyAsync(lengths, inputs, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&replay, graph, 0));
  for (int step = 0; step < 2; ++step) {
    if (fixed) OK(cudaEventSynchronize(forward));
    memset(inputs, step + 1, BYTES);
    OK(cudaGraphLaunch(replay, stream));
    OK(cudaMemcpyAsync(seen[step], lengths, BYTES, cudaMemcpyDeviceToHost, stream));
    OK(cudaEventRecord(forward, stream));
  }
  OK(cudaStreamSynchronize(stream));
  OK(cudaGraphExecDestroy(replay));
  OK(cudaGraphDestroy(graph));
  return all_are(seen[0], 1, BYTES) && all_are(seen[1], 2, BYTES);
}
