// Gradients are offloaded to the CPU optimizer while they are still being reduced.
//
// DeepSpeed's ZeRO-2 offload overlapped the copy of gradients to the host with their reduction, on
// two streams. It was switched off again: the copies raced with the reduction.
// Report: https://github.com/deepspeedai/DeepSpeed/pull/1219
// Wrong: the copy stream waits for the backward stream, and not for the reduction stream.
// Finds: Race: CopyD2H on stream C after Fill(0x05) on stream B
#include "zoo.h"

static bool program(void) {
  char *gradients = device_memory(BYTES), *optimizer = pinned_memory(BYTES);
  cudaStream_t backward = new_stream(), reduction = new_stream(), copies = new_stream();
  cudaEvent_t computed = new_event(), reduced = new_event();

  OK(cudaMemsetAsync(gradients, 4, BYTES, backward));
  OK(cudaEventRecord(computed, backward));
  OK(cudaStreamWaitEvent(reduction, computed, 0));
  OK(cudaMemsetAsync(gradients, 5, BYTES, reduction));  // the reduced ones
  OK(cudaEventRecord(reduced, reduction));
  OK(cudaStreamWaitEvent(copies, fixed ? reduced : computed, 0));
  OK(cudaMemcpyAsync(optimizer, gradients, BYTES, cudaMemcpyDeviceToHost, copies));
  OK(cudaStreamSynchronize(copies));
  OK(cudaStreamSynchronize(reduction));
  return all_are(optimizer, 5, BYTES);
}
