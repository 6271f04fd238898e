// An event of one device is recorded on a stream of another; the error is ignored.
//
// A pool of page-locked slabs kept its events in one list for all devices. In release builds the
// errors were not looked at, and slabs came back while a transfer still used them.
// Report: https://github.com/NVIDIA/cuCascade/pull/189
// Wrong: the record fails, so what waits for the event waits for nothing.
// Devices: 2
// Finds: BadHandle
// Finds: Race: CopyD2H on stream B of device 0 after CopyH2D on stream A of device 1
#include "zoo.h"

static bool program(void) {
  char *slab = pinned_memory(BYTES), *host = pinned_memory(BYTES);
  char *other = device_memory(BYTES);
  cudaEvent_t pooled = new_event();  // of device 0
  OK(cudaSetDevice(1));
  char *tensor = device_memory(BYTES);
  cudaStream_t upload = new_stream();
  cudaEvent_t of_its_own = new_event();
  OK(cudaSetDevice(0));
  cudaStream_t download = new_stream();

  OK(cudaMemset(other, 2, BYTES));
  OK(cudaDeviceSynchronize());
  memset(slab, 1, BYTES);
  OK(cudaMemcpyAsync(tensor, slab, BYTES, cudaMemcpyHostToDevice, upload));
  cudaEvent_t done = fixed ? of_its_own : pooled;
  (void)cudaEventRecord(done, upload);
  // The slab is free when the event says so.
  OK(cudaStreamWaitEvent(download, done, 0));
  OK(cudaMemcpyAsync(slab, other, BYTES, cudaMemcpyDeviceToHost, download));
  OK(cudaStreamSynchronize(download));
  OK(cudaStreamSynchronize(upload));
  OK(cudaMemcpy(host, tensor, BYTES, cudaMemcpyDeviceToHost));
  return all_are(host, 1, BYTES);
}
