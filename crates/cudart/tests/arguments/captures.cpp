// Calls while a stream is being captured.
#include "questions.h"

#include <thread>
#include <utility>

namespace {

void CUDART_CB nothing(void *) {}

// Whose capture it is: this thread's in three modes, or another's in global mode.
const char *const CAPTURES[] = {"global", "thread-local", "relaxed", "another thread's"};

struct Call {
  const char *name;
  long (*make)(World &);
};

#define CALL(name, ...)                                                                            \
  {name, [](World &w) -> long {                                                                    \
     (void)w;                                                                                      \
     return static_cast<long>(__VA_ARGS__);                                                        \
   }}

// The stream that is captured is `w.stream`.
const Call CALLS[] = {
    CALL("cudaMalloc", cudaMalloc(&w.out, 64)),
    CALL("cudaFree", cudaFree(w.other_device)),
    CALL("cudaFree NULL", cudaFree(nullptr)),
    CALL("cudaMallocManaged", cudaMallocManaged(&w.out, 64, cudaMemAttachGlobal)),
    CALL("cudaHostAlloc", cudaHostAlloc(&w.out, 64, 0)),
    CALL("cudaFreeHost", cudaFreeHost(w.other_host)),
    CALL("cudaHostRegister", cudaHostRegister(w.pageable, BYTES, 0)),
    CALL("cudaHostUnregister", cudaHostUnregister(w.pageable)),
    CALL("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&w.out, w.host, 0)),
    CALL("cudaPointerGetAttributes",
         [](World &w) {
           cudaPointerAttributes attributes{};
           return cudaPointerGetAttributes(&attributes, w.device);
         }(w)),
    CALL("cudaMemGetInfo", cudaMemGetInfo(&w.size, nullptr)),
    CALL("cudaMemcpy", cudaMemcpy(w.device, w.host, 64, cudaMemcpyHostToDevice)),
    CALL("cudaMemset", cudaMemset(w.device, 1, 64)),
    CALL("cudaMemcpyAsync on it",
         cudaMemcpyAsync(w.device, w.host, 64, cudaMemcpyDefault, w.stream)),
    CALL("cudaMemcpyAsync on another stream",
         cudaMemcpyAsync(w.device, w.host, 64, cudaMemcpyDefault, w.other_stream)),
    CALL("cudaMemcpyAsync on the legacy stream",
         cudaMemcpyAsync(w.device, w.host, 64, cudaMemcpyDefault, cudaStreamLegacy)),
    CALL("cudaMemcpyAsync pageable on it",
         cudaMemcpyAsync(w.device, w.pageable, 64, cudaMemcpyDefault, w.stream)),
    CALL("cudaMemcpyAsync pageable on another stream",
         cudaMemcpyAsync(w.device, w.pageable, 64, cudaMemcpyDefault, w.other_stream)),
    CALL("cudaMemcpyAsync NULL on it",
         cudaMemcpyAsync(nullptr, w.host, 64, cudaMemcpyDefault, w.stream)),
    CALL("cudaMemcpyAsync freed device on it",
         cudaMemcpyAsync(w.freed_device, w.host, 64, cudaMemcpyDefault, w.stream)),
    CALL("cudaMemsetAsync pageable on it", cudaMemsetAsync(w.pageable, 1, 64, w.stream)),
    CALL("cudaMemcpyPeerAsync on it",
         cudaMemcpyPeerAsync(w.device, 0, w.other_device, 0, 64, w.stream)),
    CALL("cudaMallocAsync on it", cudaMallocAsync(&w.out, 64, w.stream)),
    CALL("cudaMallocAsync on another stream", cudaMallocAsync(&w.out, 64, w.other_stream)),
    CALL("cudaFreeAsync of cudaMalloc on it", cudaFreeAsync(w.other_device, w.stream)),
    CALL("cudaLaunchHostFunc on it", cudaLaunchHostFunc(w.stream, nothing, nullptr)),
    CALL("cudaStreamQuery of it", cudaStreamQuery(w.stream)),
    CALL("cudaStreamQuery of another", cudaStreamQuery(w.other_stream)),
    CALL("cudaStreamSynchronize of it", cudaStreamSynchronize(w.stream)),
    CALL("cudaStreamSynchronize of another", cudaStreamSynchronize(w.other_stream)),
    CALL("cudaStreamSynchronize of the legacy", cudaStreamSynchronize(cudaStreamLegacy)),
    CALL("cudaDeviceSynchronize", cudaDeviceSynchronize()),
    CALL("cudaEventQuery", cudaEventQuery(w.event)),
    CALL("cudaEventSynchronize", cudaEventSynchronize(w.event)),
    CALL("cudaEventRecord on it", cudaEventRecord(w.event, w.stream)),
    CALL("cudaEventRecord on another stream", cudaEventRecord(w.event, w.other_stream)),
    CALL("cudaStreamWaitEvent, not captured", cudaStreamWaitEvent(w.stream, w.event, 0)),
    CALL("cudaStreamCreate", cudaStreamCreate(&w.new_stream)),
    CALL("cudaStreamDestroy of another", cudaStreamDestroy(w.other_stream)),
    CALL("cudaStreamDestroy of it", cudaStreamDestroy(w.stream)),
    CALL("cudaEventCreate", cudaEventCreate(&w.new_event)),
    CALL("cudaEventDestroy", cudaEventDestroy(w.event)),
    CALL("cudaStreamAttachMemAsync on it", cudaStreamAttachMemAsync(w.stream, w.managed, 0, 4)),
    CALL("cudaMemPoolTrimTo", cudaMemPoolTrimTo(w.default_pool, 0)),
    CALL("cudaGraphCreate", cudaGraphCreate(&w.graph, 0)),
    CALL("cudaSetDevice", cudaSetDevice(0)),
    CALL("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&w.number, cudaDevAttrWarpSize, 0)),
    CALL("cudaStreamBeginCapture of another",
         cudaStreamBeginCapture(w.other_stream, cudaStreamCaptureModeRelaxed)),
};

constexpr size_t CALL_COUNT = sizeof CALLS / sizeof *CALLS;

// The call in the capture; then its end, by the thread that began it.
template <size_t capture, size_t call>
long asked(World &w) {
  cudaHostRegister(w.pageable, BYTES / 2, 0);
  cudaHostUnregister(w.pageable);
  const bool by_another = capture == 3;
  const auto mode = static_cast<cudaStreamCaptureMode>(by_another ? 0 : capture);
  cudaStreamBeginCapture(w.stream, mode);
  long answer = 0;
  if (by_another) {
    std::thread([&] { answer = CALLS[call].make(w); }).join();
  } else {
    answer = CALLS[call].make(w);
  }
  return both(answer, 1000, ended(w.stream));
}

template <size_t capture, size_t... calls>
void ask_all(Questions &questions, std::index_sequence<calls...>) {
  const std::string name = std::string("capture, ") + CAPTURES[capture] + ": ";
  (questions.push_back({name + CALLS[calls].name, asked<capture, calls>}), ...);
}

// The captures themselves.
Questions whole() {
  return {
    STEPS("capture: cudaMalloc, global mode",
          cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
          const long answer = cudaMalloc(&w.out, 64); return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaStreamSynchronize of it",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cudaStreamSynchronize(w.stream);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaDeviceSynchronize, relaxed",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cudaDeviceSynchronize();
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: pageable copy",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer =
                  cudaMemcpyAsync(w.device, w.pageable, BYTES, cudaMemcpyHostToDevice, w.stream);
              return both(answer, 1000, ended(w.stream));),
        ASK("capture: legacy stream",
            cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed)),
        ASK("capture: default stream",
            cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed)),
        ASK("capture: per-thread stream",
            cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed)),
        ASK("capture: destroyed stream",
            cudaStreamBeginCapture(w.destroyed, cudaStreamCaptureModeRelaxed)),
        ASK("capture: mode 9",
            cudaStreamBeginCapture(w.stream, static_cast<cudaStreamCaptureMode>(9))),
        STEPS("capture: begin twice",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              return cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);),
        STEPS("capture: end without begin", return cudaStreamEndCapture(w.stream, &w.graph);),
        STEPS("capture: end, NULL out",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              return cudaStreamEndCapture(w.stream, nullptr);),
        ASK("capture: end of the legacy stream", cudaStreamEndCapture(cudaStreamLegacy, &w.graph)),
        STEPS("capture: end by another thread, thread-local",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeThreadLocal);
              long answer = 0; std::thread([&] { answer = ended(w.stream); }).join();
              return answer;),
        STEPS("capture: end by another thread, relaxed",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              long answer = 0; std::thread([&] { answer = ended(w.stream); }).join();
              return answer;),
        STEPS("capture: cudaFreeHost, global",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              const long answer = cudaFreeHost(w.other_host);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaEventQuery of a captured event",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); const long answer = cudaEventQuery(w.event);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaEventSynchronize of a captured event",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); const long answer = cudaEventSynchronize(w.event);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaEventQuery of a captured event, past the end",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); ended(w.stream); return cudaEventQuery(w.event);),
        STEPS("capture: cudaEventElapsedTime of captured events",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.timed, w.stream);
              const long answer = cudaEventElapsedTime(&w.time, w.timed, w.timed);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaStreamWaitEvent external",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cudaStreamWaitEvent(w.stream, w.event, cudaEventWaitExternal);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaEventRecordWithFlags external",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer =
                  cudaEventRecordWithFlags(w.event, w.stream, cudaEventRecordExternal);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: cudaStreamQuery of it",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cudaStreamQuery(w.stream);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: unjoined fork",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); cudaStreamWaitEvent(w.other_stream, w.event, 0);
              cudaMemsetAsync(w.device, 1, BYTES, w.other_stream); return ended(w.stream);),
        STEPS("capture: joined fork",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); cudaStreamWaitEvent(w.other_stream, w.event, 0);
              cudaMemsetAsync(w.device, 1, BYTES, w.other_stream);
              cudaEventRecord(w.timed, w.other_stream); cudaStreamWaitEvent(w.stream, w.timed, 0);
              return ended(w.stream);),
        STEPS("capture: end of the forked stream",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaEventRecord(w.event, w.stream); cudaStreamWaitEvent(w.other_stream, w.event, 0);
              return cudaStreamEndCapture(w.other_stream, &w.graph);),
        STEPS("capture: cudaStreamGetPriority of it",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cudaStreamGetPriority(w.stream, &w.number);
              return both(answer, 1000, ended(w.stream));),
        STEPS("capture: of nothing", cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              return ended(w.stream);),
        STEPS("cudaStreamIsCapturing while capturing",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              cudaStreamCaptureStatus status{};
              const long answer = cudaStreamIsCapturing(w.stream, &status);
              return both(answer, 10, status);),
        STEPS("cudaStreamIsCapturing invalidated",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              (void)cudaStreamSynchronize(w.stream); cudaStreamCaptureStatus status{};
              const long answer = cudaStreamIsCapturing(w.stream, &status);
              return both(answer, 10, status);),
        STEPS("cudaStreamIsCapturing of the legacy stream while capturing",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              cudaStreamCaptureStatus status{};
              const long answer = cudaStreamIsCapturing(cudaStreamLegacy, &status);
              return both(answer, 10, status);),
        ASK("cudaStreamIsCapturing NULL out", cudaStreamIsCapturing(w.stream, nullptr)),
        STEPS("cudaThreadExchangeStreamCaptureMode 9",
              auto mode = static_cast<cudaStreamCaptureMode>(9);
              return cudaThreadExchangeStreamCaptureMode(&mode);),
        ASK("cudaThreadExchangeStreamCaptureMode NULL",
            cudaThreadExchangeStreamCaptureMode(nullptr)),
        STEPS("capture: cudaMalloc, global, the thread's mode relaxed",
              auto mode = cudaStreamCaptureModeRelaxed;
              cudaThreadExchangeStreamCaptureMode(&mode);
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              const long answer = cudaMalloc(&w.out, 64);
              return both(answer, 1000, ended(w.stream));),
  };
}

} // namespace

Questions captures() {
  Questions all = whole();
  const auto calls = std::make_index_sequence<CALL_COUNT>();
  ask_all<0>(all, calls);
  ask_all<1>(all, calls);
  ask_all<2>(all, calls);
  ask_all<3>(all, calls);
  return all;
}
