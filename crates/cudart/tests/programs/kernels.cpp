// Launches kernels as nvcc's code does: one with a stand-in, one without.
#include "cuda.h"

#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
}

namespace {

void add(const float*, float*, int) {}
void unknown() {}
const void* shadow(void (*kernel)(const float*, float*, int)) {
  return reinterpret_cast<const void*>(kernel);
}

void launch(const void* kernel, void** args, cudaStream_t stream) {
  dim3 grid, block;
  size_t shared;
  cudaStream_t popped;
  EXPECT(__cudaPushCallConfiguration({4, 1, 1}, {32, 1, 1}, 0, stream) == 0);
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &popped));
  EXPECT(grid.x == 4 && block.x == 32 && popped == stream);
  OK(cudaLaunchKernel(kernel, grid, block, args, shared, popped));
}

}  // namespace

// ANCHOR: stand_in
// What the kernel does, for each of its threads.
extern "C" void pinlane_kernel_add(dim3 grid, dim3 block, void** args, size_t) {
  const auto* from = *static_cast<const float**>(args[0]);
  auto* to = *static_cast<float**>(args[1]);
  const int count = *static_cast<int*>(args[2]);
  for (unsigned at = 0; at < grid.x * block.x; ++at) {
    if (static_cast<int>(at) < count) to[at] += from[at];
  }
}
// ANCHOR_END: stand_in

int main() {
  static int binary;
  void** handle = __cudaRegisterFatBinary(&binary);
  auto name = [&](const void* kernel, const char* mangled) {
    __cudaRegisterFunction(handle, static_cast<const char*>(kernel), nullptr, mangled, -1, nullptr,
                           nullptr, nullptr, nullptr, nullptr);
  };
  name(shadow(add), "_Z3addPKfPfi");
  name(reinterpret_cast<const void*>(&unknown), "_Z7unknownv");

  std::vector<float> there(100, 1.5F), back(100, 0);
  const size_t bytes = there.size() * sizeof(float);
  cudaStream_t stream;
  float *a, *b;
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(reinterpret_cast<void**>(&a), bytes));
  OK(cudaMalloc(reinterpret_cast<void**>(&b), bytes));
  OK(cudaMemcpy(a, there.data(), bytes, cudaMemcpyHostToDevice));
  OK(cudaMemsetAsync(b, 0, bytes, stream));
  int count = 100;
  void* args[] = {&a, &b, &count};
  launch(shadow(add), args, stream);
  launch(shadow(add), args, stream);
  // The arguments were taken at the launch.
  count = 0;
  launch(reinterpret_cast<const void*>(&unknown), nullptr, stream);
  OK(cudaMemcpyAsync(back.data(), b, bytes, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  for (float value : back) EXPECT(value == 3.0F);
  std::puts("added");
}
