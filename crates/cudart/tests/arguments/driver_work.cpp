// The driver: copies, fills, streams, events.
#include "questions.h"

namespace {

constexpr size_t FAR_PAST = BYTES + (64 << 20);

// A good copy up of 4 lines of 64 bytes.
CUDA_MEMCPY2D lines(const World &w) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = w.host;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = at(w.device);
  copy.dstPitch = 128;
  copy.WidthInBytes = 64;
  copy.Height = 4;
  return copy;
}

// A good copy but for what the statements change in `c`.
#define LINES(name, ...)                                                                           \
  STEPS("cuMemcpy2DAsync " name, CUDA_MEMCPY2D c = lines(w); __VA_ARGS__;                          \
        return cuMemcpy2DAsync(&c, w.stream);)

Questions moves() {
  return {
    ASK("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync(at(w.device), w.host, BYTES, w.stream)),
        ASK("cuMemcpyHtoDAsync NULL source",
            cuMemcpyHtoDAsync(at(w.device), nullptr, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync NULL destination", cuMemcpyHtoDAsync(0, w.host, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync 0 bytes", cuMemcpyHtoDAsync(0, nullptr, 0, w.stream)),
        ASK("cuMemcpyHtoDAsync from device",
            cuMemcpyHtoDAsync(at(w.device), w.other_device, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync to host", cuMemcpyHtoDAsync(at(w.host), w.other_host, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync to pageable",
            cuMemcpyHtoDAsync(at(w.pageable), w.host, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync past the end",
            cuMemcpyHtoDAsync(at(w.device), w.host, FAR_PAST, w.stream)),
        ASK("cuMemcpyHtoDAsync freed", cuMemcpyHtoDAsync(at(w.freed_device), w.host, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync unmapped",
            cuMemcpyHtoDAsync(at(w.device), w.unmapped, 64, w.stream)),
        ASK("cuMemcpyHtoDAsync destroyed stream",
            cuMemcpyHtoDAsync(at(w.device), w.host, 64, w.destroyed)),
        ASK("cuMemcpyDtoHAsync", cuMemcpyDtoHAsync(w.host, at(w.device), BYTES, w.stream)),
        ASK("cuMemcpyDtoHAsync NULL", cuMemcpyDtoHAsync(nullptr, at(w.device), 64, w.stream)),
        ASK("cuMemcpyDtoHAsync to device",
            cuMemcpyDtoHAsync(w.other_device, at(w.device), 64, w.stream)),
        ASK("cuMemcpyDtoHAsync from host",
            cuMemcpyDtoHAsync(w.host, at(w.other_host), 64, w.stream)),
        ASK("cuMemcpyDtoHAsync from pageable",
            cuMemcpyDtoHAsync(w.host, at(w.pageable), 64, w.stream)),
        STEPS("cuMemcpyDtoHAsync to registered read-only", cuMemHostRegister(w.read_only, BYTES, 8);
              return cuMemcpyDtoHAsync(w.read_only, at(w.device), 64, w.stream);),
        ASK("cuMemcpyDtoDAsync",
            cuMemcpyDtoDAsync(at(w.device), at(w.other_device), BYTES, w.stream)),
        ASK("cuMemcpyDtoDAsync NULL", cuMemcpyDtoDAsync(at(w.device), 0, 64, w.stream)),
        ASK("cuMemcpyDtoDAsync from host",
            cuMemcpyDtoDAsync(at(w.device), at(w.host), 64, w.stream)),
        ASK("cuMemcpyDtoDAsync from pageable",
            cuMemcpyDtoDAsync(at(w.device), at(w.pageable), 64, w.stream)),
        ASK("cuMemcpyDtoDAsync overlapping",
            cuMemcpyDtoDAsync(at(w.device) + 64, at(w.device), 4096, w.stream)),
        ASK("cuMemcpyAsync up", cuMemcpyAsync(at(w.device), at(w.host), 64, w.stream)),
        ASK("cuMemcpyAsync NULL", cuMemcpyAsync(at(w.device), 0, 64, w.stream)),
        ASK("cuMemcpyAsync pageable", cuMemcpyAsync(at(w.device), at(w.pageable), 64, w.stream)),
        ASK("cuMemcpyAsync within pageable",
            cuMemcpyAsync(at(w.pageable), at(w.pageable) + 4096, 64, w.stream)),
        ASK("cuMemcpy 0 bytes", cuMemcpy(0, 0, 0)),
        ASK("cuMemcpyHtoD NULL", cuMemcpyHtoD(at(w.device), nullptr, 64)),
        ASK("cuMemcpyDtoH freed", cuMemcpyDtoH(w.pageable, at(w.freed_device), 64)),
        ASK("cuMemcpyHtoD to pinned", cuMemcpyHtoD(at(w.host), w.pageable, 64)),
        LINES("good", (void)c), ASK("cuMemcpy2DAsync NULL", cuMemcpy2DAsync(nullptr, w.stream)),
        LINES("pitch below width", c.srcPitch = 32),
        LINES("destination's pitch below width", c.dstPitch = 32),
        LINES("pitch 0", c.srcPitch = c.dstPitch = 0), LINES("no lines", c.Height = 0),
        LINES("no width", c.WidthInBytes = 0), LINES("NULL source", c.srcHost = nullptr),
        LINES("type 9", c.srcMemoryType = static_cast<CUmemorytype>(9)),
        LINES("unified", c.srcMemoryType = CU_MEMORYTYPE_UNIFIED; c.srcDevice = at(w.host)),
        LINES("host memory as device", c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
              c.srcDevice = at(w.host)),
        LINES("device memory as host", c.srcHost = w.other_device),
  };
}

Questions filling() {
  return {
      ASK("cuMemsetD8Async", cuMemsetD8Async(at(w.device), 1, BYTES, w.stream)),
      ASK("cuMemsetD8Async NULL", cuMemsetD8Async(0, 1, 64, w.stream)),
      ASK("cuMemsetD8Async NULL, none", cuMemsetD8Async(0, 1, 0, w.stream)),
      ASK("cuMemsetD8Async host", cuMemsetD8Async(at(w.host), 1, 64, w.stream)),
      ASK("cuMemsetD8Async pageable", cuMemsetD8Async(at(w.pageable), 1, 64, w.stream)),
      ASK("cuMemsetD16Async unaligned", cuMemsetD16Async(at(w.device) + 1, 1, 8, w.stream)),
      ASK("cuMemsetD32Async unaligned", cuMemsetD32Async(at(w.device) + 2, 1, 8, w.stream)),
      ASK("cuMemsetD32Async aligned", cuMemsetD32Async(at(w.device) + 4, 1, 8, w.stream)),
      ASK("cuMemsetD32Async past the end",
          cuMemsetD32Async(at(w.device), 1, FAR_PAST / 4, w.stream)),
      ASK("cuMemsetD32Async huge", cuMemsetD32Async(at(w.device), 1, HUGE_BYTES, w.stream)),
      ASK("cuMemsetD16 unaligned", cuMemsetD16(at(w.device) + 1, 1, 8)),
      ASK("cuMemsetD8 freed", cuMemsetD8(at(w.freed_device), 1, 8)),
      ASK("cuMemsetD2D8 pitch below width", cuMemsetD2D8(at(w.device), 32, 1, 64, 4)),
      ASK("cuMemsetD2D32 pitch unaligned", cuMemsetD2D32(at(w.device), 65, 1, 8, 4)),
      ASK("cuMemsetD2D8 no lines", cuMemsetD2D8(0, 64, 1, 64, 0)),
  };
}

Questions ordering() {
  return {
    ASK("cuStreamCreate NULL", cuStreamCreate(nullptr, 0)),
        ASK("cuStreamCreate flags 2", cuStreamCreate(&w.new_stream, 2)),
        ASK("cuStreamDestroy NULL", cuStreamDestroy(nullptr)),
        ASK("cuStreamDestroy legacy", cuStreamDestroy(wrong<CUstream>(1))),
        ASK("cuStreamDestroy twice", cuStreamDestroy(w.destroyed)),
        ASK("cuStreamQuery NULL", cuStreamQuery(nullptr)),
        ASK("cuStreamQuery destroyed", cuStreamQuery(w.destroyed)),
        ASK("cuStreamSynchronize legacy", cuStreamSynchronize(wrong<CUstream>(1))),
        ASK("cuStreamWaitEvent NULL event", cuStreamWaitEvent(w.stream, nullptr, 0)),
        ASK("cuStreamWaitEvent flags 5", cuStreamWaitEvent(w.stream, w.event, 5)),
        ASK("cuStreamGetCtx NULL out", cuStreamGetCtx(w.stream, nullptr)),
        STEPS("cuStreamGetCtx is the current", CUcontext current; cuCtxGetCurrent(&current);
              const long answer = cuStreamGetCtx(w.stream, &w.context);
              return both(answer, 10, w.context == current);),
        ASK("cuStreamGetFlags NULL out", cuStreamGetFlags(w.stream, nullptr)),
        ASK("cuStreamGetPriority NULL out", cuStreamGetPriority(w.stream, nullptr)),
        ASK("cuLaunchHostFunc NULL", cuLaunchHostFunc(w.stream, nullptr, nullptr)),
        ASK("cuStreamBeginCapture mode 9",
            cuStreamBeginCapture(w.stream, static_cast<CUstreamCaptureMode>(9))),
        ASK("cuStreamBeginCapture NULL",
            cuStreamBeginCapture(nullptr, static_cast<CUstreamCaptureMode>(2))),
        ASK("cuStreamEndCapture without begin", cuStreamEndCapture(w.stream, &w.graph)),
        ASK("cuStreamIsCapturing NULL out", cuStreamIsCapturing(w.stream, nullptr)),
        STEPS("cuMemAlloc while capturing, global",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              const long answer = cuMemAlloc(&w.address, 64);
              return both(answer, 1000, ended(w.stream));),
        STEPS("cuMemcpyHtoD while capturing, global",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal);
              const long answer = cuMemcpyHtoD(at(w.device), w.host, 64);
              return both(answer, 1000, ended(w.stream));),
        STEPS("cuCtxSynchronize while capturing, relaxed",
              cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
              const long answer = cuCtxSynchronize(); return both(answer, 1000, ended(w.stream));),
        ASK("cuGraphDestroy NULL", cuGraphDestroy(nullptr)),
        ASK("cuGraphLaunch NULL", cuGraphLaunch(nullptr, w.stream)),
        ASK("cuMemPoolDestroy NULL", cuMemPoolDestroy(nullptr)),
  };
}

Questions marks() {
  return {
      ASK("cuEventCreate NULL", cuEventCreate(nullptr, 0)),
      ASK("cuEventCreate flags 0x40", cuEventCreate(&w.new_event, 0x40)),
      ASK("cuEventCreate interprocess, timing", cuEventCreate(&w.new_event, 4)),
      ASK("cuEventDestroy NULL", cuEventDestroy(nullptr)),
      ASK("cuEventDestroy twice", cuEventDestroy(w.destroyed_event)),
      ASK("cuEventRecord NULL", cuEventRecord(nullptr, w.stream)),
      ASK("cuEventQuery NULL", cuEventQuery(nullptr)),
      ASK("cuEventQuery never recorded", cuEventQuery(w.event)),
      ASK("cuEventSynchronize NULL", cuEventSynchronize(nullptr)),
      ASK("cuEventElapsedTime never recorded", cuEventElapsedTime(&w.time, w.timed, w.timed)),
      ASK("cuEventElapsedTime NULL", cuEventElapsedTime(&w.time, nullptr, w.timed)),
      ASK("cuEventElapsedTime NULL out", cuEventElapsedTime(nullptr, w.timed, w.timed)),
      ASK("cuEventElapsedTime no timing", cuEventElapsedTime(&w.time, w.event, w.event)),
  };
}

} // namespace

Questions driver_work() {
  Questions all = moves();
  for (const Questions &more : {filling(), ordering(), marks()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
