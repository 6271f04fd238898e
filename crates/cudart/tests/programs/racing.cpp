// Kernels on two streams that use the same memory, in the ways that its argument names. With WAITS
// in its environment an event orders them.
#include "kernel.h"

#include <cstring>
#include <string>

namespace {

const Kernel scale("_Z5scalePfS_i"), sum("_Z3sumPKfPfi");
constexpr int count = 5000;
constexpr size_t bytes = count * sizeof(float);

}  // namespace

// Each element of the first list, doubled, into the second one.
extern "C" void pinlane_kernel_scale(dim3, dim3, void** args, size_t) {
  const float* from = *static_cast<float**>(args[0]);
  float* to = *static_cast<float**>(args[1]);
  for (int at = 0; at < *static_cast<int*>(args[2]); ++at) to[at] = 2 * from[at];
}

extern "C" void pinlane_kernel_sum(dim3, dim3, void** args, size_t) {
  const float* from = *static_cast<const float**>(args[0]);
  float sum = 0;
  for (int at = 0; at < *static_cast<int*>(args[2]); ++at) sum += from[at];
  **static_cast<float**>(args[1]) = sum;
}

int main(int, char** argv) {
  const bool waits = std::getenv("WAITS") != nullptr;
  const std::string how = argv[1];
  float *a, *b, *c, *host;
  for (float** list : {&a, &b, &c}) OK(cudaMalloc(reinterpret_cast<void**>(list), bytes));
  OK(cudaMallocHost(reinterpret_cast<void**>(&host), bytes));
  for (int at = 0; at < count; ++at) host[at] = 1;
  cudaStream_t first, second;
  cudaEvent_t event;
  OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto order = [&] {
    OK(cudaEventRecord(event, first));
    if (waits) OK(cudaStreamWaitEvent(second, event, 0));
  };

  OK(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, first));
  int all = count, half = count / 2;
  if (how == "kernels") {
    OK(scale.launch(first, {&a, &b, &all}));
    order();
    OK(sum.launch(second, {&b, &c, &all}));
  } else if (how == "copy") {
    OK(cudaStreamSynchronize(first));
    OK(scale.launch(first, {&a, &b, &all}));
    order();
    OK(cudaMemcpyAsync(a, host, bytes, cudaMemcpyHostToDevice, second));
  } else if (how == "host") {
    OK(sum.launch(first, {&a, &host, &all}));
    if (waits) OK(cudaStreamSynchronize(first));
    host[0] += 1;
  } else if (how == "halves") {
    // Nothing needs to order these: they share pages, but no bytes.
    OK(cudaStreamSynchronize(first));
    float *upper = a + half, *there = b + half;
    OK(scale.launch(first, {&a, &b, &half}));
    OK(scale.launch(second, {&upper, &there, &half}));
    OK(cudaMemcpyAsync(c, host, bytes / 2, cudaMemcpyHostToDevice, first));
    float* behind = c + half;
    OK(scale.launch(second, {&upper, &behind, &half}));
  }
  OK(cudaDeviceSynchronize());
  std::puts("done");
}
