// Rules 1 to 9: copies and fills.
#include "rules.h"

#include <cstring>

#include <sys/mman.h>

// Longer ones do; short ones may not (rule 6).
RULE(rule_01_a_synchronous_upload_of_pageable_memory_waits_for_its_stream, "", "") {
  std::vector<char> there(1 << 20, 2);
  char* a = device_memory(there.size());
  Gate gate(cudaStreamLegacy);
  Call copy([&] { OK(cudaMemcpy(a, there.data(), there.size(), cudaMemcpyHostToDevice)); });
  EXPECT(copy.is_held());
  gate.open();
}

RULE(rule_01_a_synchronous_upload_of_pageable_memory_has_read_its_source, "", "") {
  for (size_t bytes : {size_t{100}, size_t{1} << 16, size_t{1} << 24}) {
    std::vector<char> there(bytes, 2);
    char* a = device_memory(bytes);
    OK(cudaMemcpy(a, there.data(), bytes, cudaMemcpyHostToDevice));
    std::memset(there.data(), 9, bytes);
    EXPECT(device_value(a, bytes) == 2);
  }
}

RULE(rule_01_a_synchronous_upload_of_pageable_memory_may_not_have_landed, "landed, not landed",
     "Race") {
  const size_t bytes = 1 << 16;
  std::vector<char> there(bytes, 2);
  char *a = device_memory(bytes), *seen = pinned(bytes);
  cudaStream_t other = non_blocking_stream();
  for (int round = 0; round < 50; ++round) {
    OK(cudaMemset(a, 1, bytes));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(a, there.data(), bytes, cudaMemcpyHostToDevice));
    OK(cudaMemcpyAsync(seen, a, bytes, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
    saw(value_of(seen, bytes) == 2 ? "landed" : "not landed");
  }
  EXPECT(device_value(a, bytes) == 2);
}

RULE(rule_02_synchronous_copies_of_page_locked_memory_are_complete_on_return, "", "") {
  char *a = device_memory(), *host = pinned(), *seen = pinned();
  cudaStream_t other = non_blocking_stream();
  for (int round = 1; round < 20; ++round) {
    std::memset(host, round, BYTES);
    OK(cudaMemcpy(a, host, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpyAsync(seen, a, BYTES, cudaMemcpyDeviceToHost, other));
    OK(cudaStreamSynchronize(other));
    EXPECT(value_of(seen, BYTES) == round);
    std::memset(host, 0, BYTES);
    OK(cudaMemcpy(host, a, BYTES, cudaMemcpyDeviceToHost));
    EXPECT(value_of(host, BYTES) == round);
  }
}

RULE(rule_02_a_synchronous_copy_within_a_device_does_not_wait, "", "") {
  char *a = device_memory(), *b = device_memory();
  OK(cudaMemset(a, 3, BYTES));
  Gate gate(cudaStreamLegacy);
  Call copy([&] { OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice)); });
  EXPECT(copy.returns());
  gate.open();
  EXPECT(device_value(b) == 3);
}

RULE(rule_02_a_copy_between_hosts_is_done_when_it_returns, "", "") {
  std::vector<char> from(BYTES, 4), to(BYTES, 0);
  cudaStream_t stream = non_blocking_stream();
  OK(cudaMemcpyAsync(to.data(), from.data(), BYTES, cudaMemcpyHostToHost, stream));
  EXPECT(value_of(to.data(), BYTES) == 4);
  char *first = pinned(), *second = pinned();
  std::memset(first, 5, BYTES);
  OK(cudaMemcpy(second, first, BYTES, cudaMemcpyHostToHost));
  EXPECT(value_of(second, BYTES) == 5);
}

RULE(rule_03_a_synchronous_copy_waits_for_blocking_streams, "", "") {
  char* a = device_memory();
  std::vector<char> there(BYTES);
  Gate gate(blocking_stream());
  Call copy([&] { OK(cudaMemcpy(there.data(), a, BYTES, cudaMemcpyDeviceToHost)); });
  EXPECT(copy.is_held());
  gate.open();
}

