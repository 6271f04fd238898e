// Rules 32 to 34: captures and graphs.
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
