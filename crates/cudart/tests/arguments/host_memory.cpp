// Page-locked memory: allocated, registered, freed.
#include "questions.h"

#include <sys/mman.h>

namespace {

long registered_flags(World &w, unsigned flags) {
  const long answer = cudaHostRegister(w.pageable, BYTES, flags);
  if (answer != 0)
    return answer;
  return both(cudaHostGetFlags(&w.flags, w.pageable), 100, w.flags);
}

long allocated_flags(World &w, unsigned flags) {
  const long answer = cudaHostAlloc(&w.out, BYTES, flags);
  if (answer != 0)
    return answer;
  return both(cudaHostGetFlags(&w.flags, w.out), 100, w.flags);
}

Questions allocation() {
  return {
    STEPS("cudaHostAlloc 0 bytes", const long answer = cudaHostAlloc(&w.out, 0, 0);
          return both(answer, 10, w.out == nullptr);),
        ASK("cudaHostAlloc huge", cudaHostAlloc(&w.out, HUGE_BYTES, 0)),
        ASK("cudaHostAlloc all of 64 bits", cudaHostAlloc(&w.out, ~0ull, 0)),
        ASK("cudaHostAlloc NULL out", cudaHostAlloc(nullptr, 64, 0)),
        ASK("cudaHostAlloc bad flags", cudaHostAlloc(&w.out, 64, 0x80)),
        ASK("cudaHostAlloc portable, flags", allocated_flags(w, cudaHostAllocPortable)),
        ASK("cudaHostAlloc mapped, flags", allocated_flags(w, cudaHostAllocMapped)),
        ASK("cudaHostAlloc write-combined, flags", allocated_flags(w, cudaHostAllocWriteCombined)),
        ASK("cudaHostAlloc all flags", allocated_flags(w, 7)),
        ASK("cudaMallocHost NULL out", cudaMallocHost(static_cast<void **>(nullptr), 64)),
        STEPS("cudaMallocHost 0 bytes", const long answer = cudaMallocHost(&w.out, 0);
              return both(answer, 10, w.out == nullptr);),
        ASK("cudaFreeHost NULL", cudaFreeHost(nullptr)),
        ASK("cudaFreeHost device pointer", cudaFreeHost(w.device)),
        ASK("cudaFreeHost inside", cudaFreeHost(w.host + 4096)),
        ASK("cudaFreeHost twice", cudaFreeHost(w.freed_host)),
        ASK("cudaFreeHost pageable", cudaFreeHost(w.pageable)),
        ASK("cudaFreeHost managed", cudaFreeHost(w.managed)),
        ASK("cudaFreeHost unmapped", cudaFreeHost(w.unmapped)),
        STEPS("cudaFreeHost registered", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaFreeHost(w.pageable);),
        STEPS("cudaFreeHost of cudaMallocAsync", cudaMallocAsync(&w.out, BYTES, w.stream);
              cudaStreamSynchronize(w.stream); return cudaFreeHost(w.out);),
  };
}

Questions registration() {
  return {
    ASK("cudaHostRegister pageable", cudaHostRegister(w.pageable, BYTES, 0)),
        ASK("cudaHostRegister 0 bytes", cudaHostRegister(w.pageable, 0, 0)),
        ASK("cudaHostRegister NULL", cudaHostRegister(nullptr, BYTES, 0)),
        ASK("cudaHostRegister unaligned 100 bytes", cudaHostRegister(w.pageable + 7, 100, 0)),
        STEPS("cudaHostRegister twice", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaHostRegister(w.pageable, BYTES, 0);),
        STEPS("cudaHostRegister overlapping", cudaHostRegister(w.pageable, BYTES / 2, 0);
              return cudaHostRegister(w.pageable + BYTES / 4, BYTES / 2, 0);),
        STEPS("cudaHostRegister inside", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaHostRegister(w.pageable + BYTES / 4, BYTES / 4, 0);),
        STEPS("cudaHostRegister around", cudaHostRegister(w.pageable + BYTES / 4, BYTES / 4, 0);
              return cudaHostRegister(w.pageable, BYTES, 0);),
        STEPS("cudaHostRegister side by side", cudaHostRegister(w.pageable, BYTES / 2, 0);
              return cudaHostRegister(w.pageable + BYTES / 2, BYTES / 2, 0);),
        STEPS("cudaHostRegister same page", cudaHostRegister(w.pageable, 100, 0);
              return cudaHostRegister(w.pageable + 200, 100, 0);),
        ASK("cudaHostRegister pinned", cudaHostRegister(w.host, BYTES, 0)),
        ASK("cudaHostRegister part of pinned", cudaHostRegister(w.host + 4096, 4096, 0)),
        ASK("cudaHostRegister device", cudaHostRegister(w.device, BYTES, 0)),
        ASK("cudaHostRegister managed", cudaHostRegister(w.managed, BYTES, 0)),
        ASK("cudaHostRegister unmapped", cudaHostRegister(w.unmapped, BYTES, 0)),
        STEPS("cudaHostRegister partly unmapped", munmap(w.pageable + BYTES / 2, 4096);
              return cudaHostRegister(w.pageable, BYTES, 0);),
        STEPS("cudaHostRegister without access", mprotect(w.pageable, BYTES, PROT_NONE);
              return cudaHostRegister(w.pageable, BYTES, 0);),
        STEPS("cudaHostRegister partly read-only", mprotect(w.pageable + 8192, 4096, PROT_READ);
              return cudaHostRegister(w.pageable, BYTES, 0);),
        ASK("cudaHostRegister 16", cudaHostRegister(wrong<void *>(16), 4096, 0)),
        ASK("cudaHostRegister huge", cudaHostRegister(w.pageable, HUGE_BYTES, 0)),
        ASK("cudaHostRegister past the last address", cudaHostRegister(w.pageable, ~size_t{0}, 0)),
        ASK("cudaHostRegister read-only", cudaHostRegister(w.read_only, BYTES, 0)),
        ASK("cudaHostRegister read-only, flag",
            cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly)),
        ASK("cudaHostRegister writable, flag ReadOnly",
            cudaHostRegister(w.pageable, BYTES, cudaHostRegisterReadOnly)),
        ASK("cudaHostRegister bad flags", cudaHostRegister(w.pageable, BYTES, 0x80)),
        ASK("cudaHostRegister IoMemory of RAM",
            cudaHostRegister(w.pageable, BYTES, cudaHostRegisterIoMemory)),
        ASK("cudaHostRegister freed pinned", cudaHostRegister(w.freed_host, BYTES, 0)),
        STEPS("cudaHostRegister again", cudaHostRegister(w.pageable, BYTES, 0);
              cudaHostUnregister(w.pageable); return cudaHostRegister(w.pageable, BYTES, 0);),
        ASK("cudaHostRegister portable, flags", registered_flags(w, cudaHostRegisterPortable)),
        ASK("cudaHostRegister mapped, flags", registered_flags(w, cudaHostRegisterMapped)),
        ASK("cudaHostRegister ReadOnly, flags", registered_flags(w, cudaHostRegisterReadOnly)),
        ASK("cudaHostUnregister not registered", cudaHostUnregister(w.pageable)),
        STEPS("cudaHostUnregister inside", cudaHostRegister(w.pageable, BYTES, 0);
              return cudaHostUnregister(w.pageable + 4096);),
        STEPS("cudaHostUnregister twice", cudaHostRegister(w.pageable, BYTES, 0);
              cudaHostUnregister(w.pageable); return cudaHostUnregister(w.pageable);),
        STEPS("cudaHostUnregister unaligned", cudaHostRegister(w.pageable + 7, 100, 0);
              return cudaHostUnregister(w.pageable + 7);),
        STEPS("cudaHostUnregister the page of unaligned", cudaHostRegister(w.pageable + 7, 100, 0);
              return cudaHostUnregister(w.pageable);),
        ASK("cudaHostUnregister pinned", cudaHostUnregister(w.host)),
        ASK("cudaHostUnregister device", cudaHostUnregister(w.device)),
        ASK("cudaHostUnregister NULL", cudaHostUnregister(nullptr)),
        ASK("cudaHostUnregister unmapped", cudaHostUnregister(w.unmapped)),
  };
}

