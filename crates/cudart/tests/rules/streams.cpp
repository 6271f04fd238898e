// Rules 10 to 13: streams.
#include "rules.h"

RULE(rule_10_a_stream_is_fifo, "", "") {
  char *a = device_memory(), *b = device_memory();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 0; value < 50; ++value) {
    OK(cudaMemsetAsync(a, value, BYTES, stream));
    OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
  }
  OK(cudaMemsetAsync(a, 99, BYTES, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(device_value(a) == 99 && device_value(b) == 49);
}

RULE(rule_10_nothing_orders_two_streams, "", "Race") {
  char* a = device_memory();
  cudaStream_t first = non_blocking_stream(), second = non_blocking_stream();
  Gate gate(first);
  OK(cudaMemsetAsync(a, 1, BYTES, first));
  OK(cudaMemsetAsync(a, 2, BYTES, second));
  OK(cudaStreamSynchronize(second));
  gate.open();
  OK(cudaStreamSynchronize(first));
  EXPECT(device_value(a) == 1);
}

RULE(rule_10_the_legacy_stream_waits_for_blocking_streams_and_they_for_it, "", "") {
  cudaStream_t first = blocking_stream(), second = blocking_stream();
  cudaStream_t exempt = non_blocking_stream();
  Gate gate(first);
  cudaEvent_t on_legacy = mark(cudaStreamLegacy), after = mark(second), elsewhere = mark(exempt);
  EXPECT(gets_done(elsewhere));
  EXPECT(!is_done(on_legacy));
  EXPECT(!is_done(after));
  gate.open();
  EXPECT(gets_done(after) && gets_done(on_legacy));
}

RULE(rule_11_each_thread_has_a_default_stream_of_its_own, "", "") {
  Gate gate(cudaStreamPerThread);
  cudaEvent_t here = mark(cudaStreamPerThread), on_legacy = mark(cudaStreamLegacy);
  std::thread([] { OK(cudaStreamSynchronize(cudaStreamPerThread)); }).join();
  EXPECT(!is_done(here));
  EXPECT(!is_done(on_legacy));
  gate.open();
  OK(cudaStreamSynchronize(cudaStreamPerThread));
  EXPECT(gets_done(on_legacy));
}

RULE(rule_12_a_destroyed_stream_drains, "", "") {
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  Gate gate(stream);
  OK(cudaMemsetAsync(a, 7, BYTES, stream));
  cudaEvent_t behind = mark(stream);
  Call destroy([&] { OK(cudaStreamDestroy(stream)); });
  EXPECT(destroy.returns());
  EXPECT(!is_done(behind));
  gate.open();
  OK(cudaEventSynchronize(behind));
  EXPECT(device_value(a) == 7);
}

RULE(rule_12_a_wait_outlives_its_event, "", "") {
  char *a = device_memory(), *b = device_memory();
  cudaStream_t producer = non_blocking_stream(), consumer = non_blocking_stream();
  Gate gate(producer);
  OK(cudaMemsetAsync(a, 3, BYTES, producer));
  cudaEvent_t behind = mark(producer);
  OK(cudaStreamWaitEvent(consumer, behind, 0));
  OK(cudaEventDestroy(behind));
  OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, consumer));
  gate.open();
  OK(cudaStreamSynchronize(consumer));
  EXPECT(device_value(b) == 3);
}

RULE(rule_12_a_handle_that_is_destroyed_is_undefined, "", "BadHandle") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  cudaStream_t stream = non_blocking_stream();
  OK(cudaStreamDestroy(stream));
  EXPECT(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  cudaEvent_t gone = event();
  OK(cudaEventDestroy(gone));
  EXPECT(cudaEventRecord(gone, nullptr) == cudaErrorInvalidResourceHandle);
}

static void under_a_gate(const std::function<void()>& call) {
  Gate gate(non_blocking_stream());
  Call made(call);
  saw(made.is_held() ? "waits" : "goes on");
  gate.open();
}

RULE(rule_13_an_allocation_of_device_memory_may_wait, "waits, goes on", "") {
  under_a_gate([] { device_memory(); });
}

RULE(rule_13_an_allocation_of_page_locked_memory_may_wait, "waits, goes on", "") {
  under_a_gate([] { pinned(); });
}

RULE(rule_13_an_allocation_orders_nothing, "", "Race") {
  char* a = device_memory();
  cudaStream_t first = non_blocking_stream(), second = non_blocking_stream();
  OK(cudaMemsetAsync(a, 1, BYTES, first));
  device_memory();
  pinned();
  OK(cudaMemsetAsync(a, 2, BYTES, second));
  OK(cudaDeviceSynchronize());
}

RULE(rule_13_a_free_of_device_memory_waits_for_all_streams, "", "") {
  char* a = device_memory();
  Gate gate(non_blocking_stream());
  Call free([&] { OK(cudaFree(a)); });
  EXPECT(free.is_held());
  gate.open();
}
