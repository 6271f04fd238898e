// A prefetch thread fills a batch that the last copy from it still reads.
//
// Caffe's data layer copies a batch within the device and gives it back to the prefetch thread,
// which uploads the next one into it, on a non-blocking stream. Images and labels went out of step.
// Report: https://github.com/BVLC/caffe/pull/2998
// Wrong: a copy within the device is not done when the call returns, and the batch is given back.
// Finds: Race: CopyH2D on stream A after CopyD2D on legacy stream
#include <condition_variable>
#include <mutex>
#include <thread>

#include "zoo.h"

namespace {

// One batch goes back and forth between two threads.
class Queue {
 public:
  void push() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++batches_;
    changed_.notify_one();
  }

  void pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return batches_ > 0; });
    --batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int batches_ = 0;
};

}  // namespace

// ANCHOR: shown
static bool program() {
  char *batch = device_memory(BYTES), *top = device_memory(2 * BYTES);
  char* host = pinned_memory(2 * BYTES);
  Queue free_batches, full_batches;
  free_batches.push();

  std::thread prefetch([&] {
    cudaStream_t stream = new_stream();
    char* data = pinned_memory(BYTES);
    for (int number = 0; number < 2; ++number) {
      free_batches.pop();
      memset(data, 1 + number, BYTES);
      OK(cudaMemcpyAsync(batch, data, BYTES, cudaMemcpyHostToDevice, stream));
      OK(cudaStreamSynchronize(stream));
      full_batches.push();
    }
  });
  for (int number = 0; number < 2; ++number) {
    full_batches.pop();
    OK(cudaMemcpy(top + number * BYTES, batch, BYTES, cudaMemcpyDeviceToDevice));
    if (fixed) OK(cudaStreamSynchronize(nullptr));
    free_batches.push();
  }
  prefetch.join();
  OK(cudaMemcpy(host, top, 2 * BYTES, cudaMemcpyDeviceToHost));
  return all_are(host, 1, BYTES) && all_are(host + BYTES, 2, BYTES);
}
// ANCHOR_END: shown
