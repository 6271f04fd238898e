// A host function calls CUDA, which it must not, while its device is reset. That is no deadlock.
#include "driver.h"

#include <unistd.h>

namespace {

void call(void* result) {
  usleep(100'000);  // the reset waits by now
  void* memory;
  *static_cast<cudaError_t*>(result) = cudaMalloc(&memory, 100);
}

}  // namespace

int main() {
  cudaStream_t stream;
  cudaError_t result = cudaSuccess;
  OK(cudaStreamCreate(&stream));
  OK(cudaLaunchHostFunc(stream, call, &result));
  FINE(cuDevicePrimaryCtxReset(0));
  EXPECT(result == cudaErrorNotPermitted);
  std::puts("reset");
}
