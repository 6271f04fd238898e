// A tensor goes back to the caching allocator while another stream still copies it.
//
// An embedding table was stashed to the host on a side stream, and its memory released. The
// allocator gave it to the next tensor of the main stream, and the stash had NaNs in it.
// Report: https://github.com/meta-pytorch/torchrec/pull/4231
// Wrong: no `record_stream` lets the allocator know that the side stream uses the memory.
// Finds: Race: Fill(0x02) on stream A after CopyD2H on stream B
#include <vector>

#include "zoo.h"

namespace {

// Memory that is freed can be used again at once by the stream that allocates from here.
class CachingAllocator {
 public:
  explicit CachingAllocator(cudaStream_t stream) : stream_(stream) {}

  char* allocate() {
    if (free_.empty()) return device_memory(BYTES);
    const Block block = free_.back();
    free_.pop_back();
    if (block.used_by) OK(cudaStreamWaitEvent(stream_, block.used_by, 0));
    return block.memory;
  }

  void free(char* memory, cudaStream_t recorded = nullptr) {
    Block block{memory, nullptr};
    if (recorded) {
      block.used_by = new_event();
      OK(cudaEventRecord(block.used_by, recorded));
    }
    free_.push_back(block);
  }

 private:
  struct Block {
    char* memory;
    cudaEvent_t used_by;
  };
  cudaStream_t stream_;
  std::vector<Block> free_;
};

}  // namespace

// ANCHOR: shown
static bool program() {
  cudaStream_t main_stream = new_stream(), side = new_stream();
  cudaEvent_t computed = new_event();
  CachingAllocator allocator(main_stream);
  char* stash = pinned_memory(BYTES);

  char* table = allocator.allocate();
  OK(cudaMemsetAsync(table, 1, BYTES, main_stream));
  OK(cudaEventRecord(computed, main_stream));
  OK(cudaStreamWaitEvent(side, computed, 0));
  OK(cudaMemcpyAsync(stash, table, BYTES, cudaMemcpyDeviceToHost, side));
  allocator.free(table, fixed ? side : nullptr);
  OK(cudaMemsetAsync(allocator.allocate(), 2, BYTES, main_stream));
  OK(cudaDeviceSynchronize());
  return all_are(stash, 1, BYTES);
}
// ANCHOR_END: shown
