// A program that uses the driver and the runtime: memory, streams and contexts of one are the
// other's too.
#include "driver.h"

#include <dlfcn.h>

#include <vector>

int main() {
  const size_t bytes = 4096;
  std::vector<char> there(bytes, 3), back(bytes, 0);
  CUcontext current = nullptr;
  int device;
  void* memory;
  cudaStream_t stream;
  // The runtime makes the driver ready, and its primary context current.
  OK(cudaSetDevice(1));
  FINE(cuCtxGetCurrent(&current));
  FINE(cuCtxGetDevice(&device));
  EXPECT(current != nullptr && device == 1);
  OK(cudaMalloc(&memory, bytes));
  OK(cudaStreamCreate(&stream));
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  FINE(cuMemcpyHtoDAsync(address, there.data(), bytes, stream));
  FINE(cuStreamSynchronize(stream));
  OK(cudaMemcpy(back.data(), memory, bytes, cudaMemcpyDeviceToHost));
  EXPECT(back == there);
  // An error of the driver is not the runtime's last one.
  CUdeviceptr none;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&none, 0));
  OK(cudaGetLastError());
  // A context of the driver says which device the runtime uses.
  CUcontext first;
  FINE(cuDevicePrimaryCtxRetain(&first, 0));
  FINE(cuCtxPushCurrent(first));
  OK(cudaGetDevice(&device));
  EXPECT(device == 0);
  FINE(cuCtxPopCurrent(&first));
  OK(cudaGetDevice(&device));
  EXPECT(device == 1);
  FINE(cuDevicePrimaryCtxRelease(0));
  // How programs find the driver without linking with it.
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  EXPECT(library != nullptr);
  const auto free = reinterpret_cast<CUresult (*)(CUdeviceptr)>(dlsym(library, "cuMemFree_v2"));
  EXPECT(free != nullptr);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion("cuMemFree", &found, 12000, 0, &status));
  EXPECT(found != nullptr && status == 0);
  // A stub is found, as a driver has calls that its device does not support.
  CUresult (*array_destroy)(void*) = nullptr;
  OK(cudaGetDriverEntryPointByVersion(
      "cuArrayDestroy", reinterpret_cast<void**>(&array_destroy), 12000, 0, &status));
  EXPECT(status == 0);
  GIVES(CUDA_ERROR_NOT_SUPPORTED, array_destroy(nullptr));
  OK(cudaGetDriverEntryPointByVersion("cuGraphGetId", &found, 12000, 0, &status));
  EXPECT(found == nullptr && status == 2);
  FINE(free(address));
  OK(cudaStreamDestroy(stream));
  std::puts("one machine");
}