Questions views() {
  return {
    ASK("cudaHostGetDevicePointer pageable", cudaHostGetDevicePointer(&w.out, w.pageable, 0)),
        STEPS("cudaHostGetDevicePointer inside",
              const long answer = cudaHostGetDevicePointer(&w.out, w.host + 100, 0);
              return both(answer, 10, w.out == w.host + 100);),
        STEPS("cudaHostGetDevicePointer registered", cudaHostRegister(w.pageable, BYTES, 0);
              const long answer = cudaHostGetDevicePointer(&w.out, w.pageable + 100, 0);
              return both(answer, 10, w.out == w.pageable + 100);),
        ASK("cudaHostGetDevicePointer flags", cudaHostGetDevicePointer(&w.out, w.host, 1)),
        ASK("cudaHostGetDevicePointer NULL out", cudaHostGetDevicePointer(nullptr, w.host, 0)),
        ASK("cudaHostGetDevicePointer NULL", cudaHostGetDevicePointer(&w.out, nullptr, 0)),
        ASK("cudaHostGetDevicePointer device", cudaHostGetDevicePointer(&w.out, w.device, 0)),
        ASK("cudaHostGetDevicePointer freed", cudaHostGetDevicePointer(&w.out, w.freed_host, 0)),
        ASK("cudaHostGetFlags pageable", cudaHostGetFlags(&w.flags, w.pageable)),
        STEPS("cudaHostGetFlags pinned", const long answer = cudaHostGetFlags(&w.flags, w.host);
              return both(answer, 100, w.flags);),
        STEPS("cudaHostGetFlags pinned inside",
              const long answer = cudaHostGetFlags(&w.flags, w.host + 9);
              return both(answer, 100, w.flags);),
        ASK("cudaHostGetFlags registered", registered_flags(w, 0)),
        ASK("cudaHostGetFlags device", cudaHostGetFlags(&w.flags, w.device)),
        ASK("cudaHostGetFlags managed", cudaHostGetFlags(&w.flags, w.managed)),
        ASK("cudaHostGetFlags NULL", cudaHostGetFlags(&w.flags, nullptr)),
        ASK("cudaHostGetFlags NULL out", cudaHostGetFlags(nullptr, w.host)),
  };
}

} // namespace

Questions host_memory() {
  Questions all = allocation();
  for (const Questions &more : {registration(), views()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
