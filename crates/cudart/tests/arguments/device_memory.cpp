// Device memory, unified memory, and memory in the order of streams.
#include "questions.h"

#include <thread>

namespace {

// Memory in the order of the stream, which is there now.
void *ordered(World &w) {
  cudaMallocAsync(&w.out, BYTES, w.stream);
  cudaStreamSynchronize(w.stream);
  return w.out;
}

void *freed_ordered(World &w) {
  void *memory = ordered(w);
  cudaFreeAsync(memory, w.stream);
  cudaStreamSynchronize(w.stream);
  return memory;
}

Questions plain() {
  return {
    STEPS("cudaMalloc 0 bytes", const long answer = cudaMalloc(&w.out, 0);
          return both(answer, 10, w.out == nullptr);),
        ASK("cudaMalloc huge", cudaMalloc(&w.out, HUGE_BYTES)),
        ASK("cudaMalloc all of 64 bits", cudaMalloc(&w.out, ~0ull)),
        ASK("cudaMalloc NULL out", cudaMalloc(static_cast<void **>(nullptr), 64)),
        STEPS("cudaMalloc 1 byte, alignment", const long answer = cudaMalloc(&w.out, 1);
              return both(answer, 1000, at(w.out) % 256);),
        ASK("cudaFree NULL", cudaFree(nullptr)), ASK("cudaFree host pointer", cudaFree(w.host)),
        ASK("cudaFree pageable", cudaFree(w.pageable)),
        ASK("cudaFree inside", cudaFree(w.device + 256)),
        ASK("cudaFree twice", cudaFree(w.freed_device)),
        ASK("cudaFree managed", cudaFree(w.managed)),
        ASK("cudaFree managed inside", cudaFree(w.managed + 256)),
        ASK("cudaFree 16", cudaFree(wrong<void *>(16))),
        STEPS("cudaFree registered", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaFree(w.pageable);),
        STEPS("cudaFree by another thread", static long answer;
              std::thread([&] { answer = cudaFree(w.device); }).join(); return answer;),
        STEPS("cudaMallocManaged 0 bytes",
              const long answer = cudaMallocManaged(&w.out, 0, cudaMemAttachGlobal);
              return both(answer, 10, w.out == nullptr);),
        ASK("cudaMallocManaged NULL out",
            cudaMallocManaged(static_cast<void **>(nullptr), 64, cudaMemAttachGlobal)),
        ASK("cudaMallocManaged flags 0", cudaMallocManaged(&w.out, 64, 0)),
        ASK("cudaMallocManaged flags host", cudaMallocManaged(&w.out, 64, cudaMemAttachHost)),
        ASK("cudaMallocManaged flags 3", cudaMallocManaged(&w.out, 64, 3)),
        ASK("cudaMallocManaged flags single", cudaMallocManaged(&w.out, 64, cudaMemAttachSingle)),
        ASK("cudaMallocManaged huge", cudaMallocManaged(&w.out, HUGE_BYTES, cudaMemAttachGlobal)),
        STEPS("cudaMallocPitch 100 bytes",
              const long answer = cudaMallocPitch(&w.out, &w.size, 100, 4);
              return both(answer, 10000, w.size);),
        STEPS("cudaMallocPitch no lines",
              const long answer = cudaMallocPitch(&w.out, &w.size, 100, 0);
              return both(answer, 10, w.out == nullptr);),
        STEPS("cudaMallocPitch no width",
              const long answer = cudaMallocPitch(&w.out, &w.size, 0, 4);
              return both(answer, 10, w.out == nullptr);),
        ASK("cudaMallocPitch NULL out",
            cudaMallocPitch(static_cast<void **>(nullptr), &w.size, 64, 4)),
        ASK("cudaMallocPitch NULL pitch", cudaMallocPitch(&w.out, nullptr, 64, 4)),
        ASK("cudaMallocPitch huge", cudaMallocPitch(&w.out, &w.size, HUGE_BYTES, HUGE_BYTES)),
        STEPS("cudaMalloc3D of nothing", cudaPitchedPtr memory{};
              return cudaMalloc3D(&memory, cudaExtent{0, 0, 0});),
        ASK("cudaMalloc3D NULL out", cudaMalloc3D(nullptr, cudaExtent{64, 4, 2})),
        ASK("cudaMemGetInfo NULL free", cudaMemGetInfo(nullptr, &w.size)),
        ASK("cudaMemGetInfo NULL total", cudaMemGetInfo(&w.size, nullptr)),
        ASK("cudaMemGetInfo NULL", cudaMemGetInfo(nullptr, nullptr)),
  };
}

Questions in_order() {
  return {
    STEPS("cudaMallocAsync 0 bytes", const long answer = cudaMallocAsync(&w.out, 0, w.stream);
          return both(answer, 10, w.out == nullptr);),
        ASK("cudaMallocAsync huge", cudaMallocAsync(&w.out, HUGE_BYTES, w.stream)),
        ASK("cudaMallocAsync NULL out",
            cudaMallocAsync(static_cast<void **>(nullptr), 64, w.stream)),
        ASK("cudaMallocAsync default stream", cudaMallocAsync(&w.out, 64, nullptr)),
        ASK("cudaMallocAsync per-thread stream", cudaMallocAsync(&w.out, 64, cudaStreamPerThread)),
        ASK("cudaMallocAsync destroyed stream", cudaMallocAsync(&w.out, 64, w.destroyed)),
        ASK("cudaFreeAsync NULL", cudaFreeAsync(nullptr, w.stream)),
        ASK("cudaFreeAsync of cudaMalloc", cudaFreeAsync(w.device, w.stream)),
        ASK("cudaFreeAsync host", cudaFreeAsync(w.host, w.stream)),
        ASK("cudaFreeAsync pageable", cudaFreeAsync(w.pageable, w.stream)),
        ASK("cudaFreeAsync managed", cudaFreeAsync(w.managed, w.stream)),
        ASK("cudaFreeAsync inside", cudaFreeAsync(w.device + 256, w.stream)),
        STEPS("cudaFreeAsync inside of cudaMallocAsync", ordered(w);
              return cudaFreeAsync(static_cast<char *>(w.out) + 256, w.stream);),
        STEPS("cudaFreeAsync twice", cudaMallocAsync(&w.out, BYTES, w.stream);
              cudaFreeAsync(w.out, w.stream); return cudaFreeAsync(w.out, w.stream);),
        STEPS("cudaFreeAsync twice, waited", freed_ordered(w);
              return cudaFreeAsync(w.out, w.stream);),
        STEPS("cudaFreeAsync on another stream", ordered(w);
              return cudaFreeAsync(w.out, w.other_stream);),
        ASK("cudaFreeAsync freed device", cudaFreeAsync(w.freed_device, w.stream)),
        STEPS("cudaFreeAsync of cudaMalloc, then cudaFree", cudaFreeAsync(w.device, w.stream);
              return cudaFree(w.device);),
        STEPS("cudaFree of cudaMallocAsync", ordered(w); return cudaFree(w.out);),
        STEPS("cudaFree of cudaMallocAsync, at once", cudaMallocAsync(&w.out, BYTES, w.stream);
              return cudaFree(w.out);),
        STEPS("cudaFree of cudaMallocAsync, freed", freed_ordered(w); return cudaFree(w.out);),
        STEPS("cudaFree of cudaMallocAsync, twice", ordered(w); cudaFree(w.out);
              return cudaFree(w.out);),
        STEPS("cudaMemsetAsync of cudaMallocAsync, freed", freed_ordered(w);
              return cudaMemsetAsync(w.out, 1, BYTES, w.stream);),
        STEPS("cudaMemcpyAsync to cudaMallocAsync, freed", freed_ordered(w);
              return cudaMemcpyAsync(w.out, w.host, BYTES, cudaMemcpyDefault, w.stream);),
  };
}

} // namespace

Questions device_memory() {
  Questions all = plain();
  const Questions more = in_order();
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
