// An upload from a local variable is captured, and replayed when the variable is gone.
//
// Kernels of Paddle uploaded their shapes and tables of pointers from locals. Outside of a graph
// that went well, because ordinary memory is mostly read at the call.
// Report: https://github.com/PaddlePaddle/Paddle/pull/78568
// Wrong: each replay reads the stack of whatever the thread calls by then.
// Finds: SourceChanged
#include "zoo.h"

enum { SHAPE = 4096 };

static char kept[SHAPE];

static void upload_shape(char *to, cudaStream_t stream) {
  char shape[SHAPE];
  memset(shape, 1, SHAPE);
  memcpy(kept, shape, SHAPE);
  OK(cudaMemcpyAsync(to, fixed ? kept : shape, SHAPE, cudaMemcpyHostToDevice, stream));
}

static bool program(void) {
  char *shape = device_memory(SHAPE), *host = pinned_memory(SHAPE);
  cudaStream_t stream = new_stream();
  cudaGraph_t graph;
  cudaGraphExec_t replay;

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  upload_shape(shape, stream);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&replay, graph, 0));
  OK(cudaGraphLaunch(replay, stream));
  OK(cudaMemcpyAsync(host, shape, SHAPE, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaGraphExecDestroy(replay));
  OK(cudaGraphDestroy(graph));
  return all_are(host, 1, SHAPE);
}
