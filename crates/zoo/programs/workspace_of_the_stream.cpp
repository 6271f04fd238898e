// A graph is replayed after its workspace was freed with another graph of the same stream.
//
// PyTorch keeps one cuBLAS workspace for each stream. The end of a graph freed the workspace of the
// stream that it was captured on, and another graph that was captured there faulted.
// Report: https://github.com/pytorch/pytorch/issues/193402
// Wrong: each graph has the workspace's address, and none of them keeps the workspace.
// Finds: IllegalAddress
#include <map>
#include <memory>

#include "zoo.h"

namespace {

std::map<cudaStream_t, std::shared_ptr<char>> workspaces;

// Computes by way of the workspace.
class Graph {
 public:
  Graph(char* result, int value, cudaStream_t stream) : stream_(stream) {
    auto& workspace = workspaces[stream];
    if (!workspace) workspace.reset(device_memory(BYTES), [](char* it) { (void)cudaFree(it); });
    if (fixed) kept_ = workspace;
    cudaGraph_t graph;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(workspace.get(), value, BYTES, stream));
    OK(cudaMemcpyAsync(result, workspace.get(), BYTES, cudaMemcpyDeviceToDevice, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&replay_, graph, 0));
    OK(cudaGraphDestroy(graph));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  ~Graph() {
    (void)cudaGraphExecDestroy(replay_);
    workspaces.erase(stream_);
  }

  cudaError_t launch() const { return cudaGraphLaunch(replay_, stream_); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t replay_;
  std::shared_ptr<char> kept_;
};

}  // namespace

static bool program() {
  char *trained = device_memory(BYTES), *evaluated = device_memory(BYTES);
  char* host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();

  Graph training(trained, 1, stream);
  {
    Graph evaluation(evaluated, 2, stream);
    OK(evaluation.launch());
    OK(cudaStreamSynchronize(stream));
  }
  (void)training.launch();
  (void)cudaMemcpyAsync(host, trained, BYTES, cudaMemcpyDeviceToHost, stream);
  return cudaStreamSynchronize(stream) == cudaSuccess && all_are(host, 1, BYTES);
}
