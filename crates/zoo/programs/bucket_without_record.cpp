// A flattened bucket is reused while the collective of another stream still reads it.
//
// DistributedDataParallel flattened gradients on a worker stream, and NCCL reduced them on its own.
// The bucket was freed with the tensor that named it, and could be the next bucket at once.
// Report: https://github.com/pytorch/pytorch/pull/18465
// Wrong: nothing makes the worker stream wait for the collective before it fills the bucket again.
// Finds: Race: CopyD2D on stream A after CopyD2D on stream B
#include "zoo.h"

static bool program() {
  char *gradients[2] = {device_memory(BYTES), device_memory(BYTES)};
  char *bucket = device_memory(BYTES), *host = pinned_memory(2 * BYTES);
  char* reduced = device_memory(2 * BYTES);
  cudaStream_t worker = new_stream(), nccl = new_stream();
  cudaEvent_t flattened = new_event(), done = new_event();

  for (int at = 0; at < 2; ++at) OK(cudaMemset(gradients[at], 6 + at, BYTES));
  OK(cudaDeviceSynchronize());
  for (int at = 0; at < 2; ++at) {
    if (fixed && at > 0) OK(cudaStreamWaitEvent(worker, done, 0));
    OK(cudaMemcpyAsync(bucket, gradients[at], BYTES, cudaMemcpyDeviceToDevice, worker));
    OK(cudaEventRecord(flattened, worker));
    OK(cudaStreamWaitEvent(nccl, flattened, 0));
    OK(cudaMemcpyAsync(reduced + at * BYTES, bucket, BYTES, cudaMemcpyDeviceToDevice, nccl));
    OK(cudaEventRecord(done, nccl));
  }
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy(host, reduced, 2 * BYTES, cudaMemcpyDeviceToHost));
  return all_are(host, 6, BYTES) && all_are(host + BYTES, 7, BYTES);
}
