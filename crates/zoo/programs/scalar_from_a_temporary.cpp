// A scalar is uploaded from a temporary that is gone before the copy reads it.
//
// `rmm::device_scalar<float> alpha(1.0, stream)` copies from the constructor's argument. Since
// RMM's copies read in stream order, that is too late.
// Report: https://github.com/rapidsai/rmm/issues/2526
// Wrong: an asynchronous copy may read ordinary memory at any time before the stream is waited for.
// Finds: SourceChanged
#include "zoo.h"

// Where temporaries live: all in the same place, one after the other.
static char stack_slot[BYTES];

struct Scalar {
  char* memory = device_memory(BYTES);

  Scalar(int value, cudaStream_t stream) {
    memset(stack_slot, value, BYTES);  // the temporary
    OK(cudaMemcpyAsync(memory, stack_slot, BYTES, cudaMemcpyHostToDevice, stream));
    if (fixed) OK(cudaStreamSynchronize(stream));
  }
};

static bool program() {
  char* host = pinned_memory(2 * BYTES);
  cudaStream_t stream = new_stream();

  Scalar alpha(1, stream), beta(2, stream);
  OK(cudaMemcpyAsync(host, alpha.memory, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemcpyAsync(host + BYTES, beta.memory, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  return all_are(host, 1, BYTES) && all_are(host + BYTES, 2, BYTES);
}