RULE(rule_03_a_synchronous_copy_does_not_wait_for_non_blocking_streams, "", "") {
  char* a = device_memory();
  std::vector<char> there(BYTES);
  Gate gate(non_blocking_stream());
  OK(cudaMemcpy(there.data(), a, BYTES, cudaMemcpyDeviceToHost));
  Call copy([&] { OK(cudaMemcpy(there.data(), a, BYTES, cudaMemcpyDeviceToHost)); });
  EXPECT(copy.returns());
}

// The stream's earlier host function writes the source. In stream order the device would get what
// that has written.
static void upload_behind_a_host_function(size_t bytes) {
  std::vector<char> there(bytes, 1);
  char* a = device_memory(bytes);
  cudaStream_t stream = non_blocking_stream();
  OK(cudaMemset(a, 0, bytes));
  OK(cudaDeviceSynchronize());
  Gate gate(stream, [&] { std::memset(there.data(), 2, bytes); });
  {
    Call copy([&] {
      OK(cudaMemcpyAsync(a, there.data(), bytes, cudaMemcpyHostToDevice, stream));
    });
    if (copy.is_held()) saw("the call waits");
    gate.open();
  }
  OK(cudaStreamSynchronize(stream));
  const int value = device_value(a, bytes);
  saw(value == 1 ? "read at the call" : value == 2 ? "read late" : "torn");
}

#define WAYS "the call waits, read at the call, read late, torn"
// If it is read at the call, the host function is seen to write too early.
RULE(rule_04_an_upload_of_pageable_memory_is_not_in_stream_order_on_the_host, WAYS,
     "SourceChanged?") {
  upload_behind_a_host_function(1 << 20);
}

RULE(rule_04_a_long_upload_of_pageable_memory_is_not_in_stream_order_on_the_host, WAYS,
     "SourceChanged?") {
  upload_behind_a_host_function(1 << 24);
}

RULE(rule_04_pageable_copies_have_their_place_on_the_device, "", "") {
  std::vector<char> there(BYTES, 3), back(BYTES, 0);
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  OK(cudaMemsetAsync(a, 1, BYTES, stream));
  OK(cudaMemcpyAsync(a, there.data(), BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(back.data(), a, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemsetAsync(a, 2, BYTES, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(back.data(), BYTES) == 3);
  EXPECT(device_value(a) == 2);
}

RULE(rule_04_downloads_to_the_same_pageable_memory_follow_each_other, "", "") {
  std::vector<char> back(BYTES, 0);
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 1; value < 20; ++value) {
    OK(cudaMemsetAsync(a, value, BYTES, stream));
    OK(cudaMemcpyAsync(back.data(), a, BYTES, cudaMemcpyDeviceToHost, stream));
  }
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(back.data(), BYTES) == 19);
}

// GPUs were only seen to wait. Nothing promises it, and this looks before it knows.
RULE(rule_04_a_download_to_pageable_memory_may_wait, "the bytes are there, they come later",
     "Race?") {
  std::vector<char> back(1 << 24, 0);
  char* a = device_memory(back.size());
  cudaStream_t stream = non_blocking_stream();
  OK(cudaMemsetAsync(a, 6, back.size(), stream));
  OK(cudaMemcpyAsync(back.data(), a, back.size(), cudaMemcpyDeviceToHost, stream));
  saw(value_of(back.data(), back.size()) == 6 ? "the bytes are there" : "they come later");
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(back.data(), back.size()) == 6);
}

RULE(rule_04_a_download_to_pageable_memory_that_is_used_too_early, "", "DestinationChanged?") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  std::vector<char> back(BYTES, 0);
  char* a = device_memory();
  OK(cudaMemset(a, 6, BYTES));
  cudaStream_t stream = blocking_stream();
  OK(cudaMemcpyAsync(back.data(), a, BYTES, cudaMemcpyDeviceToHost, stream));
  std::memset(back.data(), 9, BYTES);
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(back.data(), BYTES) == 9);
}

