// An allocator says that its memory can be used on all streams at once, and it cannot.
//
// `allocate_sync` of RMM's asynchronous resource allocated in the order of a stream, and did not
// wait for that stream. compute-sanitizer saw a free before the allocation.
// Report: https://github.com/rapidsai/rmm/issues/2156
// Wrong: memory of a stream-ordered allocation is used on another stream, which nothing orders.
// Finds: Race: Fill(0x03) on stream A after DeviceAlloc on legacy stream
#include "zoo.h"

static void* allocate_sync() {
  void* memory;
  OK(cudaMallocAsync(&memory, BYTES, cudaStreamLegacy));
  if (fixed) OK(cudaStreamSynchronize(cudaStreamLegacy));
  return memory;
}

static bool program() {
  char* host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();

  void* memory = allocate_sync();
  OK(cudaMemsetAsync(memory, 3, BYTES, stream));
  OK(cudaMemcpyAsync(host, memory, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(memory, stream));
  return cudaStreamSynchronize(stream) == cudaSuccess && all_are(host, 3, BYTES);
}
