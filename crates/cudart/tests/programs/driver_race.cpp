// Two streams of the driver use the same bytes, and nothing orders them. Then it uses what is gone.
#include "driver.h"

int main() {
  CUcontext context;
  CUstream first, second;
  CUdeviceptr memory;
  void* pinned;
  FINE(cuInit(0));
  FINE(cuDevicePrimaryCtxRetain(&context, 0));
  FINE(cuCtxSetCurrent(context));
  FINE(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  FINE(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  FINE(cuMemAlloc(&memory, 4096));
  FINE(cuMemAllocHost(&pinned, 4096));
  FINE(cuMemsetD8Async(memory, 1, 4096, first));
  FINE(cuMemcpyDtoHAsync(pinned, memory, 4096, second));
  FINE(cuCtxSynchronize());
  FINE(cuStreamDestroy(second));
  GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(second));
  FINE(cuMemFree(memory));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(memory));
  char pageable[8];
  const auto wrong = reinterpret_cast<CUdeviceptr>(pageable);
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD(wrong, pinned, sizeof pageable));
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuEGLStreamConsumerConnect(nullptr, nullptr));
  FINE(cuMemFreeHost(pinned));
  std::puts("done");
}
