// Rules 26 to 29: errors.
#include "rules.h"

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
