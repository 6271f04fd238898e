// A reduction waits for one stream, and its bucket was filled on two.
//
// DeepSpeed lets its reduction stream wait for the stream that is current when the bucket is full.
// The gradients in it were copied there by the hooks of a compiled backward, on several streams.
// Report: https://github.com/deepspeedai/DeepSpeed/issues/8061
// Wrong: the reduction does not wait for the streams that wrote the other slices.
// Finds: Race: CopyD2D on stream C after Fill(0x03) on stream A
#include "zoo.h"

static void wait_for(cudaStream_t waiting, cudaStream_t other) {
  cudaEvent_t event = new_event();
  OK(cudaEventRecord(event, other));
  OK(cudaStreamWaitEvent(waiting, event, 0));
}

static bool program(void) {
  char *bucket = device_memory(2 * BYTES), *reduced = device_memory(2 * BYTES);
  char *host = pinned_memory(2 * BYTES);
  cudaStream_t backward[2] = {new_stream(), new_stream()}, reduction = new_stream();

  for (int slice = 0; slice < 2; ++slice) {
    OK(cudaMemsetAsync(bucket + slice * BYTES, 3, BYTES, backward[slice]));
  }
  wait_for(reduction, backward[1]);  // the current stream
  if (fixed) wait_for(reduction, backward[0]);
  OK(cudaMemcpyAsync(reduced, bucket, 2 * BYTES, cudaMemcpyDeviceToDevice, reduction));
  OK(cudaMemcpyAsync(host, reduced, 2 * BYTES, cudaMemcpyDeviceToHost, reduction));
  OK(cudaStreamSynchronize(reduction));
  OK(cudaDeviceSynchronize());
  return all_are(host, 3, 2 * BYTES);
}
