// The arguments of a kernel are overwritten by its next launch.
//
// Quadrants kept one buffer in device memory for the arguments of each kernel, and copied them
// there at every launch. With streams, the next launch did not wait for the kernel that reads them.
// Report: https://github.com/Genesis-Embodied-AI/quadrants/pull/649
// Wrong: the copy for the second stream does not wait for the kernel on the first one.
// Finds: Race: CopyH2D on legacy stream after kernel store on stream A
#include "kernel.h"

typedef struct {
  char *to;
  int value;
} Arguments;

// Stores a value; both are in device memory.
void pinlane_kernel_store(dim3 grid, dim3 block, void **arguments, size_t shared) {
  const Arguments *here = *(Arguments **)arguments[0];
  (void)grid, (void)block, (void)shared;
  memset(here->to, here->value, BYTES);
}

// Launches the kernel, with its arguments in the buffer.
static void store(Arguments *buffer, Arguments *staged, char *to, int value, cudaStream_t stream) {
  static const char shadow;
  void *arguments[] = {&buffer};
  *staged = (Arguments){to, value};
  OK(cudaMemcpy(buffer, staged, sizeof *staged, cudaMemcpyHostToDevice));
  launch(&shadow, "_Z5storePKv", arguments, stream);
}

static bool program(void) {
  Arguments *buffers[2], *staged = (Arguments *)pinned_memory(sizeof *staged);
  char *results[2], *hosts[2];
  cudaStream_t streams[2];
  for (int i = 0; i < 2; ++i) {
    // The mend: each launch has a buffer of its own.
    buffers[i] = i == 0 || fixed ? (Arguments *)device_memory(sizeof(Arguments)) : buffers[0];
    results[i] = device_memory(BYTES);
    hosts[i] = pinned_memory(BYTES);
    streams[i] = new_stream();
    OK(cudaMemset(results[i], 0, BYTES));
  }
  OK(cudaDeviceSynchronize());

  for (int i = 0; i < 2; ++i) store(buffers[i], staged, results[i], i + 1, streams[i]);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < 2; ++i) {
    OK(cudaMemcpy(hosts[i], results[i], BYTES, cudaMemcpyDeviceToHost));
  }
  return all_are(hosts[0], 1, BYTES) && all_are(hosts[1], 2, BYTES);
}
