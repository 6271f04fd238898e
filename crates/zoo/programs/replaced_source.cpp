// The vector that an upload reads is freed by the next upload to the same slice.
//
// cudarc's `htod_copy_into` takes a vector over and keeps it in the slice until the next one comes.
// Of two in quick succession the second frees what the first may still read.
// Report: https://github.com/chelsea0x3b/cudarc/issues/314
// Wrong: the copy is not known to be done when its vector goes.
// Finds: SourceChanged
#include "zoo.h"

#include <utility>
#include <vector>

struct Slice {
  char *memory = device_memory(BYTES);
  std::vector<char> source;

  void copy_from(std::vector<char> next, cudaStream_t stream) {
    OK(cudaMemcpyAsync(memory, next.data(), BYTES, cudaMemcpyHostToDevice, stream));
    if (fixed) OK(cudaStreamSynchronize(stream));
    source = std::move(next);
  }
};

static bool program() {
  constexpr int batches = 4;
  char *results = device_memory(batches * BYTES), *host = pinned_memory(batches * BYTES);
  cudaStream_t stream = new_stream();
  Slice slice;

  for (int batch = 0; batch < batches; ++batch) {
    slice.copy_from(std::vector<char>(BYTES, static_cast<char>(batch + 1)), stream);
    OK(cudaMemcpyAsync(results + batch * BYTES, slice.memory, BYTES, cudaMemcpyDeviceToDevice,
                       stream));
  }
  OK(cudaMemcpyAsync(host, results, batches * BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  bool right = true;
  for (int batch = 0; batch < batches; ++batch) {
    right &= all_are(host + batch * BYTES, batch + 1, BYTES);
  }
  return right;
}
