// Rules 32 to 34 and 36: captures and graphs.
#include "rules.h"

#include <cstring>

static void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  OK(cudaStreamBeginCapture(stream, mode));
}

static cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t answer = cudaStreamEndCapture(stream, &graph);
  EXPECT((answer == cudaSuccess) == (graph != nullptr));
  if (graph != nullptr) OK(cudaGraphDestroy(graph));
  return answer;
}

RULE(rule_32_the_legacy_stream_cannot_be_captured, "", "") {
  EXPECT(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeGlobal) ==
         cudaErrorStreamCaptureUnsupported);
}

RULE(rule_32_while_a_blocking_stream_captures_the_legacy_stream_fails, "", "") {
  char* a = device_memory();
  cudaStream_t stream = blocking_stream();
  begin(stream, cudaStreamCaptureModeRelaxed);
  EXPECT(cudaMemsetAsync(a, 1, BYTES, nullptr) == cudaErrorStreamCaptureImplicit);
  EXPECT(end(stream) == cudaErrorStreamCaptureInvalidated);
}

RULE(rule_32_while_a_non_blocking_stream_captures_the_legacy_stream_works, "", "") {
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream();
  begin(stream);
  OK(cudaMemsetAsync(a, 1, BYTES, nullptr));
  EXPECT(end(stream) == cudaSuccess);
  EXPECT(device_value(a) == 1);
}

RULE(rule_32_a_capture_ends_on_its_stream_and_thread, "", "") {
  cudaStream_t stream = non_blocking_stream();
  begin(stream);
  std::thread([=] {
    EXPECT(end(stream) == cudaErrorStreamCaptureWrongThread);
    (void)cudaGetLastError();
  }).join();
  // The capture has ended all the same.
  EXPECT(end(stream) == cudaErrorIllegalState);
  EXPECT(cudaStreamSynchronize(stream) == cudaSuccess);
}

RULE(rule_33_a_synchronize_of_a_capturing_stream_kills_the_capture, "", "") {
  for (int mode = 0; mode < 3; ++mode) {
    cudaStream_t stream = non_blocking_stream();
    begin(stream, static_cast<cudaStreamCaptureMode>(mode));
    EXPECT(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    EXPECT(end(stream) == cudaErrorStreamCaptureInvalidated);
  }
}

RULE(rule_33_a_captured_event_cannot_be_queried_in_any_mode, "", "") {
  for (int mode = 0; mode < 3; ++mode) {
    cudaStream_t stream = non_blocking_stream();
    begin(stream, static_cast<cudaStreamCaptureMode>(mode));
    cudaEvent_t captured = mark(stream);
    EXPECT(cudaEventQuery(captured) == cudaErrorCapturedEvent);
    EXPECT(end(stream) == cudaErrorStreamCaptureInvalidated);
  }
}

// Calls something while a stream captures, on this thread or on another one.
static void beside_a_capture(cudaStreamCaptureMode mode, bool here, bool fails,
                             const std::function<cudaError_t()>& call) {
  cudaStream_t stream = non_blocking_stream();
  begin(stream, mode);
  const auto made = [&] {
    EXPECT(call() == (fails ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
    (void)cudaGetLastError();
  };
  if (here) {
    made();
  } else {
    std::thread(made).join();
  }
  EXPECT(end(stream) == (fails ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
}

RULE(rule_33_which_threads_each_mode_forbids_to_allocate, "", "Capture") {
  const auto call = [] {
    void* memory;
    return cudaMalloc(&memory, BYTES);
  };
  beside_a_capture(cudaStreamCaptureModeGlobal, true, true, call);
  beside_a_capture(cudaStreamCaptureModeGlobal, false, true, call);
  beside_a_capture(cudaStreamCaptureModeThreadLocal, true, true, call);
  beside_a_capture(cudaStreamCaptureModeThreadLocal, false, false, call);
  beside_a_capture(cudaStreamCaptureModeRelaxed, true, false, call);
  beside_a_capture(cudaStreamCaptureModeRelaxed, false, false, call);
}

RULE(rule_33_which_threads_each_mode_forbids_to_query_an_event, "", "Capture") {
  cudaEvent_t other = mark(non_blocking_stream());
  OK(cudaEventSynchronize(other));
  const auto call = [=] { return cudaEventQuery(other); };
  beside_a_capture(cudaStreamCaptureModeGlobal, false, true, call);
  beside_a_capture(cudaStreamCaptureModeThreadLocal, true, true, call);
  beside_a_capture(cudaStreamCaptureModeThreadLocal, false, false, call);
  beside_a_capture(cudaStreamCaptureModeRelaxed, true, false, call);
}

RULE(rule_33_a_thread_may_say_that_it_takes_care_itself, "", "") {
  beside_a_capture(cudaStreamCaptureModeGlobal, false, false, [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT(mode == cudaStreamCaptureModeGlobal);
    void* memory;
    return cudaMalloc(&memory, BYTES);
  });
}

RULE(rule_32_a_relaxed_capture_may_end_on_another_thread, "", "") {
  cudaStream_t stream = non_blocking_stream();
  begin(stream, cudaStreamCaptureModeRelaxed);
  std::thread([=] { EXPECT(end(stream) == cudaSuccess); }).join();
}

// An executable graph that uploads the block and adds 1 on the way back.
static cudaGraphExec_t captured(cudaStream_t stream, char* host, char* a, char* back) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  begin(stream);
  OK(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(back, a, BYTES, cudaMemcpyDeviceToHost, stream));
  OK(cudaLaunchHostFunc(stream, [](void* bytes) { *static_cast<char*>(bytes) += 1; }, back));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  return executable;
}

RULE(rule_34_a_captured_upload_reads_its_source_at_every_replay, "", "") {
  char *host = pinned(), *a = device_memory(), *back = pinned();
  cudaStream_t stream = non_blocking_stream();
  std::memset(host, 1, BYTES);
  std::memset(back, 0, BYTES);
  OK(cudaMemset(a, 9, BYTES));
  OK(cudaDeviceSynchronize());
  cudaGraphExec_t executable = captured(stream, host, a, back);
  EXPECT(device_value(a) == 9);
  for (int value = 2; value < 10; ++value) {
    std::memset(host, value, BYTES);
    OK(cudaGraphLaunch(executable, stream));
    OK(cudaStreamSynchronize(stream));
    EXPECT(device_value(a) == value);
    EXPECT(back[0] == value + 1 && value_of(back + 1, BYTES - 1) == value);
  }
  OK(cudaGraphExecDestroy(executable));
  OK(cudaFreeHost(host));
}

RULE(rule_34_a_block_is_held_for_the_life_of_the_graph, "", "FreedInFlight") {
  if (!is_emulated()) skip("undefined; the emulated device reports it");
  char *host = pinned(), *a = device_memory(), *back = pinned();
  cudaStream_t stream = non_blocking_stream();
  cudaGraphExec_t executable = captured(stream, host, a, back);
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFreeHost(host));
  OK(cudaGraphExecDestroy(executable));
}

// Another stream does what `work` does there, in the capture of the first. The first waits for it.
static void forked(cudaStream_t stream, const std::function<void(cudaStream_t)>& work) {
  cudaStream_t other = non_blocking_stream();
  OK(cudaStreamWaitEvent(other, mark(stream), 0));
  work(other);
  OK(cudaStreamWaitEvent(stream, mark(other), 0));
}

static void launch(cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaGraphExecDestroy(executable));
  OK(cudaGraphDestroy(graph));
}

RULE(rule_36_a_stream_joins_a_capture_by_an_event_and_waits_at_the_launch, "", "") {
  char *host = pinned(), *back = pinned(), *a = device_memory(), *b = device_memory();
  cudaStream_t stream = non_blocking_stream();
  std::memset(host, 7, BYTES);
  std::memset(back, 0, BYTES);
  begin(stream);
  OK(cudaMemcpyAsync(a, host, BYTES, cudaMemcpyHostToDevice, stream));
  forked(stream, [=](cudaStream_t other) {
    OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, other));
  });
  OK(cudaMemcpyAsync(back, b, BYTES, cudaMemcpyDeviceToHost, stream));
  launch(stream);
  EXPECT(value_of(back, BYTES) == 7);
}

