// Calls inside functions that a stream calls.
#include "questions.h"

#include <string_view>
#include <utility>

namespace {

void CUDART_CB nothing(void *) {}

struct Call {
  const char *name;
  long (*make)(World &);
};

#define CALL(name, ...)                                                                            \
  {name, [](World &w) -> long {                                                                    \
     (void)w;                                                                                      \
     return static_cast<long>(__VA_ARGS__);                                                        \
   }}

// The stream that calls is `w.stream`.
constexpr Call CALLS[] = {
    CALL("cudaMalloc", cudaMalloc(&w.out, 64)),
    CALL("cudaMalloc NULL out", cudaMalloc(static_cast<void **>(nullptr), 64)),
    CALL("cudaFree", cudaFree(w.other_device)),
    CALL("cudaFree NULL", cudaFree(nullptr)),
    CALL("cudaHostAlloc", cudaHostAlloc(&w.out, 64, 0)),
    CALL("cudaFreeHost", cudaFreeHost(w.host)),
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
    CALL("cudaMemcpyAsync",
         cudaMemcpyAsync(w.device, w.host, 64, cudaMemcpyHostToDevice, w.other_stream)),
    CALL("cudaMemsetAsync", cudaMemsetAsync(w.device, 1, 64, w.other_stream)),
    CALL("cudaMallocAsync", cudaMallocAsync(&w.out, 64, w.other_stream)),
    CALL("cudaFreeAsync NULL", cudaFreeAsync(nullptr, w.other_stream)),
    CALL("cudaLaunchHostFunc", cudaLaunchHostFunc(w.other_stream, nothing, nullptr)),
    CALL("cudaStreamQuery", cudaStreamQuery(w.stream)),
    CALL("cudaStreamQuery of another", cudaStreamQuery(w.other_stream)),
    CALL("cudaStreamSynchronize of another", cudaStreamSynchronize(w.other_stream)),
    CALL("cudaStreamWaitEvent", cudaStreamWaitEvent(w.other_stream, w.event, 0)),
    CALL("cudaStreamCreate", cudaStreamCreate(&w.new_stream)),
    CALL("cudaStreamDestroy", cudaStreamDestroy(w.other_stream)),
    CALL("cudaStreamGetFlags", cudaStreamGetFlags(w.stream, &w.flags)),
    CALL("cudaStreamGetPriority", cudaStreamGetPriority(w.stream, &w.number)),
    CALL("cudaStreamGetDevice", cudaStreamGetDevice(w.stream, &w.number)),
    CALL("cudaStreamGetId", cudaStreamGetId(w.stream, &w.id)),
    CALL("cudaStreamIsCapturing",
         [](World &w) {
           cudaStreamCaptureStatus status{};
           return cudaStreamIsCapturing(w.stream, &status);
         }(w)),
    CALL("cudaStreamBeginCapture",
         cudaStreamBeginCapture(w.other_stream, cudaStreamCaptureModeRelaxed)),
    CALL("cudaDeviceSynchronize", cudaDeviceSynchronize()),
    CALL("cudaEventQuery", cudaEventQuery(w.event)),
    CALL("cudaEventQuery NULL", cudaEventQuery(nullptr)),
    CALL("cudaEventSynchronize", cudaEventSynchronize(w.event)),
    CALL("cudaEventRecord", cudaEventRecord(w.event, w.other_stream)),
    CALL("cudaEventCreate", cudaEventCreate(&w.new_event)),
    CALL("cudaEventDestroy", cudaEventDestroy(w.event)),
    CALL("cudaEventElapsedTime", cudaEventElapsedTime(&w.time, w.timed, w.timed)),
    CALL("cudaGetDevice", cudaGetDevice(&w.number)),
    CALL("cudaSetDevice", cudaSetDevice(0)),
    CALL("cudaGetDeviceCount", cudaGetDeviceCount(&w.number)),
    CALL("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&w.number, cudaDevAttrWarpSize, 0)),
    CALL("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&w.number, nullptr)),
    CALL("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&w.number, 0, 0)),
    CALL("cudaDriverGetVersion", cudaDriverGetVersion(&w.number)),
    CALL("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&w.number)),
    CALL("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&w.pool, 0)),
    CALL("cudaMemPoolTrimTo", cudaMemPoolTrimTo(w.default_pool, 0)),
    CALL("cudaGraphCreate", cudaGraphCreate(&w.graph, 0)),
    CALL("cudaThreadExchangeStreamCaptureMode",
         [] {
           auto mode = cudaStreamCaptureModeRelaxed;
           return cudaThreadExchangeStreamCaptureMode(&mode);
         }()),
    CALL("cudaPeekAtLastError", cudaPeekAtLastError()),
    CALL("cudaGetLastError", cudaGetLastError()),
    CALL("cudaGetLastError, past an error", (cudaMalloc(&w.out, 64), cudaGetLastError())),
    CALL("cuMemAlloc", cuMemAlloc(&w.address, 64)),
    CALL("cuMemFree", cuMemFree(at(w.other_device))),
    CALL("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync(at(w.device), w.host, 64, w.other_stream)),
    CALL("cuStreamQuery", cuStreamQuery(w.other_stream)),
    CALL("cuEventQuery", cuEventQuery(w.event)),
    CALL("cuCtxGetCurrent", cuCtxGetCurrent(&w.context)),
    CALL("cuCtxGetDevice", cuCtxGetDevice(&w.number)),
    CALL("cuCtxSetCurrent", cuCtxSetCurrent(nullptr)),
    CALL("cuCtxSynchronize", cuCtxSynchronize()),
    CALL("cuDeviceGet", cuDeviceGet(&w.number, 0)),
    CALL("cuDeviceGetCount", cuDeviceGetCount(&w.number)),
    CALL("cuDriverGetVersion", cuDriverGetVersion(&w.number)),
    CALL("cuPointerGetAttribute",
         cuPointerGetAttribute(&w.number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(w.device))),
};

constexpr size_t CALL_COUNT = sizeof CALLS / sizeof *CALLS;

constexpr size_t number_of(std::string_view name) {
  size_t call = 0;
  while (CALLS[call].name != name)
    ++call;
  return call;
}

struct Inside {
  World *world;
  long (*make)(World &);
  long answer;
};

template <size_t call>
long asked(World &w) {
  Inside inside{&w, CALLS[call].make, -1};
  const auto run = [](void *data) {
    auto *inside = static_cast<Inside *>(data);
    inside->answer = inside->make(*inside->world);
  };
  cudaLaunchHostFunc(w.stream, run, &inside);
  cudaStreamSynchronize(w.stream);
  return inside.answer;
}

// The same inside the older form, which may make no call either.
template <size_t call>
long called_back(World &w) {
  Inside inside{&w, CALLS[call].make, -1};
  const auto run = [](cudaStream_t, cudaError_t, void *data) {
    auto *inside = static_cast<Inside *>(data);
    inside->answer = inside->make(*inside->world);
  };
  cudaStreamAddCallback(w.stream, run, &inside, 0);
  cudaStreamSynchronize(w.stream);
  return inside.answer;
}

template <size_t... calls>
Questions ask_all(std::index_sequence<calls...>) {
  return {{std::string("in a host function: ") + CALLS[calls].name, asked<calls>}...};
}

} // namespace

Questions host_functions() {
  Questions all = ask_all(std::make_index_sequence<CALL_COUNT>());
  all.push_back({"in a callback: cudaMalloc", called_back<number_of("cudaMalloc")>});
  all.push_back({"in a callback: cudaEventQuery", called_back<number_of("cudaEventQuery")>});
  all.push_back({"in a callback: cudaGetDevice", called_back<number_of("cudaGetDevice")>});
  return all;
}
