// Batches of copies by one call.
#include "questions.h"

#include <vector>

namespace {

// A batch of two copies that is good but for what a question changes.
struct Batch {
  std::vector<void *> dsts;
  std::vector<const void *> srcs;
  std::vector<size_t> sizes;
  std::vector<cudaMemcpyAttributes> attributes;
  std::vector<size_t> firsts;
  size_t count = 2, kinds = 1;
  cudaStream_t stream;

  explicit Batch(const World &w)
      : dsts{w.device, w.device + 4096}, srcs{w.host, w.host + 4096}, sizes{4096, 4096}, firsts{0},
        stream(w.stream) {
    attributes.push_back(order(1));
  }

  static cudaMemcpyAttributes order(int number) {
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = static_cast<cudaMemcpySrcAccessOrder>(number);
    return attributes;
  }

  long copy() {
    return copy(dsts.data(), srcs.data(), sizes.data(), attributes.data(), firsts.data());
  }

  long copy(void **dsts, const void **srcs, size_t *sizes, cudaMemcpyAttributes *attributes,
            size_t *firsts) {
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, firsts, kinds, stream);
#else
    size_t failed = 0;
    return cudaMemcpyBatchAsync(dsts, const_cast<void **>(srcs), sizes, count, attributes, firsts,
                                kinds, &failed, stream);
#endif
  }
};

// A good batch but for what the statements change in `b`.
#define BATCH(name, ...) STEPS("batch, " name, Batch b(w); __VA_ARGS__; return b.copy();)

// Its answer, and what the stream says when all is done.
#define WAITED(name, ...)                                                                          \
  STEPS("batch, " name, Batch b(w); __VA_ARGS__; const long answer = b.copy();                     \
        return both(answer, 1000, cudaStreamSynchronize(b.stream));)

// In a capture, and what its end answers.
long captured(World &w, Batch batch) {
  cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeRelaxed);
  const long answer = batch.copy();
  return both(answer, 1000, ended(w.stream));
}

Questions arguments() {
  return {
    WAITED("good", (void)b), BATCH("count 0", b.count = 0), BATCH("no attributes", b.kinds = 0),
        BATCH("attributes above the count", b.kinds = 3; b.firsts = {0, 1, 2};
              b.attributes.assign(3, Batch::order(1))),
        BATCH("two attributes", b.kinds = 2; b.firsts = {0, 1};
              b.attributes.assign(2, Batch::order(1))),
        BATCH("attributes from 1", b.firsts = {1}),
        BATCH("two attributes from 0", b.kinds = 2; b.firsts = {0, 0};
              b.attributes.assign(2, Batch::order(1))),
        BATCH("attributes past the count", b.kinds = 2; b.firsts = {0, 7};
              b.attributes.assign(2, Batch::order(1))),
        BATCH("attributes backwards", b.count = 2; b.kinds = 2; b.firsts = {1, 0};
              b.attributes.assign(2, Batch::order(1))),
        STEPS("batch, NULL destinations", Batch b(w); return b.copy(
            nullptr, b.srcs.data(), b.sizes.data(), b.attributes.data(), b.firsts.data());),
        STEPS("batch, NULL sources", Batch b(w); return b.copy(
            b.dsts.data(), nullptr, b.sizes.data(), b.attributes.data(), b.firsts.data());),
        STEPS("batch, NULL sizes", Batch b(w); return b.copy(
            b.dsts.data(), b.srcs.data(), nullptr, b.attributes.data(), b.firsts.data());),
        STEPS("batch, NULL attributes", Batch b(w); return b.copy(
            b.dsts.data(), b.srcs.data(), b.sizes.data(), nullptr, b.firsts.data());),
        STEPS("batch, NULL attributes' indices", Batch b(w); return b.copy(
            b.dsts.data(), b.srcs.data(), b.sizes.data(), b.attributes.data(), nullptr);),
        BATCH("order 0", b.attributes = {Batch::order(0)}),
        BATCH("order 9", b.attributes = {Batch::order(9)}),
        BATCH("order during the call", b.attributes = {Batch::order(2)}),
        BATCH("order any", b.attributes = {Batch::order(3)}),
        BATCH("flags 1", b.attributes[0].flags = 1),
        BATCH("flags 0x80", b.attributes[0].flags = 0x80),
  };
}

