// A caching allocator compares stream handles, and one handle names two streams.
//
// CUB's CachingDeviceAllocator gives a block to the stream that freed it, without a wait. All
// per-thread default streams have the same handle.
// Report: https://github.com/NVIDIA/cccl/issues/878
// Wrong: the per-thread streams of two threads count as one, so nothing waits.
// Finds: Race: Fill(0x02) on per-thread stream B after CopyD2H on per-thread stream A
#include <thread>
#include <vector>

#include "zoo.h"

namespace {

class CachingAllocator {
 public:
  char* allocate(cudaStream_t stream) {
    if (free_.empty()) return device_memory(BYTES);
    const Block block = free_.back();
    free_.pop_back();
    // The mend: the per-thread handle says nothing.
    const bool same = block.stream == stream && !(fixed && stream == cudaStreamPerThread);
    if (!same) OK(cudaEventSynchronize(block.ready));
    return block.memory;
  }

  void free(char* memory, cudaStream_t stream) {
    Block block{memory, stream, new_event()};
    OK(cudaEventRecord(block.ready, stream));
    free_.push_back(block);
  }

 private:
  struct Block {
    char* memory;
    cudaStream_t stream;
    cudaEvent_t ready;
  };
  std::vector<Block> free_;
};

}  // namespace

static bool program() {
  CachingAllocator allocator;
  char* hosts[2] = {pinned_memory(BYTES), pinned_memory(BYTES)};
  auto work = [&](int value) {
    cudaStream_t stream = cudaStreamPerThread;
    char* memory = allocator.allocate(stream);
    OK(cudaMemsetAsync(memory, value, BYTES, stream));
    OK(cudaMemcpyAsync(hosts[value - 1], memory, BYTES, cudaMemcpyDeviceToHost, stream));
    allocator.free(memory, stream);
  };

  // One after the other, so that the allocator needs no lock. The first thread stays alive.
  work(1);
  std::thread([&] {
    work(2);
    OK(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  OK(cudaStreamSynchronize(cudaStreamPerThread));
  return all_are(hosts[0], 1, BYTES) && all_are(hosts[1], 2, BYTES);
}
