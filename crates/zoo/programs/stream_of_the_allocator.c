// A buffer is freed after the stream that it frees itself on.
//
// A buffer with a stream-ordered deallocation stays in its scope to the end, and the stream was
// destroyed by hand a line before that.
// Report: https://github.com/NVIDIA-Genomics-Research/GenomeWorks/issues/393
// Wrong: the stream is used after its destruction.
// Finds: BadHandle
#include "zoo.h"

struct buffer {
  void *memory;
  cudaStream_t stream;
};

static bool release(struct buffer *buffer) {
  return cudaStreamSynchronize(buffer->stream) == cudaSuccess &&
         cudaFreeAsync(buffer->memory, buffer->stream) == cudaSuccess;
}

static bool program(void) {
  char *host = pinned_memory(BYTES);
  struct buffer buffer = {NULL, new_stream()};
  bool released = true;

  OK(cudaMallocAsync(&buffer.memory, BYTES, buffer.stream));
  OK(cudaMemsetAsync(buffer.memory, 9, BYTES, buffer.stream));
  OK(cudaMemcpyAsync(host, buffer.memory, BYTES, cudaMemcpyDeviceToHost, buffer.stream));
  if (fixed) {
    released = release(&buffer);
    OK(cudaStreamDestroy(buffer.stream));
  } else {
    OK(cudaStreamDestroy(buffer.stream));
    released = release(&buffer);
  }
  OK(cudaDeviceSynchronize());
  return released && all_are(host, 9, BYTES);
}
