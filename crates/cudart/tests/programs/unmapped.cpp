// Gives a pageable source back to the system before the stream is done with it.
#include "cuda.h"

#include <sys/mman.h>

int main() {
  const size_t bytes = 1 << 20;
  void* there = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cudaStream_t stream;
  void* a;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&a, bytes));
  OK(cudaMemcpyAsync(a, there, bytes, cudaMemcpyHostToDevice, stream));
  munmap(there, bytes);
  OK(cudaStreamSynchronize(stream));
}
