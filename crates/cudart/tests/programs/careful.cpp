// Looks at each result, and gives back what it has when one is an error.
#include "cuda.h"

static int failures = 0;

static bool is_done(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return true;
  std::printf("%s: %s\n", call, cudaGetErrorName(error));
  ++failures;
  return false;
}
#define DONE(call, ...) is_done(#call, call(__VA_ARGS__))

static bool copies(cudaStream_t stream, int* host, int* first, int* second) {
  for (int at = 0; at < 100; ++at) host[at] = at;
  const size_t bytes = 100 * sizeof(int);
  if (!DONE(cudaMemcpyAsync, first, host, bytes, cudaMemcpyHostToDevice, stream)) return false;
  if (!DONE(cudaMemcpyAsync, second, first, bytes, cudaMemcpyDeviceToDevice, stream)) return false;
  if (!DONE(cudaStreamSynchronize, stream)) return false;
  for (int at = 0; at < 100; ++at) host[at] = 0;
  if (!DONE(cudaMemcpyAsync, host, second, bytes, cudaMemcpyDeviceToHost, stream)) return false;
  if (!DONE(cudaStreamSynchronize, stream)) return false;
  for (int at = 0; at < 100; ++at) {
    if (host[at] != at) {
      std::puts("a wrong byte");
      return false;
    }
  }
  return true;
}

int main() {
  int *host = nullptr, *first = nullptr, *second = nullptr;
  cudaStream_t stream = nullptr;
  bool right = false;
  if (DONE(cudaMalloc, reinterpret_cast<void**>(&first), 400) &&
      DONE(cudaMalloc, reinterpret_cast<void**>(&second), 400) &&
      DONE(cudaMallocHost, reinterpret_cast<void**>(&host), 400) &&
      DONE(cudaStreamCreate, &stream)) {
    right = copies(stream, host, first, second);
  }
  if (stream != nullptr) {
    DONE(cudaStreamSynchronize, stream);
    DONE(cudaStreamDestroy, stream);
  }
  if (host != nullptr) DONE(cudaFreeHost, host);
  if (second != nullptr) DONE(cudaFree, second);
  if (first != nullptr) DONE(cudaFree, first);
  if (right && failures == 0) std::puts("all is right");
  return right && failures == 0 ? 0 : 1;
}
