// A collective writes to memory that was allocated after the wait for the compute stream.
//
// Paddle's NCCL reduce waited until its input was there, and then allocated its output. What it got
// the compute stream could still be using.
// Report: https://github.com/PaddlePaddle/Paddle/pull/19889
// Wrong: the wait covers what was enqueued before it, and not the last use of the output's memory.
// Finds: Race: CopyD2D on stream B after CopyD2H on stream A
#include "zoo.h"

// The memory of the last temporary, which the next allocation gets.
static char* cached;

// Some operator of the compute stream; its temporary goes back when the host is done with it.
static void compute(cudaStream_t stream, char* host) {
  OK(cudaMemsetAsync(cached, 4, BYTES, stream));
  OK(cudaMemcpyAsync(host, cached, BYTES, cudaMemcpyDeviceToHost, stream));
}

static bool program() {
  char *input = device_memory(BYTES), *host = pinned_memory(BYTES);
  cudaStream_t computing = new_stream(), nccl = new_stream();
  cudaEvent_t ready = new_event();
  cached = device_memory(BYTES);

  OK(cudaMemsetAsync(input, 5, BYTES, computing));
  OK(cudaEventRecord(ready, computing));
  if (!fixed) OK(cudaStreamWaitEvent(nccl, ready, 0));
  compute(computing, host);
  char* output = cached;  // allocated
  if (fixed) {
    OK(cudaEventRecord(ready, computing));
    OK(cudaStreamWaitEvent(nccl, ready, 0));
  }
  OK(cudaMemcpyAsync(output, input, BYTES, cudaMemcpyDeviceToDevice, nccl));  // the reduce
  OK(cudaDeviceSynchronize());
  return all_are(host, 4, BYTES);
}
