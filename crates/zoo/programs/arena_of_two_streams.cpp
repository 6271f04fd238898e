// An arena gives memory out again while the copy stream still reads it.
//
// onnxruntime copied outputs on a stream of their own. Its arena took memory that was freed on the
// host for free on the device, which holds for one stream only.
// Report: https://github.com/microsoft/onnxruntime/pull/5445
// Wrong: the next kernel does not wait for the copy of the memory's last owner.
// Finds: Race: Fill(0x02) on stream A after CopyD2H on stream B
#include "zoo.h"

static bool program() {
  char *arena = device_memory(BYTES), *output = pinned_memory(BYTES);
  cudaStream_t compute = new_stream();
  cudaStream_t copies = new_stream();
  cudaEvent_t computed = new_event();

  OK(cudaMemsetAsync(arena, 1, BYTES, compute));
  OK(cudaEventRecord(computed, compute));
  cudaStream_t copying = fixed ? compute : copies;  // the mend: copies in the compute stream
  OK(cudaStreamWaitEvent(copying, computed, 0));
  OK(cudaMemcpyAsync(output, arena, BYTES, cudaMemcpyDeviceToHost, copying));
  // The host frees the memory, and the next node gets it.
  OK(cudaMemsetAsync(arena, 2, BYTES, compute));
  OK(cudaStreamSynchronize(copying));
  OK(cudaStreamSynchronize(compute));
  return all_are(output, 1, BYTES);
}
