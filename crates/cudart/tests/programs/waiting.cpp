// A host function waits for a thread that looks for a kernel, while another one looks for a
// variable. That is no deadlock.
#include "driver.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace {

const char* const ptx = ".version 8.0 .global .u32 counter; .entry kernel() { ret; }";
std::atomic<bool> goes_on{false};

void wait(void*) {
  while (!goes_on) std::this_thread::yield();
}

}  // namespace

int main() {
  CUmodule module;
  CUfunction kernel;
  CUdeviceptr counter;
  cudaStream_t stream;
  size_t size;
  OK(cudaStreamCreate(&stream));
  FINE(cuModuleLoadData(&module, ptx));
  OK(cudaLaunchHostFunc(stream, wait, nullptr));
  std::thread looks([&] {
    OK(cudaSetDevice(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    FINE(cuModuleGetFunction(&kernel, module, "kernel"));
    goes_on = true;
  });
  FINE(cuModuleGetGlobal(&counter, &size, module, "counter"));
  looks.join();
  OK(cudaDeviceSynchronize());
  FINE(cuModuleUnload(module));
  std::puts("found");
}
