// Kernels without nvcc: what the constructors that it writes do.
#pragma once
#include "cuda.h"

#include <initializer_list>
#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
}

// A kernel by its mangled name. Its stand-in is found by that.
class Kernel {
 public:
  explicit Kernel(const char* mangled) {
    static int binary;
    __cudaRegisterFunction(__cudaRegisterFatBinary(&binary), &shadow, nullptr, mangled, -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
  }

  // Launches it, with addresses of its arguments.
  cudaError_t launch(cudaStream_t stream, std::initializer_list<void*> arguments) const {
    std::vector<void*> list(arguments);
    return cudaLaunchKernel(&shadow, {1, 1, 1}, {1, 1, 1}, list.data(), 0, stream);
  }

 private:
  const char shadow = 0;
};