RULE(rule_36_a_stream_that_is_not_joined_ends_the_capture_and_stays_usable, "", "") {
  char* a = device_memory();
  cudaStream_t stream = non_blocking_stream(), other = non_blocking_stream();
  begin(stream);
  OK(cudaStreamWaitEvent(other, mark(stream), 0));
  OK(cudaMemsetAsync(a, 1, BYTES, other));
  EXPECT(end(stream) == cudaErrorStreamCaptureUnjoined);
  (void)cudaGetLastError();
  for (cudaStream_t each : {stream, other}) {
    OK(cudaMemsetAsync(a, 2, BYTES, each));
    OK(cudaStreamSynchronize(each));
  }
  EXPECT(device_value(a) == 2);
}

RULE(rule_36_streams_of_a_capture_run_in_any_order, "the first, the other", "") {
  static std::mutex mutex;
  static std::vector<int> came;
  const auto come = [](void* number) {
    const std::lock_guard<std::mutex> lock(mutex);
    came.push_back(*static_cast<int*>(number));
  };
  static int numbers[2] = {0, 1};
  cudaStream_t stream = non_blocking_stream();
  came.clear();
  begin(stream);
  cudaStream_t other = non_blocking_stream();
  OK(cudaStreamWaitEvent(other, mark(stream), 0));
  OK(cudaLaunchHostFunc(stream, come, &numbers[0]));
  OK(cudaLaunchHostFunc(other, come, &numbers[1]));
  OK(cudaStreamWaitEvent(stream, mark(other), 0));
  launch(stream);
  EXPECT(came.size() == 2);
  saw(came[0] == 0 ? "the first" : "the other");
}

RULE(rule_36_streams_of_a_capture_race_without_a_wait, "", "Race") {
  if (!is_emulated()) skip("a race is undefined; the emulated device reports it");
  char *a = device_memory(), *b = device_memory();
  cudaStream_t stream = non_blocking_stream();
  begin(stream);
  cudaEvent_t begun = mark(stream);
  OK(cudaMemsetAsync(a, 1, BYTES, stream));
  cudaStream_t other = non_blocking_stream();
  OK(cudaStreamWaitEvent(other, begun, 0));
  OK(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice, other));
  OK(cudaStreamWaitEvent(stream, mark(other), 0));
  launch(stream);
}