Questions entries() {
  return {
    WAITED("NULL destination", b.dsts[1] = nullptr), WAITED("NULL source", b.srcs[1] = nullptr),
        WAITED("NULL host destination", b.dsts = {nullptr, w.host};
               b.srcs = {w.device, w.device + 4096}),
        WAITED("NULL both, 0 bytes", b.dsts[1] = nullptr; b.srcs[1] = nullptr; b.sizes[1] = 0),
        WAITED("0 bytes", b.sizes[1] = 0), WAITED("all of 0 bytes", b.sizes = {0, 0}),
        WAITED("huge", b.sizes[1] = HUGE_BYTES),
        WAITED("past the device's end", b.sizes[1] = BYTES + (64 << 20)),
        WAITED("past the end of pinned", b.srcs[1] = w.host + BYTES - 64),
        WAITED("freed device", b.dsts[1] = w.freed_device),
        WAITED("freed device, after a good one", b.dsts[1] = w.freed_device;
               b.attributes = {Batch::order(2)}),
        WAITED("device 16", b.dsts[1] = wrong<void *>(16)),
        WAITED("down", b.dsts = {w.host, w.host + 4096}; b.srcs = {w.device, w.device + 4096}),
        WAITED("within the device", b.srcs = {w.other_device, w.other_device + 4096}),
        WAITED("host to host", b.dsts = {w.other_host, w.other_host + 4096}),
        WAITED("both ways", b.dsts[1] = w.host + 8192; b.srcs[1] = w.device + 8192),
        WAITED("managed", b.dsts[1] = w.managed),
        WAITED("pageable source, in order", b.srcs[1] = w.pageable),
        WAITED("pageable source, during the call", b.srcs[1] = w.pageable;
               b.attributes = {Batch::order(2)}),
        WAITED("pageable source, any", b.srcs[1] = w.pageable; b.attributes = {Batch::order(3)}),
        WAITED("pageable destination", b.dsts[1] = w.pageable; b.srcs[1] = w.device),
        WAITED("pageable both", b.dsts[1] = w.pageable; b.srcs[1] = w.pageable + 8192),
        WAITED("registered source", cudaHostRegister(w.pageable, BYTES, 0); b.srcs[1] = w.pageable),
        WAITED("down to registered read-only",
               cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
               b.dsts = {w.read_only, w.read_only + 4096}; b.srcs = {w.device, w.device + 4096}),
        WAITED("same destination", b.dsts[1] = b.dsts[0]),
        WAITED("overlapping destinations", b.dsts[1] = w.device + 64),
        WAITED("source is the other's destination", b.srcs[1] = w.device),
  };
}

Questions places() {
  return {
    BATCH("default stream", b.stream = nullptr),
        BATCH("legacy stream", b.stream = cudaStreamLegacy),
        BATCH("per-thread stream", b.stream = cudaStreamPerThread),
        BATCH("destroyed stream", b.stream = w.destroyed),
        ASK("batch, in a capture", captured(w, Batch(w))),
        STEPS("batch, in a capture, within the device", Batch b(w);
              b.srcs = {w.other_device, w.other_device + 4096}; return captured(w, b);),
        STEPS("batch, in a capture, pageable", Batch b(w); b.srcs[1] = w.pageable;
              return captured(w, b);),
        STEPS("batch, in a capture, bad arguments", Batch b(w); b.kinds = 0;
              return captured(w, b);),
        STEPS("batch, while another stream captures",
              cudaStreamBeginCapture(w.other_stream, cudaStreamCaptureModeGlobal);
              const long answer = Batch(w).copy();
              return both(answer, 1000, ended(w.other_stream));),
        ASK("cudaMemcpy3DBatchAsync of nothing", cudaMemcpy3DBatchAsync(0, nullptr, 0, w.stream)),
  };
}

} // namespace

Questions batches() {
  Questions all = arguments();
  for (const Questions &more : {entries(), places()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}
