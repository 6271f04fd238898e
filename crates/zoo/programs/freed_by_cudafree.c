// Stream-ordered memory is freed by cudaFree while a stream uses it.
//
// Kokkos counted on cudaFree to wait for the device. It does not for memory of cudaMallocAsync.
// Report: https://github.com/kokkos/kokkos/issues/9307
// Wrong: nothing orders the free after the work that uses the memory.
// Finds: FreedInFlight: DeviceFree on host after CopyD2H on stream A
#include "zoo.h"

static bool program(void) {
  char *host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();
  void *view;

  OK(cudaMallocAsync(&view, BYTES, stream));
  OK(cudaMemsetAsync(view, 8, BYTES, stream));
  OK(cudaMemcpyAsync(host, view, BYTES, cudaMemcpyDeviceToHost, stream));
  if (fixed) OK(cudaDeviceSynchronize());
  OK(cudaFree(view));
  // The copy may meet memory that is gone, which loses the device.
  return cudaStreamSynchronize(stream) == cudaSuccess && all_are(host, 8, BYTES);
}
