// A buffer is freed on the default stream while another stream still uses it.
//
// NanoVDB frees the buffers of a grid on the default stream, whatever stream has used them last.
// For non-blocking streams that is no order.
// Report: https://github.com/AcademySoftwareFoundation/openvdb/pull/2249
// Wrong: the free is ordered on stream 0, and the last use on another stream.
// Finds: Race: DeviceFree on legacy stream after CopyD2H on stream A
#include "zoo.h"

struct DeviceBuffer {
  void* memory;
  cudaStream_t last = nullptr;

  DeviceBuffer() { OK(cudaMallocAsync(&memory, BYTES, nullptr)); }
  ~DeviceBuffer() { OK(cudaFreeAsync(memory, fixed ? last : nullptr)); }

  void download(char* host, cudaStream_t stream) {
    last = stream;
    OK(cudaMemcpyAsync(host, memory, BYTES, cudaMemcpyDeviceToHost, stream));
  }
};

static bool program() {
  char* host = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();
  {
    DeviceBuffer buffer;
    OK(cudaMemsetAsync(buffer.memory, 1, BYTES, nullptr));
    OK(cudaStreamSynchronize(nullptr));
    buffer.download(host, stream);
  }
  // The order of these two lines is nothing that CUDA knows.
  const bool freed = cudaStreamSynchronize(nullptr) == cudaSuccess;
  return freed && cudaStreamSynchronize(stream) == cudaSuccess && all_are(host, 1, BYTES);
}
