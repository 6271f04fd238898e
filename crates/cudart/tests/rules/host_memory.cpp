// Rules 20 to 23: memory of the host.
#include "rules.h"

#include <cstring>

RULE(rule_20_each_combination_of_flags_gives_memory, "", "") {
  char* a = device_memory();
  for (unsigned flags = 0; flags < 8; ++flags) {
    void* host;
    OK(cudaHostAlloc(&host, BYTES, flags));
    std::memset(host, static_cast<int>(flags), BYTES);
    OK(cudaMemcpy(a, host, BYTES, cudaMemcpyHostToDevice));
    EXPECT(device_value(a) == static_cast<int>(flags));
    unsigned said = 0;
    OK(cudaHostGetFlags(&said, host));
    EXPECT((said & flags) == flags);
    OK(cudaFreeHost(host));
  }
}

RULE(rule_20_page_locked_memory_is_freed_by_cudaFreeHost_only, "", "BadFree") {
  char *host = pinned(), *a = device_memory();
  EXPECT(cudaFree(host) == cudaErrorInvalidValue);
  EXPECT(cudaHostUnregister(host) != cudaSuccess);
  EXPECT(cudaFreeHost(a) == cudaErrorInvalidValue);
  OK(cudaFreeHost(host));
  OK(cudaFree(a));
}

RULE(rule_21_registered_ranges, "", "BadFree") {
  // The range does not begin at a page: unaligned ranges are accepted.
  std::vector<char> owned(4 * 4096);
  char* start = owned.data() + 24;
  OK(cudaHostRegister(start, 8192, 0));
  EXPECT(cudaHostRegister(start, 8192, 0) == cudaErrorHostMemoryAlreadyRegistered);
  EXPECT(cudaHostRegister(start + 100, 10, 0) == cudaErrorHostMemoryAlreadyRegistered);
  EXPECT(cudaHostUnregister(start + 4096) == cudaErrorInvalidValue);
  OK(cudaHostUnregister(start));
  EXPECT(cudaHostUnregister(start) == cudaErrorHostMemoryNotRegistered);
}

RULE(rule_21_disjoint_ranges_on_one_page_are_accepted, "", "") {
  std::vector<char> owned(2 * 4096);
  OK(cudaHostRegister(owned.data(), 100, 0));
  OK(cudaHostRegister(owned.data() + 200, 100, 0));
  OK(cudaHostUnregister(owned.data()));
  OK(cudaHostUnregister(owned.data() + 200));
}

RULE(rule_21_an_allocation_of_nothing_succeeds, "", "") {
  void* host = &host;
  OK(cudaHostAlloc(&host, 0, 0));
  OK(cudaFreeHost(nullptr));
}

RULE(rule_21_registered_memory_takes_part_in_copies, "", "") {
  std::vector<char> owned(BYTES, 5);
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  OK(cudaHostRegister(owned.data(), BYTES, 0));
  OK(cudaMemcpyAsync(a, owned.data(), BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaHostUnregister(owned.data()));
  EXPECT(device_value(a) == 5);
}

RULE(rule_22_freeing_page_locked_memory_may_wait, "waits, goes on", "") {
  char *first = pinned();
  std::vector<char> owned(BYTES);
  OK(cudaHostRegister(owned.data(), BYTES, 0));
  for (int round = 0; round < 2; ++round) {
    Gate gate(non_blocking_stream());
    Call free([&] {
      OK(round == 0 ? cudaFreeHost(first) : cudaHostUnregister(owned.data()));
    });
    saw(free.is_held() ? "waits" : "goes on");
    gate.open();
  }
}

RULE(rule_22_freeing_a_block_in_flight_is_an_error_that_nothing_shows, "", "FreedInFlight") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  char *a = device_memory(), *host = pinned();
  cudaStream_t stream = non_blocking_stream();
  OK(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaFreeHost(host));
  OK(cudaStreamSynchronize(stream));
}

RULE(rule_23_what_an_address_is, "", "") {
  char *a = device_memory(), *host = pinned();
  std::vector<char> plain(BYTES), owned(BYTES);
  OK(cudaHostRegister(owned.data(), BYTES, 0));
  cudaPointerAttributes of;
  OK(cudaPointerGetAttributes(&of, plain.data()));
  EXPECT(of.type == cudaMemoryTypeUnregistered);
  OK(cudaPointerGetAttributes(&of, a + 9));
  EXPECT(of.type == cudaMemoryTypeDevice && of.device == 0);
  OK(cudaPointerGetAttributes(&of, host + 9));
  EXPECT(of.type == cudaMemoryTypeHost && of.hostPointer == host + 9);
  OK(cudaPointerGetAttributes(&of, owned.data() + 9));
  EXPECT(of.type == cudaMemoryTypeHost);
  OK(cudaHostUnregister(owned.data()));
  OK(cudaPointerGetAttributes(&of, owned.data() + 9));
  EXPECT(of.type == cudaMemoryTypeUnregistered);
}

RULE(rule_23_a_reset_does_not_say_that_work_is_done, "", "FreedInFlight") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  char *host = pinned(), *a = device_memory();
  OK(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, non_blocking_stream()));
  OK(cudaDeviceReset());
}

RULE(rule_23_a_reset_destroys_what_the_device_has, "", "") {
  char *host = pinned(), *a = device_memory();
  (void)non_blocking_stream();
  OK(cudaMemset(a, 1, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaDeviceReset());
  cudaPointerAttributes of;
  OK(cudaPointerGetAttributes(&of, host));
  EXPECT(of.type == cudaMemoryTypeUnregistered);
  OK(cudaPointerGetAttributes(&of, a));
  EXPECT(of.type == cudaMemoryTypeUnregistered);
  // And the device still works.
  char* again = device_memory();
  OK(cudaMemset(again, 2, BYTES));
  EXPECT(device_value(again) == 2);
}
