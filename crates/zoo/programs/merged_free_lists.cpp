// A pool merges the free lists of two streams, and forgets whose work the blocks wait for.
//
// RMM's pool keeps a free list and an event for each stream. Where no list has a block that is long
// enough, it merges lists: one stream waits for the other's event. Eight threads that shared a pool
// got sorted data with other threads' bytes in it.
// Report: https://github.com/rapidsai/rmm/issues/2489
// Wrong: the event of the merged list is not recorded again, and says nothing of the new blocks.
// Finds: Race: Fill(0x02) on stream C after CopyD2H on stream B
#include <map>
#include <vector>

#include "zoo.h"

namespace {

// A pool of blocks of one size. It gives two neighbours as one.
class Pool {
 public:
  explicit Pool(int blocks) : memory_(device_memory(blocks * BYTES)) {
    for (int at = 0; at < blocks; ++at) lists_[nullptr].blocks.push_back(memory_ + at * BYTES);
  }

  void free(void* block, cudaStream_t stream) {
    List& list = of(stream);
    list.blocks.push_back(static_cast<char*>(block));
    OK(cudaEventRecord(list.event, stream));
  }

  void* allocate(cudaStream_t stream) {
    if (of(stream).blocks.empty()) {
      for (auto& [other, list] : lists_) {
        if (list.blocks.empty()) continue;
        if (list.event) OK(cudaStreamWaitEvent(stream, list.event, 0));
        return take(list);
      }
    }
    return take(of(stream));
  }

  // All free blocks in one list: that of the stream.
  void merge(cudaStream_t stream) {
    List& mine = of(stream);
    for (auto& [other, list] : lists_) {
      if (other == stream || list.blocks.empty()) continue;
      OK(cudaStreamWaitEvent(stream, list.event, 0));
      mine.blocks.insert(mine.blocks.end(), list.blocks.begin(), list.blocks.end());
      list.blocks.clear();
    }
    if (fixed) OK(cudaEventRecord(mine.event, stream));
  }

 private:
  struct List {
    std::vector<char*> blocks;
    cudaEvent_t event = nullptr;
  };

  List& of(cudaStream_t stream) {
    List& list = lists_[stream];
    if (!list.event && stream) list.event = new_event();
    return list;
  }

  static void* take(List& list) {
    char* block = list.blocks.back();
    list.blocks.pop_back();
    return block;
  }

  char* memory_;
  std::map<cudaStream_t, List> lists_;
};

}  // namespace

static bool program() {
  cudaStream_t a = new_stream(), b = new_stream(), c = new_stream();
  char* host = pinned_memory(BYTES);
  Pool pool(2);
  void *first = pool.allocate(a), *last = pool.allocate(b);

  OK(cudaMemsetAsync(last, 1, BYTES, b));
  OK(cudaMemcpyAsync(host, last, BYTES, cudaMemcpyDeviceToHost, b));
  pool.free(first, a);
  pool.free(last, b);
  pool.merge(a);  // stream a asks for two blocks at once, and gives up
  OK(cudaMemsetAsync(pool.allocate(c), 2, BYTES, c));
  OK(cudaStreamSynchronize(c));
  OK(cudaStreamSynchronize(b));
  return all_are(host, 1, BYTES);
}
