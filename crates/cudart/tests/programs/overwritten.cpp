// Writes to a pageable source before the stream is done with it.
#include "cuda.h"

#include <vector>

int main() {
  std::vector<char> there(1 << 16, 3), back(1 << 16, 0);
  cudaStream_t stream;
  void* a;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&a, there.size()));
  // ANCHOR: shown
  OK(cudaMemcpyAsync(a, there.data(), there.size(), cudaMemcpyHostToDevice, stream));
  there.assign(there.size(), 9); // the stream may not be done with it
  OK(cudaStreamSynchronize(stream));
  // ANCHOR_END: shown
  OK(cudaMemcpy(back.data(), a, back.size(), cudaMemcpyDeviceToHost));
  std::printf("%d %d\n", back.front(), back.back());
}
