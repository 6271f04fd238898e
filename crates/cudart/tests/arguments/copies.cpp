// Copies in one dimension.
#include "questions.h"

namespace {

constexpr auto UP = cudaMemcpyHostToDevice;
constexpr auto DOWN = cudaMemcpyDeviceToHost;
constexpr auto WITHIN = cudaMemcpyDeviceToDevice;
constexpr auto HOST = cudaMemcpyHostToHost;
constexpr auto DEFAULT = cudaMemcpyDefault;

cudaMemcpyKind kind(int number) { return static_cast<cudaMemcpyKind>(number); }

// Past what lies beside a small allocation.
constexpr size_t FAR_PAST = BYTES + (64 << 20);

#define ASYNC(name, ...) ASK("cudaMemcpyAsync " name, cudaMemcpyAsync(__VA_ARGS__, w.stream))
#define PLAIN(name, ...) ASK("cudaMemcpy " name, cudaMemcpy(__VA_ARGS__))

Questions directions() {
  return {
      ASYNC("good up", w.device, w.host, BYTES, UP),
      ASYNC("host to host as up", w.host, w.other_host, BYTES, UP),
      ASYNC("device to device as up", w.device, w.other_device, BYTES, UP),
      ASYNC("down as up", w.host, w.device, BYTES, UP),
      ASYNC("up as down", w.device, w.host, BYTES, DOWN),
      ASYNC("up as device to device", w.device, w.host, BYTES, WITHIN),
      ASYNC("up as host to host", w.device, w.host, BYTES, HOST),
      ASYNC("pageable up as down", w.device, w.pageable, BYTES, DOWN),
      ASYNC("pageable down as up", w.pageable, w.device, BYTES, UP),
      ASYNC("pageable up as device to device", w.device, w.pageable, BYTES, WITHIN),
      ASYNC("pageable to pinned as up", w.host, w.pageable, BYTES, UP),
      ASYNC("pageable to pageable as device to device", w.pageable + 4096, w.pageable, 4096,
            WITHIN),
      ASYNC("kind 9", w.device, w.host, BYTES, kind(9)),
      ASYNC("kind -1", w.device, w.host, BYTES, kind(-1)),
      ASYNC("kind 9, 0 bytes", w.device, w.host, 0, kind(9)),
      ASYNC("default up", w.device, w.host, BYTES, DEFAULT),
      ASYNC("default pageable up", w.device, w.pageable, BYTES, DEFAULT),
      ASYNC("default host to host", w.host, w.pageable, BYTES, DEFAULT),
      ASYNC("default managed", w.managed, w.host, BYTES, DEFAULT),
      ASYNC("managed as down", w.managed, w.device, BYTES, DOWN),
      ASYNC("managed as up", w.device, w.managed, BYTES, UP),
      PLAIN("host to host as up", w.host, w.other_host, BYTES, UP),
      PLAIN("down as up", w.host, w.device, BYTES, UP),
      PLAIN("pageable up as down", w.device, w.pageable, BYTES, DOWN),
      PLAIN("pageable to pageable as up", w.pageable + 4096, w.pageable, 4096, UP),
      PLAIN("kind 9", w.device, w.host, BYTES, kind(9)),
      PLAIN("default pageable down", w.pageable, w.device, BYTES, DEFAULT),
  };
}

Questions addresses() {
  return {
    ASYNC("NULL source", w.device, nullptr, BYTES, UP),
        ASYNC("NULL destination", nullptr, w.host, BYTES, UP),
        ASYNC("NULL destination, down", nullptr, w.device, BYTES, DOWN),
        ASYNC("NULL both, 0 bytes", nullptr, nullptr, 0, UP),
        ASYNC("NULL both", nullptr, nullptr, BYTES, DEFAULT),
        ASYNC("bad pointers, 0 bytes", wrong<void *>(8), wrong<void *>(16), 0, UP),
        ASYNC("default unknown addresses", wrong<void *>(8), wrong<void *>(16), 64, DEFAULT),
        ASYNC("unknown address as device, up", wrong<void *>(8), w.host, 64, UP),
        ASYNC("unknown address as device, down", w.host, wrong<void *>(8), 64, DOWN),
        ASYNC("past the device's end", w.device, w.host, FAR_PAST, UP),
        ASYNC("past the device's end, pageable", w.device, w.pageable, FAR_PAST, UP),
        ASYNC("freed device", w.freed_device, w.host, BYTES, UP),
        ASYNC("freed device to pageable", w.pageable, w.freed_device, BYTES, DOWN),
        ASYNC("down to read-only", w.read_only, w.device, BYTES, DOWN),
        ASYNC("up from read-only", w.device, w.read_only, BYTES, UP),
        ASYNC("up from unmapped", w.device, w.unmapped, BYTES, UP),
        ASYNC("down to unmapped", w.unmapped, w.device, BYTES, DOWN),
        ASYNC("up past the end of pinned", w.device, w.host + BYTES - 64, 4096, UP),
        ASYNC("up from freed pinned", w.device, w.freed_host, BYTES, UP),
        ASYNC("down to freed pinned", w.freed_host, w.device, BYTES, DOWN),
        ASYNC("huge up", w.device, w.host, HUGE_BYTES, UP),
        ASYNC("huge down", w.host, w.device, HUGE_BYTES, DOWN),
        ASYNC("to itself", w.device, w.device, BYTES, WITHIN),
        ASYNC("overlapping within the device", w.device + 256, w.device, BYTES / 2, WITHIN),
        ASYNC("overlapping within pinned", w.host + 256, w.host, BYTES / 2, DEFAULT),
        STEPS("cudaMemcpyAsync down to registered read-only",
              cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
              return cudaMemcpyAsync(w.read_only, w.device, BYTES, DOWN, w.stream);),
        STEPS("cudaMemcpyAsync up from registered read-only",
              cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
              return cudaMemcpyAsync(w.device, w.read_only, BYTES, UP, w.stream);),
        STEPS("cudaMemcpyAsync down to writable, registered ReadOnly",
              cudaHostRegister(w.pageable, BYTES, cudaHostRegisterReadOnly);
              const long answer = cudaMemcpyAsync(w.pageable, w.device, BYTES, DOWN, w.stream);
              return both(answer, 1000, cudaStreamSynchronize(w.stream));),
        STEPS("cudaMemcpyAsync host to host to registered read-only",
              cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
              return cudaMemcpyAsync(w.read_only, w.host, BYTES, DEFAULT, w.stream);),
        STEPS("cudaMemcpyAsync up past the end of registered",
              cudaHostRegister(w.pageable, 8192, 0);
              return cudaMemcpyAsync(w.device, w.pageable, 16384, UP, w.stream);),
        STEPS("cudaMemcpyAsync across two registrations", cudaHostRegister(w.pageable, 8192, 0);
              cudaHostRegister(w.pageable + 8192, 8192, 0);
              return cudaMemcpyAsync(w.device, w.pageable, 16384, UP, w.stream);),
        STEPS("cudaMemcpyAsync ends in registered", cudaHostRegister(w.pageable + 8192, 8192, 0);
              return cudaMemcpyAsync(w.device, w.pageable, 16384, UP, w.stream);),
        STEPS("cudaMemcpyAsync down past the end of registered",
              cudaHostRegister(w.pageable, 8192, 0);
              return cudaMemcpyAsync(w.pageable, w.device, 16384, DOWN, w.stream);),
        STEPS("cudaMemcpy down to registered read-only",
              cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
              const long answer = cudaMemcpy(w.read_only, w.device, BYTES, DOWN);
              return both(answer, 1000, cudaDeviceSynchronize());),
        PLAIN("NULL source", w.device, nullptr, BYTES, UP),
        PLAIN("NULL destination", nullptr, w.device, BYTES, DOWN),
        PLAIN("NULL both, 0 bytes", nullptr, nullptr, 0, UP),
        PLAIN("freed device", w.pageable, w.freed_device, BYTES, DOWN),
        PLAIN("past the device's end", w.device, w.host, FAR_PAST, UP),
        PLAIN("down to read-only", w.read_only, w.device, BYTES, DOWN),
        PLAIN("up past the end of pinned", w.device, w.host + BYTES - 64, 4096, UP),
        PLAIN("huge", w.device, w.other_device, HUGE_BYTES, WITHIN),
  };
}

Questions elsewhere() {
  return {
      ASK("cudaMemcpyAsync destroyed stream",
          cudaMemcpyAsync(w.device, w.host, BYTES, UP, w.destroyed)),
      ASK("cudaMemcpyAsync destroyed stream, 0 bytes",
          cudaMemcpyAsync(w.device, w.host, 0, UP, w.destroyed)),
      ASK("cudaMemcpyAsync default stream", cudaMemcpyAsync(w.device, w.host, BYTES, UP, nullptr)),
      ASK("cudaMemcpyAsync legacy stream",
          cudaMemcpyAsync(w.device, w.host, BYTES, UP, cudaStreamLegacy)),
      ASK("cudaMemcpyAsync per-thread stream",
          cudaMemcpyAsync(w.device, w.host, BYTES, UP, cudaStreamPerThread)),
      ASK("cudaMemcpyPeerAsync bad device",
          cudaMemcpyPeerAsync(w.device, 7, w.other_device, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync bad source device",
          cudaMemcpyPeerAsync(w.device, 0, w.other_device, 7, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync device -1",
          cudaMemcpyPeerAsync(w.device, -1, w.other_device, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync bad device, 0 bytes",
          cudaMemcpyPeerAsync(w.device, 7, w.other_device, 0, 0, w.stream)),
      ASK("cudaMemcpyPeerAsync same device",
          cudaMemcpyPeerAsync(w.device, 0, w.other_device, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync NULL",
          cudaMemcpyPeerAsync(nullptr, 0, w.other_device, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync host memory",
          cudaMemcpyPeerAsync(w.device, 0, w.host, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeerAsync pageable",
          cudaMemcpyPeerAsync(w.device, 0, w.pageable, 0, BYTES, w.stream)),
      ASK("cudaMemcpyPeer bad device", cudaMemcpyPeer(w.device, 7, w.other_device, 0, BYTES)),
      ASK("cudaMemcpyPeer same device", cudaMemcpyPeer(w.device, 0, w.other_device, 0, BYTES)),
      ASK("cudaMemcpyPeer freed", cudaMemcpyPeer(w.freed_device, 0, w.other_device, 0, BYTES)),
      ASK("cudaMemcpyToSymbol NULL symbol", cudaMemcpyToSymbol(nullptr, w.host, 4, 0, UP)),
      ASK("cudaMemcpyFromSymbol of no symbol",
          cudaMemcpyFromSymbol(w.host, w.pageable, 4, 0, DOWN)),
      ASK("cudaGetSymbolAddress of no symbol", cudaGetSymbolAddress(&w.out, w.pageable)),
  };
}

} // namespace

Questions copies() {
  Questions all = directions();
  for (const Questions &more : {addresses(), elsewhere()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
