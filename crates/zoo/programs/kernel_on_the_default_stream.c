// A kernel is launched on the default stream, and its input is made on another one.
//
// An extension of PyTorch multiplied a matrix by a vector. It launched its kernel on stream 0;
// PyTorch fills tensors on the current stream. About 3% of the results were wrong.
// Report: https://github.com/pytorch/pytorch/pull/182770
// Wrong: nothing orders the default stream after a non-blocking stream.
// Finds: Race: kernel multiply on legacy stream after Fill(0x02) on stream A
#include "kernel.h"

// Each byte of the first argument, three times as much, to the second one.
void pinlane_kernel_multiply(dim3 grid, dim3 block, void **arguments, size_t shared) {
  const char *from = *(char **)arguments[0];
  char *to = *(char **)arguments[1];
  (void)grid, (void)block, (void)shared;
  for (size_t at = 0; at < BYTES; ++at) to[at] = (char)(3 * from[at]);
}

static bool program(void) {
  static const char multiply;
  char *input = device_memory(BYTES), *output = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t current = new_stream();
  void *arguments[] = {&input, &output};

  OK(cudaMemset(input, 1, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaMemsetAsync(input, 2, BYTES, current));
  launch(&multiply, "_Z8multiplyPKcPc", arguments, fixed ? current : NULL);
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyAsync(host, output, BYTES, cudaMemcpyDeviceToHost, current));
  OK(cudaStreamSynchronize(current));
  return all_are(host, 6, BYTES);
}
