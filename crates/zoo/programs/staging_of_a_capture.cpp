// The staging buffer of a captured upload goes back to its pool, and the next upload fills it.
//
// ONNX Runtime stages arrays of pointers in page-locked memory, and returned it right after the
// upload was enqueued. In a capture nothing is uploaded yet: each replay reads the buffer again.
// Report: https://github.com/microsoft/onnxruntime/pull/32121
// Wrong: the pool gives out memory that the graph has the address of.
// Finds: Race: host write on host after CopyH2D on stream A
#include <vector>

#include "zoo.h"

// ANCHOR: shown
static std::vector<char*> pool;

static void upload(char* to, int pointers, cudaStream_t stream, bool captures) {
  char* staging;
  if (pool.empty()) {
    staging = pinned_memory(BYTES);
  } else {
    staging = pool.back();
    pool.pop_back();
  }
  memset(staging, pointers, BYTES);
  OK(cudaMemcpyAsync(to, staging, BYTES, cudaMemcpyHostToDevice, stream));
  if (!captures) OK(cudaStreamSynchronize(stream));
  if (!captures || !fixed) pool.push_back(staging);
}

static bool program() {
  char *decoded = device_memory(BYTES), *prefilled = device_memory(BYTES);
  char* hosts[2] = {pinned_memory(BYTES), pinned_memory(BYTES)};
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t decode;

  upload(decoded, 1, stream, false);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  upload(decoded, 1, stream, true);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&decode, graph, 0));

  for (int step = 0; step < 2; ++step) {
    OK(cudaGraphLaunch(decode, stream));
    OK(cudaMemcpyAsync(hosts[step], decoded, BYTES, cudaMemcpyDeviceToHost, stream));
    if (step == 0) upload(prefilled, 2, stream, false);
  }
  OK(cudaStreamSynchronize(stream));
  OK(cudaGraphExecDestroy(decode));
  OK(cudaGraphDestroy(graph));
  return all_are(hosts[0], 1, BYTES) && all_are(hosts[1], 1, BYTES);
}
// ANCHOR_END: shown