RULE(rule_05_asynchronous_copies_of_page_locked_memory_do_not_wait, "", "") {
  char *a = device_memory(), *b = device_memory(), *host = pinned(), *back = pinned();
  cudaStream_t stream = non_blocking_stream();
  std::memset(host, 6, BYTES);
  Gate gate(stream);
  Call copies([&] {
    OK(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, stream));
    OK(cudaMemcpyAsync(back, b, BYTES, cudaMemcpyDeviceToHost, stream));
  });
  EXPECT(copies.returns());
  cudaEvent_t behind = mark(stream);
  EXPECT(!is_done(behind));
  gate.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(back, BYTES) == 6);
}

RULE(rule_05_a_copy_of_lines_leaves_what_is_between_them, "", "") {
  std::vector<char> there(8 * 16, 7), back(16 * 16, 0);
  char* a = device_memory(16 * 16);
  OK(cudaMemset(a, 1, 16 * 16));
  OK(cudaMemcpy2D(a, 16, there.data(), 8, 8, 16, cudaMemcpyHostToDevice));
  OK(cudaMemcpy(back.data(), a, back.size(), cudaMemcpyDeviceToHost));
  for (size_t at = 0; at < back.size(); ++at) EXPECT(back[at] == (at % 16 < 8 ? 7 : 1));
}

RULE(rule_06_a_short_upload_may_be_asynchronous_to_the_host, "waits, does not wait", "") {
  std::vector<char> there(1 << 16, 2);
  char* a = device_memory(there.size());
  Gate gate(cudaStreamLegacy);
  {
    Call copy([&] { OK(cudaMemcpy(a, there.data(), there.size(), cudaMemcpyHostToDevice)); });
    saw(copy.is_held() ? "waits" : "does not wait");
    gate.open();
  }
  std::memset(there.data(), 9, there.size());
  EXPECT(device_value(a, there.size()) == 2);
}

