// Rules 32 to 34: captures and graphs.
#include "rules.h"

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
  EXPECT(end(stream) == cudaSuccess);
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
