// A workspace grows, and the graph that has its old address writes over another tensor.
//
// FlashInfer's matrix products share a workspace. A product that needed more had it resized; the
// old block went back to the caching allocator, and graphs that were captured before still used it.
// Report: https://github.com/flashinfer-ai/flashinfer/issues/4398
// Wrong: the block goes to the next tensor, whose readers the replay does not wait for.
// Finds: Race: Fill(0x03) on stream A after CopyD2H on stream B
#include <map>
#include <vector>

#include "zoo.h"

namespace {

// Blocks by their sizes, for the work of one stream.
class CachingAllocator {
 public:
  char* allocate(size_t bytes) {
    auto& free = free_[bytes];
    if (free.empty()) return device_memory(bytes);
    char* block = free.back();
    free.pop_back();
    return block;
  }
  void free(char* block, size_t bytes) { free_[bytes].push_back(block); }

 private:
  std::map<size_t, std::vector<char*>> free_;
};

}  // namespace

static bool program() {
  CachingAllocator allocator;
  cudaStream_t main_stream = new_stream(), side = new_stream();
  cudaEvent_t computed = new_event();
  char *product = device_memory(BYTES), *host = pinned_memory(BYTES);

  char* workspace = allocator.allocate(BYTES);
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  OK(cudaStreamBeginCapture(main_stream, cudaStreamCaptureModeGlobal));
  OK(cudaMemsetAsync(workspace, 3, BYTES, main_stream));
  OK(cudaMemcpyAsync(product, workspace, BYTES, cudaMemcpyDeviceToDevice, main_stream));
  OK(cudaStreamEndCapture(main_stream, &graph));
  OK(cudaGraphInstantiate(&replay, graph, 0));

  // A larger product, outside of the graph. The mend: the graph's workspace stays.
  if (!fixed) allocator.free(workspace, BYTES);
  char* grown = allocator.allocate(2 * BYTES);
  OK(cudaMemsetAsync(grown, 4, 2 * BYTES, main_stream));

  char* tensor = allocator.allocate(BYTES);
  OK(cudaMemsetAsync(tensor, 1, BYTES, main_stream));
  OK(cudaEventRecord(computed, main_stream));
  OK(cudaStreamWaitEvent(side, computed, 0));
  OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, side));
  OK(cudaGraphLaunch(replay, main_stream));
  OK(cudaDeviceSynchronize());
  OK(cudaGraphExecDestroy(replay));
  OK(cudaGraphDestroy(graph));
  return all_are(host, 1, BYTES);
}
