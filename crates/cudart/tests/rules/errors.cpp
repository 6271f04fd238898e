// Rules 26 to 29: errors.
#include "kernel.h"

RULE(rule_26_the_last_error_is_each_threads_own_and_is_taken_once, "", "") {
  void* memory;
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaHostAlloc(&memory, BYTES, 1 << 20) == cudaErrorInvalidValue);
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
  std::thread([] {
    EXPECT(cudaPeekAtLastError() == cudaSuccess);
    EXPECT(cudaSetDevice(9999) == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  }).join();
  EXPECT(cudaPeekAtLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  EXPECT(cudaGetLastError() == cudaSuccess);
}

RULE(rule_28_an_error_that_is_not_sticky_stays_until_it_is_taken, "", "") {
  EXPECT(cudaSetDevice(9999) == cudaErrorInvalidDevice);
  OK(cudaSetDevice(0));
  OK(cudaFree(device_memory()));
  OK(cudaDeviceSynchronize());
  EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
  EXPECT(cudaGetLastError() == cudaSuccess);
}

// Waits until the loss is known.
static cudaError_t loss() {
  lose_device();
  const cudaError_t code = cudaDeviceSynchronize();
  EXPECT(code == cudaErrorIllegalAddress);
  return code;
}

RULE(rule_27_a_call_returns_the_error_of_earlier_work, "", "Race, IllegalAddress") {
  char* host = pinned();
  char* memory_before = device_memory();
  const cudaError_t code = loss();
  void* memory;
  EXPECT(cudaMalloc(&memory, BYTES) == code);
  EXPECT(cudaFreeHost(host) == code);
  cudaStream_t stream;
  EXPECT(cudaStreamCreate(&stream) == code);
  EXPECT(cudaMemset(memory_before, 0, BYTES) == code);
  // A call that has nothing to do does not report the error.
  EXPECT(cudaMemset(nullptr, 0, 0) == cudaSuccess);
}

RULE(rule_28_a_sticky_error_stays_for_ever, "", "Race, IllegalAddress") {
  const cudaError_t code = loss();
  for (int round = 0; round < 3; ++round) {
    EXPECT(cudaGetLastError() == code);
    EXPECT(cudaDeviceSynchronize() == code);
  }
  // The error belongs to the device, so every thread gets it.
  std::thread([=] { EXPECT(cudaDeviceSynchronize() == code); }).join();
}

RULE(rule_29_not_ready_may_or_may_not_be_a_last_error, "no error, NotReady", "") {
  cudaStream_t stream = non_blocking_stream();
  Gate gate(stream);
  cudaEvent_t behind = mark(stream);
  EXPECT(cudaEventQuery(behind) == cudaErrorNotReady);
  const cudaError_t last = cudaGetLastError();
  EXPECT(last == cudaSuccess || last == cudaErrorNotReady);
  saw(last == cudaSuccess ? "no error" : "NotReady");
  EXPECT(cudaStreamQuery(stream) == cudaErrorNotReady);
  EXPECT(cudaGetLastError() == last);
}
