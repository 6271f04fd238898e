// A temporary buffer of a pool is given to the kernels of two streams.
//
// llama.cpp splits the rows of a matrix over several streams. Each of its products took a buffer
// for partial sums from the pool of the device, and gave it back when its kernels were launched.
// Report: https://github.com/ggml-org/llama.cpp/pull/9413
// Wrong: the pool gives the buffer to the next stream while kernels of the first one use it.
// Finds: Race
#include <vector>

#include "kernel.h"

namespace {

// As much as fits: it knows nothing of streams.
class Pool {
 public:
  char* allocate() {
    if (free_.empty()) return device_memory(BYTES);
    char* buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void free(char* buffer) { free_.push_back(buffer); }

 private:
  std::vector<char*> free_;
};

const char partial = 0, fixup = 0;

// A product of one part of the rows, by way of partial sums.
void multiply(Pool& pool, char* rows, char* product, cudaStream_t stream) {
  char* sums = pool.allocate();
  void* first[] = {&rows, &sums};
  void* second[] = {&sums, &product};
  launch(&partial, "_Z7partialPKcPc", first, stream);
  launch(&fixup, "_Z5fixupPKcPc", second, stream);
  pool.free(sums);
}

}  // namespace

extern "C" void pinlane_kernel_partial(dim3, dim3, void** arguments, size_t) {
  const char* rows = *static_cast<const char**>(arguments[0]);
  char* sums = *static_cast<char**>(arguments[1]);
  for (size_t at = 0; at < BYTES; ++at) sums[at] = static_cast<char>(2 * rows[at]);
}

extern "C" void pinlane_kernel_fixup(dim3, dim3, void** arguments, size_t) {
  const char* sums = *static_cast<const char**>(arguments[0]);
  char* product = *static_cast<char**>(arguments[1]);
  for (size_t at = 0; at < BYTES; ++at) product[at] = static_cast<char>(sums[at] + 1);
}

static bool program() {
  Pool pools[2];
  char *rows[2], *products[2], *hosts[2];
  cudaStream_t streams[2];
  for (int i = 0; i < 2; ++i) {
    rows[i] = device_memory(BYTES);
    products[i] = device_memory(BYTES);
    hosts[i] = pinned_memory(BYTES);
    streams[i] = new_stream();
    OK(cudaMemset(rows[i], i + 1, BYTES));
  }
  OK(cudaDeviceSynchronize());

  // The mend, by a pool for each stream; the report does without the partial sums.
  for (int i = 0; i < 2; ++i) multiply(pools[fixed ? i : 0], rows[i], products[i], streams[i]);
  for (int i = 0; i < 2; ++i) {
    OK(cudaMemcpyAsync(hosts[i], products[i], BYTES, cudaMemcpyDeviceToHost, streams[i]));
  }
  OK(cudaDeviceSynchronize());
  return all_are(hosts[0], 3, BYTES) && all_are(hosts[1], 5, BYTES);
}
