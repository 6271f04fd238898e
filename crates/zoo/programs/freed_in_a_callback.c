// Page-locked memory is freed by a host function, where CUDA may not be called.
//
// A CUDA server freed the staging block of each upload in a host function after the copy. Every
// call failed with error 800, and 2 GB of page-locked memory were lost.
// Report: https://github.com/lupinemachines/lupine/pull/320
// Wrong: host functions must make no CUDA call.
// Finds: CallInHostFunction
#include "zoo.h"

static cudaError_t freed = cudaErrorNotReady;
static void *completed;
static void free_staging(void *staging) { freed = cudaFreeHost(staging); }
static void hand_over(void *staging) { completed = staging; }

static bool program(void) {
  char *tensor = device_memory(BYTES), *host = pinned_memory(BYTES);
  char *staging = pinned_memory(BYTES);
  cudaStream_t stream = new_stream();

  memset(staging, 7, BYTES);
  OK(cudaMemcpyAsync(tensor, staging, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaLaunchHostFunc(stream, fixed ? hand_over : free_staging, staging));
  OK(cudaMemcpyAsync(host, tensor, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  if (completed) freed = cudaFreeHost(completed);  // by an ordinary thread
  return freed == cudaSuccess && all_are(host, 7, BYTES);
}
