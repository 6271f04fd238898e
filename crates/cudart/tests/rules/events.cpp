// Rules 14 to 19: events and devices.
#include "rules.h"

RULE(rule_14_a_record_is_a_snapshot, "", "") {
  cudaStream_t stream = non_blocking_stream();
  cudaEvent_t event = mark(stream);
  Gate gate(stream);
  EXPECT(gets_done(event));
  OK(cudaEventRecord(event, stream));
  EXPECT(!is_done(event));
  gate.open();
  EXPECT(gets_done(event));
}

RULE(rule_14_a_wait_is_for_the_record_at_its_call, "", "") {
  cudaStream_t a = non_blocking_stream(), b = non_blocking_stream(), c = non_blocking_stream();
  cudaEvent_t event = mark(a);
  OK(cudaStreamWaitEvent(b, event, 0));
  Gate gate(a);
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(c, event, 0));
  EXPECT(gets_done(mark(b)));
  EXPECT(!is_done(mark(c)));
  gate.open();
  OK(cudaStreamSynchronize(c));
}

RULE(rule_14_an_event_that_was_never_recorded_is_done, "", "") {
  cudaEvent_t never = event();
  cudaStream_t stream = non_blocking_stream();
  OK(cudaStreamWaitEvent(stream, never, 0));
  OK(cudaEventQuery(never));
  OK(cudaEventSynchronize(never));
  OK(cudaStreamSynchronize(stream));
}

RULE(rule_14_a_wait_for_an_event_that_is_recorded_later_orders_nothing, "", "Race") {
  char* a = device_memory();
  cudaStream_t producer = non_blocking_stream(), consumer = non_blocking_stream();
  cudaEvent_t late = event();
  Gate gate(producer);
  OK(cudaMemsetAsync(a, 1, BYTES, producer));
  OK(cudaStreamWaitEvent(consumer, late, 0));
  OK(cudaEventRecord(late, producer));
  OK(cudaMemsetAsync(a, 2, BYTES, consumer));
  OK(cudaStreamSynchronize(consumer));
  gate.open();
  OK(cudaStreamSynchronize(producer));
  EXPECT(device_value(a) == 1);
}

RULE(rule_15_a_record_on_the_legacy_stream_covers_blocking_streams_only, "", "") {
  cudaStream_t blocking = blocking_stream(), exempt = non_blocking_stream();
  {
    Gate gate(exempt);
    EXPECT(gets_done(mark(cudaStreamLegacy)));
  }
  OK(cudaStreamSynchronize(exempt));
  Gate gate(blocking);
  cudaEvent_t event = mark(nullptr);
  EXPECT(!is_done(event));
  gate.open();
  EXPECT(gets_done(event));
}

RULE(rule_16_done_makes_the_work_visible, "", "") {
  char *a = device_memory(), *host = pinned();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 1; value < 20; ++value) {
    OK(cudaMemsetAsync(a, value, BYTES, stream));
    OK(cudaMemcpyAsync(host, a, BYTES, cudaMemcpyDeviceToHost, stream));
    EXPECT(gets_done(mark(stream)));
    EXPECT(value_of(host, BYTES) == value);
    OK(cudaStreamQuery(stream));
  }
}

RULE(rule_17_elapsed_time_needs_two_complete_events_with_timing, "", "") {
  cudaEvent_t start = event(), end = event(), plain;
  OK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
  cudaStream_t stream = non_blocking_stream();
  float milliseconds = -1;
  const auto elapsed = [&](cudaEvent_t a, cudaEvent_t b) {
    const cudaError_t answer = cudaEventElapsedTime(&milliseconds, a, b);
    (void)cudaGetLastError();
    return answer;
  };
  EXPECT(elapsed(start, end) == cudaErrorInvalidResourceHandle);
  OK(cudaEventRecord(start, stream));
  OK(cudaEventRecord(plain, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(elapsed(start, plain) == cudaErrorInvalidResourceHandle);
  Gate gate(stream);
  OK(cudaEventRecord(end, stream));
  EXPECT(elapsed(start, end) == cudaErrorNotReady);
  gate.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT(elapsed(start, end) == cudaSuccess && milliseconds >= 0);
}

RULE(rule_18_the_current_device_is_each_threads_own, "", "") {
  int device = -1;
  OK(cudaSetDevice(devices() - 1));
  std::thread([&] { OK(cudaGetDevice(&device)); }).join();
  EXPECT(device == 0);
  OK(cudaGetDevice(&device));
  EXPECT(device == devices() - 1);
  EXPECT(cudaSetDevice(devices()) == cudaErrorInvalidDevice);
}

RULE(rule_18_what_may_name_streams_and_events_of_another_device, "", "BadHandle") {
  if (devices() < 2) skip("there is one device");
  char *a = device_memory(), *b = device_memory();
  cudaStream_t stream = non_blocking_stream();
  cudaEvent_t here = mark(stream);
  OK(cudaSetDevice(1));
  cudaStream_t there = non_blocking_stream();
  cudaEvent_t other = mark(there);
  // On the stream of a device that is not current.
  OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamQuery(stream));
  OK(cudaEventQuery(here));
  OK(cudaEventSynchronize(here));
  OK(cudaStreamWaitEvent(there, here, 0));
  EXPECT(cudaEventRecord(here, there) == cudaErrorInvalidResourceHandle);
  OK(cudaEventSynchronize(other));
  float milliseconds;
  EXPECT(cudaEventElapsedTime(&milliseconds, here, other) == cudaErrorInvalidResourceHandle);
}

RULE(rule_19_a_peer_is_enabled_once_and_in_one_direction, "", "") {
  if (devices() < 2) skip("there is one device");
  int can = 0;
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  if (!can) skip("the devices are no peers");
  EXPECT(cudaDeviceDisablePeerAccess(1) == cudaErrorPeerAccessNotEnabled);
  EXPECT(cudaDeviceEnablePeerAccess(1, 1) == cudaErrorInvalidValue);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
  OK(cudaSetDevice(1));
  EXPECT(cudaDeviceDisablePeerAccess(0) == cudaErrorPeerAccessNotEnabled);
  OK(cudaSetDevice(0));
  OK(cudaDeviceDisablePeerAccess(1));
}

RULE(rule_19_a_peer_copy_on_the_legacy_stream_waits_for_both_devices, "", "") {
  if (devices() < 2) skip("there is one device");
  char* a = device_memory();
  OK(cudaMemset(a, 8, BYTES));
  OK(cudaDeviceSynchronize());
  OK(cudaSetDevice(1));
  char* b = device_memory();
  cudaStream_t there = blocking_stream();
  Gate gate(there);
  OK(cudaSetDevice(0));
  OK(cudaMemcpyPeerAsync(b, 1, a, 0, BYTES, nullptr));
  cudaEvent_t copied = mark(cudaStreamLegacy);
  EXPECT(!is_done(copied));
  gate.open();
  EXPECT(gets_done(copied));
  OK(cudaSetDevice(1));
  EXPECT(device_value(b) == 8);
}
