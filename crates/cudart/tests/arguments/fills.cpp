// Fills in one dimension.
#include "questions.h"

Questions fills() {
  return {
    ASK("cudaMemsetAsync good", cudaMemsetAsync(w.device, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync host", cudaMemsetAsync(w.host, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync pageable", cudaMemsetAsync(w.pageable, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync managed", cudaMemsetAsync(w.managed, 1, BYTES, w.stream)),
        STEPS("cudaMemsetAsync registered", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaMemsetAsync(w.pageable, 1, BYTES, w.stream);),
        STEPS("cudaMemsetAsync past the end of registered", cudaHostRegister(w.pageable, 8192, 0);
              return cudaMemsetAsync(w.pageable, 1, 16384, w.stream);),
        ASK("cudaMemsetAsync NULL", cudaMemsetAsync(nullptr, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync NULL 0 bytes", cudaMemsetAsync(nullptr, 1, 0, w.stream)),
        ASK("cudaMemsetAsync 16", cudaMemsetAsync(wrong<void *>(16), 1, 64, w.stream)),
        ASK("cudaMemsetAsync past the end",
            cudaMemsetAsync(w.device, 1, BYTES + (64 << 20), w.stream)),
        ASK("cudaMemsetAsync past the end of pinned",
            cudaMemsetAsync(w.host + BYTES - 64, 1, 4096, w.stream)),
        ASK("cudaMemsetAsync huge", cudaMemsetAsync(w.device, 1, HUGE_BYTES, w.stream)),
        ASK("cudaMemsetAsync freed", cudaMemsetAsync(w.freed_device, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync freed pinned", cudaMemsetAsync(w.freed_host, 1, BYTES, w.stream)),
        ASK("cudaMemsetAsync unaligned", cudaMemsetAsync(w.device + 3, 1, 77, w.stream)),
        ASK("cudaMemsetAsync value 1000", cudaMemsetAsync(w.device, 1000, BYTES, w.stream)),
        ASK("cudaMemsetAsync destroyed stream", cudaMemsetAsync(w.device, 1, BYTES, w.destroyed)),
        ASK("cudaMemsetAsync default stream", cudaMemsetAsync(w.device, 1, BYTES, nullptr)),
        ASK("cudaMemset NULL", cudaMemset(nullptr, 1, BYTES)),
        ASK("cudaMemset NULL 0 bytes", cudaMemset(nullptr, 1, 0)),
        ASK("cudaMemset host", cudaMemset(w.host, 1, BYTES)),
        ASK("cudaMemset pageable", cudaMemset(w.pageable, 1, BYTES)),
        ASK("cudaMemset freed", cudaMemset(w.freed_device, 1, BYTES)),
        STEPS("cudaMemset value 1000, low byte", cudaMemset(w.host, 1000, BYTES);
              cudaDeviceSynchronize(); return static_cast<unsigned char>(w.host[9]);),
  };
}