RULE(rule_07_a_range_that_is_page_locked_in_part_is_refused, "", "NotPageLocked") {
  const size_t page = 4096;
  auto* there = static_cast<char*>(mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char* a = device_memory(4 * page);
  OK(cudaHostRegister(there, 2 * page, 0));
  OK(cudaMemcpy(a, there, 2 * page, cudaMemcpyHostToDevice));
  EXPECT(cudaMemcpyAsync(a, there, 4 * page, cudaMemcpyHostToDevice, nullptr) ==
         cudaErrorInvalidValue);
  OK(cudaDeviceSynchronize());
  OK(cudaHostUnregister(there));
}

RULE(rule_07_a_kind_that_contradicts_the_pointers_is_undefined, "", "BadCopy") {
  // GPUs were seen to go by the pointers.
  char *a = device_memory(), *b = device_memory();
  OK(cudaMemset(a, 3, BYTES));
  OK(cudaMemcpy(b, a, BYTES, cudaMemcpyHostToDevice));
  EXPECT(device_value(b) == 3);
  // But not if the kind says that pageable memory is a device's.
  std::vector<char> there(BYTES, 1);
  EXPECT(cudaMemcpy(b, there.data(), BYTES, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
}

RULE(rule_07_ranges_that_overlap_are_undefined, "", "BadCopy") {
  char* a = device_memory();
  OK(cudaMemcpy(a + 1, a, BYTES - 1, cudaMemcpyDeviceToDevice));
}

RULE(rule_07_memory_that_is_copied_onto_itself_is_undefined, "", "BadCopy") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  char* a = device_memory();
  OK(cudaMemset(a, 3, BYTES));
  OK(cudaMemcpy(a, a, BYTES, cudaMemcpyDeviceToDevice));
  char back[BYTES] = {};
  OK(cudaMemcpy(back, a, BYTES, cudaMemcpyDeviceToHost));
  EXPECT(back[0] == 3 && back[BYTES - 1] == 3);
}

// Copies parts of `src` to `dst`, in another order, by one call.
static cudaError_t batch(char* dst, const char* src, cudaMemcpySrcAccessOrder order,
                         cudaStream_t stream) {
  void* to[] = {dst + 2000, dst, dst + 1000};
  const void* from[] = {src + 2000, src, src + 1000};
  const size_t sizes[] = {BYTES - 2000, 1000, 1000};
  cudaMemcpyAttributes how{};
  how.srcAccessOrder = order;
  size_t first = 0;
  return cudaMemcpyBatchAsync(to, from, sizes, 3, &how, &first, 1, stream);
}

RULE(rule_08_a_batch_copies_all_in_stream_order, "", "") {
  char *host = pinned(), *a = device_memory(), *b = device_memory(), *back = pinned();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 1; value < 10; ++value) {
    std::memset(host, value, BYTES);
    OK(batch(a, host, cudaMemcpySrcAccessOrderStream, stream));
    OK(batch(b, a, cudaMemcpySrcAccessOrderStream, stream));
    OK(batch(back, b, cudaMemcpySrcAccessOrderStream, stream));
    OK(cudaStreamSynchronize(stream));
    EXPECT(value_of(back, BYTES) == value);
  }
}

RULE(rule_08_a_source_in_stream_order_is_read_behind_earlier_work, "", "") {
  char *host = pinned(), *a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  std::memset(host, 1, BYTES);
  Gate gate(stream, [=] { std::memset(host, 2, BYTES); });
  OK(batch(a, host, cudaMemcpySrcAccessOrderStream, stream));
  gate.open();
  EXPECT(device_value(a) == 2);
}

RULE(rule_08_a_source_during_the_call_may_go_when_it_returns, "", "") {
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  for (int value = 1; value < 10; ++value) {
    std::vector<char> there(BYTES, static_cast<char>(value));
    OK(batch(a, there.data(), cudaMemcpySrcAccessOrderDuringApiCall, stream));
    there.assign(BYTES, 99);
    OK(cudaStreamSynchronize(stream));
    EXPECT(device_value(a) == value);
  }
}

RULE(rule_08_a_source_in_any_order_may_be_read_ahead, "ahead, in order, torn?", "SourceChanged?") {
  std::vector<char> there(BYTES, 1);
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  Gate gate(stream, [&] { std::memset(there.data(), 2, BYTES); });
  {
    Call copy([&] { OK(batch(a, there.data(), cudaMemcpySrcAccessOrderAny, stream)); });
    (void)copy.is_held();
    gate.open();
  }
  const int value = device_value(a);
  saw(value == 1 ? "ahead" : value == 2 ? "in order" : "torn");
}

RULE(rule_08_the_legacy_stream_and_captures_refuse_a_batch, "", "Capture") {
  char *a = device_memory(), *b = device_memory();
  EXPECT(batch(b, a, cudaMemcpySrcAccessOrderStream, cudaStreamLegacy) == cudaErrorInvalidValue);
  OK(batch(b, a, cudaMemcpySrcAccessOrderStream, cudaStreamPerThread));
  OK(cudaStreamSynchronize(cudaStreamPerThread));
  cudaStream_t stream = non_blocking_stream();
  cudaGraph_t graph;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT(batch(b, a, cudaMemcpySrcAccessOrderStream, stream) == cudaErrorStreamCaptureUnsupported);
  OK(cudaMemsetAsync(a, 1, BYTES, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphDestroy(graph));
}

RULE(rule_09_a_fill_of_device_memory_does_not_wait, "", "") {
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  Gate gate(stream);
  Call fill([&] { OK(cudaMemsetAsync(a, 5, BYTES, stream)); });
  EXPECT(fill.returns());
  gate.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT(device_value(a) == 5);
}

RULE(rule_09_an_asynchronous_fill_of_page_locked_memory_does_not_wait, "", "") {
  char* host = pinned();
  cudaStream_t stream = non_blocking_stream();
  Gate gate(stream);
  Call fill([&] { OK(cudaMemsetAsync(host, 5, BYTES, stream)); });
  EXPECT(fill.returns());
  gate.open();
  OK(cudaStreamSynchronize(stream));
  EXPECT(value_of(host, BYTES) == 5);
}

RULE(rule_09_a_synchronous_fill_of_page_locked_memory_is_done_when_it_returns, "", "") {
  char* host = pinned();
  for (int value = 1; value < 20; ++value) {
    OK(cudaMemset(host, value, BYTES));
    EXPECT(value_of(host, BYTES) == value);
  }
}
