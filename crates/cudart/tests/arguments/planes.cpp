// Copies and fills in two and three dimensions; arrays.
#include "questions.h"

namespace {

constexpr auto UP = cudaMemcpyHostToDevice;
constexpr auto DOWN = cudaMemcpyDeviceToHost;
constexpr size_t HUGE_PITCH = 1ull << 40;

// A good copy of 2 planes of 4 lines of 64 bytes.
cudaMemcpy3DParms volume(const World &w) {
  cudaMemcpy3DParms volume{};
  volume.srcPtr = {w.host, 64, 64, 4};
  volume.dstPtr = {w.device, 128, 64, 4};
  volume.extent = {64, 4, 2};
  volume.kind = UP;
  return volume;
}

#define COPY_2D(name, ...) ASK("cudaMemcpy2DAsync " name, cudaMemcpy2DAsync(__VA_ARGS__, w.stream))
#define FILL_2D(name, ...) ASK("cudaMemset2DAsync " name, cudaMemset2DAsync(__VA_ARGS__, w.stream))

// A good copy but for what the statements change in `v`.
#define COPY_3D(name, ...)                                                                         \
  STEPS("cudaMemcpy3DAsync " name, cudaMemcpy3DParms v = volume(w); __VA_ARGS__;                   \
        return cudaMemcpy3DAsync(&v, w.stream);)

Questions two() {
  return {
      COPY_2D("good", w.device, 128, w.host, 64, 64, 4, UP),
      COPY_2D("pitch below width", w.device, 64, w.host, 32, 64, 4, UP),
      COPY_2D("destination's pitch below width", w.device, 32, w.host, 64, 64, 4, UP),
      COPY_2D("pitch below width, one line", w.device, 64, w.host, 32, 64, 1, UP),
      COPY_2D("pitch 0, one line", w.device, 0, w.host, 0, 64, 1, UP),
      COPY_2D("pitch below width, no lines", w.device, 32, w.host, 32, 64, 0, UP),
      COPY_2D("height 0, NULL", nullptr, 64, nullptr, 64, 64, 0, UP),
      COPY_2D("width 0, NULL", nullptr, 64, nullptr, 64, 0, 4, UP),
      COPY_2D("NULL source", w.device, 64, nullptr, 64, 64, 4, UP),
      COPY_2D("NULL destination", nullptr, 64, w.host, 64, 64, 4, UP),
      COPY_2D("huge pitch", w.device, HUGE_PITCH, w.host, 64, 64, 2, UP),
      COPY_2D("huge pitch, one line", w.device, HUGE_PITCH, w.host, HUGE_PITCH, 64, 1, UP),
      COPY_2D("huge height", w.device, 64, w.host, 64, 64, HUGE_BYTES, UP),
      COPY_2D("huge width", w.device, HUGE_BYTES, w.host, HUGE_BYTES, HUGE_BYTES, 1, UP),
      COPY_2D("kind 9", w.device, 64, w.host, 64, 64, 4, static_cast<cudaMemcpyKind>(9)),
      COPY_2D("up as down", w.device, 64, w.host, 64, 64, 4, DOWN),
      COPY_2D("default host to host", w.pageable, 64, w.host, 64, 64, 4, cudaMemcpyDefault),
      COPY_2D("pageable", w.device, 64, w.pageable, 128, 64, 4, UP),
      COPY_2D("down to pageable", w.pageable, 64, w.device, 128, 64, 4, DOWN),
      COPY_2D("overlapping", w.device + 64, 128, w.device, 128, 128, 4, cudaMemcpyDeviceToDevice),
      COPY_2D("past the device's end", w.device, 4096, w.host, 64, 64, 65536, UP),
      COPY_2D("past the end of pinned", w.device, 64, w.host + BYTES - 128, 64, 64, 64, UP),
      COPY_2D("freed device", w.freed_device, 64, w.host, 64, 64, 4, UP),
      ASK("cudaMemcpy2DAsync destroyed stream",
          cudaMemcpy2DAsync(w.device, 64, w.host, 64, 64, 4, UP, w.destroyed)),
      ASK("cudaMemcpy2D pitch below width", cudaMemcpy2D(w.device, 32, w.host, 64, 64, 4, UP)),
      ASK("cudaMemcpy2D pageable both ways",
          cudaMemcpy2D(w.pageable, 64, w.pageable + 4096, 64, 64, 4, DOWN)),
      FILL_2D("good", w.device, 128, 1, 64, 4),
      FILL_2D("pitch below width", w.device, 32, 1, 64, 4),
      FILL_2D("pitch 0, one line", w.device, 0, 1, 64, 1),
      FILL_2D("height 0, NULL", nullptr, 64, 1, 64, 0),
      FILL_2D("width 0, NULL", nullptr, 64, 1, 0, 4),
      FILL_2D("NULL", nullptr, 64, 1, 64, 4),
      FILL_2D("huge pitch", w.device, HUGE_PITCH, 1, 64, 2),
      FILL_2D("huge height", w.device, 64, 1, 64, HUGE_BYTES),
      FILL_2D("host", w.host, 64, 1, 64, 4),
      FILL_2D("pageable", w.pageable, 64, 1, 64, 4),
      FILL_2D("past the end", w.device, 4096, 1, 64, 65536),
      ASK("cudaMemset2D pitch below width", cudaMemset2D(w.device, 32, 1, 64, 4)),
      ASK("cudaMemset2D pageable", cudaMemset2D(w.pageable, 64, 1, 64, 4)),
  };
}

Questions three() {
  return {
    COPY_3D("good", (void)v), ASK("cudaMemcpy3DAsync NULL", cudaMemcpy3DAsync(nullptr, w.stream)),
        COPY_3D("of nothing", v.extent = {0, 0, 0}), COPY_3D("no planes", v.extent.depth = 0),
        COPY_3D("no lines", v.extent.height = 0),
        COPY_3D("of nothing, NULL", v.extent = {0, 0, 0}; v.srcPtr.ptr = v.dstPtr.ptr = nullptr),
        COPY_3D("NULL source", v.srcPtr.ptr = nullptr),
        COPY_3D("NULL destination", v.dstPtr.ptr = nullptr),
        COPY_3D("pitch below width", v.srcPtr.pitch = 32),
        COPY_3D("destination's pitch below width", v.dstPtr.pitch = 32),
        COPY_3D("lines past the plane", v.srcPtr.ysize = 2),
        COPY_3D("lines past the destination's plane", v.dstPtr.ysize = 2),
        COPY_3D("planes of no lines", v.srcPtr.ysize = v.dstPtr.ysize = 0),
        COPY_3D("planes of no width", v.srcPtr.xsize = v.dstPtr.xsize = 0),
        COPY_3D("begins past the line", v.srcPos.x = 64),
        COPY_3D("begins past the plane", v.srcPos.y = 4),
        COPY_3D("begins within", v.srcPos.z = 1; v.dstPos.z = 1),
        COPY_3D("begins far", v.srcPos.z = HUGE_BYTES),
        COPY_3D("kind 9", v.kind = static_cast<cudaMemcpyKind>(9)),
        COPY_3D("up as down", v.kind = DOWN), COPY_3D("default", v.kind = cudaMemcpyDefault),
        COPY_3D("pageable", v.srcPtr.ptr = w.pageable),
        COPY_3D("huge extent", v.extent.depth = HUGE_BYTES),
        COPY_3D("past the end of pinned", v.srcPtr.ptr = w.host + BYTES - 64),
        STEPS("cudaMemcpy3D good", cudaMemcpy3DParms v = volume(w); return cudaMemcpy3D(&v);),
        ASK("cudaMemcpy3D NULL", cudaMemcpy3D(nullptr)),
        ASK("cudaMemset3DAsync good",
            cudaMemset3DAsync({w.device, 64, 64, 4}, 1, {64, 4, 2}, w.stream)),
        ASK("cudaMemset3DAsync NULL",
            cudaMemset3DAsync({nullptr, 64, 64, 4}, 1, {64, 4, 2}, w.stream)),
        ASK("cudaMemset3DAsync of nothing",
            cudaMemset3DAsync({nullptr, 64, 64, 4}, 1, {0, 0, 0}, w.stream)),
        ASK("cudaMemset3DAsync pitch below width",
            cudaMemset3DAsync({w.device, 32, 64, 4}, 1, {64, 4, 2}, w.stream)),
        ASK("cudaMemset3DAsync lines past the plane",
            cudaMemset3DAsync({w.device, 64, 64, 2}, 1, {64, 4, 2}, w.stream)),
        ASK("cudaMemset3DAsync pageable",
            cudaMemset3DAsync({w.pageable, 64, 64, 4}, 1, {64, 4, 2}, w.stream)),
        ASK("cudaMemset3D good", cudaMemset3D({w.device, 64, 64, 4}, 1, {64, 4, 2})),
  };
}

Questions arrays() {
  return {
      ASK("cudaFreeArray NULL", cudaFreeArray(nullptr)),
      ASK("cudaMallocArray NULL description", cudaMallocArray(&w.array, nullptr, 64, 4, 0)),
      ASK("cudaMemcpy2DToArray NULL array",
          cudaMemcpy2DToArray(nullptr, 0, 0, w.host, 64, 64, 4, UP)),
      COPY_3D("neither array nor memory", v.srcPtr = {}),
  };
}

} // namespace

Questions planes() {
  Questions all = two();
  for (const Questions &more : {three(), arrays()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}
