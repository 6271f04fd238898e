// Page-locked memory is freed while a fill of it is pending.
//
// XLA fills the redzones of its buffers, and waits for that only where it compares them. Without
// buffers nothing waits, and the page-locked block is freed.
// Report: https://github.com/openxla/xla/issues/46093
// Wrong: nothing waits for the fill before the memory is freed.
// Finds: FreedInFlight: HostFree on host after Fill(0x06) on stream A
#include "zoo.h"

static bool program(void) {
  char *redzone = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();

  OK(cudaMemsetAsync(redzone, 6, BYTES, stream));
  const int buffers = fixed ? 1 : 0;
  for (int at = 0; at < buffers; ++at) OK(cudaStreamSynchronize(stream));
  OK(cudaFreeHost(redzone));
  return cudaStreamSynchronize(stream) == cudaSuccess;
}
