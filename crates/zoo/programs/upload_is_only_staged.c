// A synchronous upload of ordinary memory returns before the bytes are on the device.
//
// The tests of an inference engine staged their inputs with cudaMemcpy and launched on the engine's
// stream, which is non-blocking. 146 of 200 runs on an RTX 3090 read old bytes.
// Report: https://github.com/ashalliants/ninfer-3090/pull/38
// Wrong: cudaMemcpy has only taken the bytes when it returns; they land on the legacy stream.
// Finds: Race: CopyD2H on stream A after CopyH2D on legacy stream
#include "zoo.h"

// ANCHOR: shown
static bool program(void) {
  static char inputs[BYTES];
  char *tensor = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t engine = new_stream();

  memset(inputs, 3, BYTES);
  OK(cudaMemcpy(tensor, inputs, BYTES, cudaMemcpyHostToDevice));
  if (fixed) OK(cudaStreamSynchronize(NULL));
  OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, engine));
  OK(cudaStreamSynchronize(engine));
  return all_are(host, 3, BYTES);
}
// ANCHOR_END: shown
