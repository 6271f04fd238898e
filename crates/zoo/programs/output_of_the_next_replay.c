// The output of a graph is cloned on one stream, and overwritten by a replay on another.
//
// An encoder of SGLang-Omni has one graph with one output, which two threads use, each on a stream
// of its own. A lock was held until the clone of the output was enqueued, not until it was made.
// Report: https://github.com/sgl-project/sglang-omni/pull/1369
// Wrong: the next replay waits for the last one, and not for the clone of what that has computed.
// Finds: Race: CopyD2D on stream B after CopyD2D on stream A
#include "zoo.h"

static cudaGraphExec_t encoder;
static char *features, *output;
static cudaEvent_t cloned;

static void encode(int clip, char *to, cudaStream_t stream) {
  if (fixed) OK(cudaStreamWaitEvent(stream, cloned, 0));
  OK(cudaMemsetAsync(features, clip, BYTES, stream));
  OK(cudaGraphLaunch(encoder, stream));
  OK(cudaMemcpyAsync(to, output, BYTES, cudaMemcpyDeviceToDevice, stream));
  OK(cudaEventRecord(cloned, stream));
}

static bool program(void) {
  char *clones[2], *host = pinned_memory(BYTES);
  cudaStream_t streams[2] = {new_stream(), new_stream()};
  cudaGraph_t graph;
  features = device_memory(BYTES);
  output = device_memory(BYTES);
  cloned = new_event();

  OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
  OK(cudaMemcpyAsync(output, features, BYTES, cudaMemcpyDeviceToDevice, streams[0]));
  OK(cudaStreamEndCapture(streams[0], &graph));
  OK(cudaGraphInstantiate(&encoder, graph, 0));
  for (int i = 0; i < 2; ++i) {
    clones[i] = device_memory(BYTES);
    encode(i + 1, clones[i], streams[i]);
  }
  OK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    OK(cudaMemcpy(host, clones[i], BYTES, cudaMemcpyDeviceToHost));
    right = right && all_are(host, i + 1, BYTES);
  }
  OK(cudaGraphExecDestroy(encoder));
  OK(cudaGraphDestroy(graph));
  return right;
}
