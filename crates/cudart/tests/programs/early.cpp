// Writes what a copy takes, and reads what a copy brings, before the copies are complete. With
// WAITS in its environment it waits first.
#include "cuda.h"

#include <cstdlib>
#include <cstring>

int main() {
  const bool waits = std::getenv("WAITS") != nullptr;
  constexpr std::size_t bytes = 10000;
  char *host, *device;
  cudaStream_t stream;
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), bytes));
  OK(cudaMalloc(reinterpret_cast<void**>(&device), bytes));
  OK(cudaStreamCreate(&stream));
  std::memset(host, 3, bytes);
  // ANCHOR: shown
  OK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
  if (waits) {
    OK(cudaStreamSynchronize(stream));
  }
  std::memset(host, 4, bytes); // the first copy may still read
  OK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
  if (waits) {
    OK(cudaStreamSynchronize(stream));
  }
  std::printf("%d\n", host[bytes - 1]); // the second one may not have written
  // ANCHOR_END: shown
  OK(cudaStreamSynchronize(stream));
  OK(cudaFreeHost(host));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}
