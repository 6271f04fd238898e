// A page-locked vector goes back to its pool before the copy from it has run.
//
// cuDF's concatenate staged its offsets in page-locked memory of a pool, enqueued their upload, and
// returned. The next owner, on another thread, wrote its own values there.
// Report: https://github.com/NVIDIA/cudf/issues/24255
// Wrong: a pool that orders streams does not order what the host writes to the memory.
// Finds: Race: host write on host after CopyH2D on stream A
#include <vector>

#include "zoo.h"

// ANCHOR: shown
static std::vector<char*> pool;

static char* take() {
  if (pool.empty()) return pinned_memory(BYTES);
  char* memory = pool.back();
  pool.pop_back();
  return memory;
}

static void concatenate(char* to, int offsets, cudaStream_t stream) {
  char* staging = take();
  memset(staging, offsets, BYTES);
  OK(cudaMemcpyAsync(to, staging, BYTES, cudaMemcpyHostToDevice, stream));
  if (fixed) OK(cudaStreamSynchronize(stream));
  pool.push_back(staging);
}

static bool program() {
  char *first = device_memory(BYTES), *second = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t streams[2] = {new_stream(), new_stream()};

  concatenate(first, 1, streams[0]);
  concatenate(second, 2, streams[1]);
  OK(cudaStreamSynchronize(streams[0]));
  OK(cudaStreamSynchronize(streams[1]));
  OK(cudaMemcpy(host, first, BYTES, cudaMemcpyDeviceToHost));
  return all_are(host, 1, BYTES);
}
// ANCHOR_END: shown
