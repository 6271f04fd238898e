// What is known of a pointer.
#include "questions.h"

namespace {

long type_of(const void *memory) {
  cudaPointerAttributes attributes{};
  const long answer = cudaPointerGetAttributes(&attributes, memory);
  return both(answer, 10, attributes.type);
}

// Whether it has a host and a device pointer that are the pointer itself, or NULL: 1 and 2.
long views_of(const void *memory) {
  cudaPointerAttributes attributes{};
  const long answer = cudaPointerGetAttributes(&attributes, memory);
  const auto view = [&](const void *view) { return view == memory ? 1 : view == nullptr ? 2 : 3; };
  const long views = view(attributes.hostPointer) * 10 + view(attributes.devicePointer);
  return both(answer, 100, views);
}

// One more than the device of it.
long device_of(const void *memory) {
  cudaPointerAttributes attributes{};
  attributes.device = 77;
  const long answer = cudaPointerGetAttributes(&attributes, memory);
  return both(answer, 100, attributes.device + 10);
}

} // namespace

Questions pointers() {
  return {
    ASK("cudaPointerGetAttributes pageable", type_of(w.pageable)),
        ASK("cudaPointerGetAttributes pinned inside", type_of(w.host + 9)),
        STEPS("cudaPointerGetAttributes registered", cudaHostRegister(w.pageable, BYTES, 0);
              return type_of(w.pageable + 9);),
        ASK("cudaPointerGetAttributes NULL", type_of(nullptr)),
        ASK("cudaPointerGetAttributes freed device", type_of(w.freed_device)),
        ASK("cudaPointerGetAttributes freed pinned", type_of(w.freed_host)),
        ASK("cudaPointerGetAttributes device inside", type_of(w.device + 9)),
        ASK("cudaPointerGetAttributes device's last byte", type_of(w.device + BYTES - 1)),
        ASK("cudaPointerGetAttributes managed", type_of(w.managed + 9)),
        ASK("cudaPointerGetAttributes unmapped", type_of(w.unmapped)),
        ASK("cudaPointerGetAttributes 16", type_of(wrong<void *>(16))),
        ASK("cudaPointerGetAttributes the last address", type_of(wrong<void *>(~size_t{0}))),
        ASK("cudaPointerGetAttributes stack", type_of(&w)),
        STEPS("cudaPointerGetAttributes unregistered", cudaHostRegister(w.pageable, BYTES, 0);
              cudaHostUnregister(w.pageable); return type_of(w.pageable);),
        STEPS("cudaPointerGetAttributes registered read-only",
              cudaHostRegister(w.read_only, BYTES, cudaHostRegisterReadOnly);
              return type_of(w.read_only);),
        STEPS("cudaPointerGetAttributes beside registered", cudaHostRegister(w.pageable, 4096, 0);
              return type_of(w.pageable + 4096);),
        STEPS("cudaPointerGetAttributes same page as registered",
              cudaHostRegister(w.pageable, 100, 0);
              return type_of(w.pageable + 200);),
        STEPS("cudaPointerGetAttributes cudaMallocAsync", cudaMallocAsync(&w.out, BYTES, w.stream);
              return type_of(w.out);),
        STEPS("cudaPointerGetAttributes cudaMallocAsync, freed",
              cudaMallocAsync(&w.out, BYTES, w.stream);
              cudaFreeAsync(w.out, w.stream); cudaStreamSynchronize(w.stream);
              return type_of(w.out);),
        ASK("cudaPointerGetAttributes NULL out", cudaPointerGetAttributes(nullptr, w.device)),
        ASK("pointers of pageable", views_of(w.pageable)),
        ASK("pointers of pinned", views_of(w.host + 9)),
        ASK("pointers of device memory", views_of(w.device + 9)),
        ASK("pointers of managed", views_of(w.managed + 9)),
        STEPS("pointers of registered", cudaHostRegister(w.pageable, BYTES, 0);
              return views_of(w.pageable + 9);),
        ASK("device of pageable", device_of(w.pageable)),
        ASK("device of pinned", device_of(w.host)),
        ASK("device of device memory", device_of(w.device)),
        ASK("device of managed", device_of(w.managed)), ASK("device of NULL", device_of(nullptr)),
  };
}
