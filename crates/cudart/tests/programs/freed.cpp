// Uses memory of the device after it was freed: at once, and from another stream.
#include "cuda.h"

#include <vector>

int main() {
  std::vector<char> there(4096, 3);
  void *a, *b;
  OK(cudaMalloc(&a, there.size()));
  OK(cudaFree(a));
  EXPECT(cudaMemcpy(a, there.data(), there.size(), cudaMemcpyHostToDevice) ==
         cudaErrorInvalidValue);
  EXPECT(cudaFree(a) == cudaErrorInvalidValue);

  cudaStream_t first, second;
  OK(cudaStreamCreate(&first));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaMallocAsync(&b, there.size(), first));
  OK(cudaStreamSynchronize(first));
  OK(cudaMemsetAsync(b, 1, there.size(), second));
  OK(cudaFreeAsync(b, first));
  // Either one may run first: nothing makes one wait for the other.
  (void)cudaStreamSynchronize(first);
  std::printf("%s\n", cudaGetErrorName(cudaStreamSynchronize(second)));
}
