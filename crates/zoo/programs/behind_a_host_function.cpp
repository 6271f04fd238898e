// Ordinary memory is uploaded after the host function that fills it.
//
// A constructor of cudax::async_buffer let a host function fill a temporary, and enqueued the
// upload after it. The bytes arrived that were there before.
// Report: https://github.com/NVIDIA/cccl/issues/3814
// Wrong: the order of the stream does not hold for reading memory that is not page-locked.
// Finds: SourceChanged
#include "zoo.h"

#include <vector>

static void fill(void *to) {
  memset(to, 1, BYTES);
}

static bool program() {
  char *buffer = device_memory(BYTES), *host = pinned_memory(BYTES);
  std::vector<char> ordinary(BYTES, 0);
  char *temporary = fixed ? pinned_memory(BYTES) : ordinary.data();
  if (fixed) memset(temporary, 0, BYTES);
  cudaStream_t stream = new_stream();

  OK(cudaLaunchHostFunc(stream, fill, temporary));
  OK(cudaMemcpyAsync(buffer, temporary, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(host, buffer, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  return all_are(host, 1, BYTES);
}
