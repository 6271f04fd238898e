// Rule 35: kernels.
#include "kernel.h"

#include <cstring>

RULE(rule_35_a_kernel_uses_page_locked_memory_at_the_address_of_the_host, "", "") {
  std::vector<char> owned(BYTES, 1);
  char *host = pinned(), *a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  std::memset(host, 4, BYTES);
  OK(cudaMemsetAsync(a, 8, BYTES, stream));
  OK(cudaHostRegister(owned.data(), BYTES, 0));
  int same = 0;
  // cudaDevAttrCanUseHostPointerForRegisteredMem
  OK(cudaDeviceGetAttribute(&same, static_cast<cudaDeviceAttr>(91), 0));
  launch_increment(host, BYTES, stream);
  launch_increment(a, BYTES, stream);
  if (same) launch_increment(owned.data(), BYTES, stream);
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(host, BYTES) == 5);
  EXPECT(value_of(owned.data(), BYTES) == 1 + (same ? 1 : 0));
  OK(cudaHostUnregister(owned.data()));
  EXPECT(device_value(a) == 9);
}

RULE(rule_35_a_kernel_has_its_place_in_its_stream, "", "") {
  char *a = device_memory(), *host = pinned();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 1; value < 20; ++value) {
    OK(cudaMemsetAsync(a, value, BYTES, stream));
    launch_increment(a, BYTES, stream);
    OK(cudaMemcpyAsync(host, a, BYTES, cudaMemcpyDeviceToHost, stream));
    launch_increment(host, BYTES, stream);
    OK(cudaStreamSynchronize(stream));
    EXPECT(value_of(host, BYTES) == value + 2);
  }
}
