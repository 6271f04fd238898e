// A host function takes a lock that is held by who waits for the stream.
//
// LMCache's event bus was called from a host function, which needs the lock of the interpreter.
// Another thread held that lock, and waited for the GPU.
// Report: https://github.com/LMCache/LMCache/pull/2952
// Wrong: a host function waits for a thread that waits for the host function.
// Finds: Deadlock
#include <mutex>

#include "zoo.h"

static std::mutex interpreter;
static int published;

static void publish(void*) {
  std::lock_guard<std::mutex> lock(interpreter);
  ++published;
}

static bool program() {
  char *tensor = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();
  bool waited;
  {
    std::unique_lock<std::mutex> lock(interpreter);
    OK(cudaMemsetAsync(tensor, 7, BYTES, stream));
    OK(cudaLaunchHostFunc(stream, publish, nullptr));
    OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, stream));
    if (fixed) lock.unlock();
    waited = cudaStreamSynchronize(stream) == cudaSuccess;
  }
  OK(cudaStreamSynchronize(stream));
  return waited && published == 1 && all_are(host, 7, BYTES);
}
