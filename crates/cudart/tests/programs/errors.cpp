// Calls everything wrongly: each gives an error, and none crashes.
#include "cuda.h"

#include <cstring>
#include <thread>

int main() {
  void *a, *host;
  const auto invalid = cudaErrorInvalidValue;
  EXPECT(cudaPeekAtLastError() == cudaSuccess);
  EXPECT(cudaMalloc(nullptr, 1) == invalid);
  EXPECT(cudaGetDevice(nullptr) == invalid);
  EXPECT(cudaGetDeviceCount(nullptr) == invalid);
  EXPECT(cudaStreamCreate(nullptr) == invalid);
  EXPECT(cudaEventCreate(nullptr) == invalid);
  EXPECT(cudaMallocHost(nullptr, 1) == invalid);
  EXPECT(cudaPointerGetAttributes(nullptr, &a) == invalid);
  EXPECT(cudaLaunchHostFunc(nullptr, nullptr, nullptr) == invalid);
  EXPECT(cudaMemcpy(nullptr, nullptr, 1, cudaMemcpyDefault) == invalid);
  OK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));

  // The last error of a thread is its own.
  EXPECT(cudaPeekAtLastError() == invalid);
  std::thread([] {
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(cudaSetDevice(99) == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  }).join();
  EXPECT(cudaGetLastError() == invalid);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(std::strcmp(cudaGetErrorName(invalid), "cudaErrorInvalidValue") == 0);

  // The current device is each thread's own.
  int device = -1, count = 0;
  OK(cudaGetDeviceCount(&count));
  EXPECT(count == 2);
  OK(cudaSetDevice(1));
  std::thread([&] { OK(cudaGetDevice(&device)); }).join();
  EXPECT(device == 0);
  OK(cudaGetDevice(&device));
  EXPECT(device == 1);

  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaStreamDestroy(stream));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  cudaEvent_t event;
  OK(cudaEventCreate(&event));
  OK(cudaEventDestroy(event));
  EXPECT(cudaEventRecord(event, nullptr) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventQuery(reinterpret_cast<cudaEvent_t>(&event)) == cudaErrorInvalidResourceHandle);

  OK(cudaMalloc(&a, 100));
  OK(cudaMallocHost(&host, 100));
  EXPECT(cudaMemcpy(a, host, 101, cudaMemcpyHostToDevice) == invalid);
  // A finding only: GPUs go by the pointers.
  OK(cudaMemcpy(a, host, 100, cudaMemcpyDeviceToHost));
  EXPECT(cudaMemset(a, 0, 101) == invalid);
  EXPECT(cudaFree(static_cast<char*>(a) + 1) == invalid);
  EXPECT(cudaFree(&a) == invalid);
  EXPECT(cudaFreeHost(&a) == invalid);
  EXPECT(cudaHostRegister(host, 100, 0) == invalid);
  EXPECT(cudaFreeAsync(&a, nullptr) == invalid);
  EXPECT(cudaLaunchKernel(static_cast<const void*>(&device), {1, 1, 1}, {1, 1, 1}, nullptr,
                          0, nullptr) == cudaErrorInvalidDeviceFunction);
  EXPECT(cudaGraphCreate(nullptr, 0) == cudaErrorNotSupported);
  OK(cudaFree(a));
  OK(cudaFreeHost(host));
  std::puts("all are errors");
}
