// A race with a kernel that is launched as nvcc's code does: `<<<...>>>` says how, and a function
// that nvcc writes launches. The line of the launch is the one of the `<<<...>>>`.
#include "kernel.h"

extern "C" {
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
}

static const Kernel fill("_Z4fillPc");

extern "C" void pinlane_kernel_fill(dim3, dim3, void** args, size_t) {
  **static_cast<char**>(args[0]) = 5;
}

#line 1 "launched.cudafe1.stub.c"
[[gnu::noinline]] static void stub(char* to) {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
  OK(fill.launch(stream, {&to}));
}

#line 100 "launched.cpp"
int main() {
  char* memory;
  cudaStream_t first, second;
  OK(cudaMalloc(reinterpret_cast<void**>(&memory), 4096));
  OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaMemsetAsync(memory, 0, 4096, first));
  for (int time = 0; time < 2; ++time) {
    if (__cudaPushCallConfiguration({1, 1, 1}, {1, 1, 1}, 0, second) == 0) {  // line 108
      stub(memory);
    }
  }
  OK(cudaDeviceSynchronize());
  std::puts("done");
}
