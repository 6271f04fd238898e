// The kernels of the samples, on the host.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <ctime>

namespace {

template <class T>
T value(void* argument) {
  return *static_cast<T*>(argument);
}

std::size_t threads(dim3 grid, dim3 block) {
  return std::size_t(grid.x) * grid.y * grid.z * block.x * block.y * block.z;
}

template <class T>
void add(void** args) {
  const T* a = value<const T*>(args[0]);
  const T* b = value<const T*>(args[1]);
  T* sum = value<T*>(args[2]);
  for (int at = 0; at < value<int>(args[3]); ++at) {
    sum[at] = a[at] + b[at];
  }
}

void runs_so_long(void** args) {
  *value<clock_t*>(args[0]) = value<clock_t>(args[1]);
}

} // namespace

extern "C" {

// asyncAPI: increment_kernel(int* data, int by)
void pinlane_kernel_increment_kernel(dim3 grid, dim3 block, void** args, std::size_t) {
  int* data = value<int*>(args[0]);
  const int by = value<int>(args[1]);
  for (std::size_t at = 0; at < threads(grid, block); ++at) {
    data[at] += by;
  }
}

// cudaOpenMP: kernelAddConstant(int* data, const int by)
void pinlane_kernel_kernelAddConstant(dim3 grid, dim3 block, void** args, std::size_t shared) {
  pinlane_kernel_increment_kernel(grid, block, args, shared);
}

// simpleMultiCopy: incKernel(int* out, int* in, int count, int repetitions)
void pinlane_kernel__Z9incKernelPiS_ii(dim3, dim3, void** args, std::size_t) {
  int* out = value<int*>(args[0]);
  const int* in = value<const int*>(args[1]);
  for (int at = 0; at < value<int>(args[2]); ++at) {
    out[at] = in[at] + 1;
  }
}

// simpleCallback: incKernel(int* data, int count)
void pinlane_kernel__Z9incKernelPii(dim3, dim3, void** args, std::size_t) {
  int* data = value<int*>(args[0]);
  for (int at = 0; at < value<int>(args[1]); ++at) {
    ++data[at];
  }
}

// simpleHyperQ: kernel_A(clock_t* took, clock_t clocks), and kernel_B
void pinlane_kernel_kernel_A(dim3, dim3, void** args, std::size_t) {
  runs_so_long(args);
}
void pinlane_kernel_kernel_B(dim3, dim3, void** args, std::size_t) {
  runs_so_long(args);
}

// simpleHyperQ: sum(clock_t* clocks, int count)
void pinlane_kernel_sum(dim3, dim3, void** args, std::size_t) {
  clock_t* clocks = value<clock_t*>(args[0]);
  for (int at = 1; at < value<int>(args[1]); ++at) {
    clocks[0] += clocks[at];
  }
}

// simpleZeroCopy: vectorAddGPU(float* a, float* b, float* sum, int count)
void pinlane_kernel__Z12vectorAddGPUPfS_S_i(dim3, dim3, void** args, std::size_t) {
  add<float>(args);
}

// streamOrderedAllocation: vectorAddGPU(const float* a, const float* b, float* sum, int count)
void pinlane_kernel__Z12vectorAddGPUPKfS0_Pfi(dim3, dim3, void** args, std::size_t) {
  add<float>(args);
}

// vectorAdd: vectorAdd(const float* a, const float* b, float* sum, int count)
void pinlane_kernel_vectorAdd(dim3, dim3, void** args, std::size_t) {
  add<float>(args);
}

// simpleMultiGPU: reduceKernel(float* result, float* input, int count)
void pinlane_kernel_reduceKernel(dim3 grid, dim3 block, void** args, std::size_t) {
  float* result = value<float*>(args[0]);
  const float* input = value<const float*>(args[1]);
  const std::size_t count = value<int>(args[2]), all = threads(grid, block);
  for (std::size_t thread = 0; thread < all; ++thread) {
    result[thread] = 0;
  }
  for (std::size_t at = 0; at < count; ++at) {
    result[at % all] += input[at];
  }
}

// simpleP2P: SimpleKernel(float* from, float* to)
void pinlane_kernel_SimpleKernel(dim3 grid, dim3 block, void** args, std::size_t) {
  const float* from = value<const float*>(args[0]);
  float* to = value<float*>(args[1]);
  for (std::size_t at = 0; at < threads(grid, block); ++at) {
    to[at] = from[at] * 2;
  }
}

// streamOrderedAllocationP2P: copyP2PAndScale(const int* from, int* to, int count)
void pinlane_kernel_copyP2PAndScale(dim3, dim3, void** args, std::size_t) {
  const int* from = value<const int*>(args[0]);
  int* to = value<int*>(args[1]);
  for (int at = 0; at < value<int>(args[2]); ++at) {
    to[at] = 2 * from[at];
  }
}

// StreamPriorities: memcpy_kernel(int* to, int* from, size_t bytes)
void pinlane_kernel_memcpy_kernel(dim3, dim3, void** args, std::size_t) {
  int* to = value<int*>(args[0]);
  const int* from = value<const int*>(args[1]);
  for (std::size_t at = 0; at < value<std::size_t>(args[2]) / sizeof(int); ++at) {
    to[at] = from[at];
  }
}
}
