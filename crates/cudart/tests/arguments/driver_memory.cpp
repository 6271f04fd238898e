// The driver: memory.
#include "questions.h"

namespace {

// What the driver says of memory, as a number.
template <typename T>
long said(CUpointer_attribute attribute, const void *memory, T known) {
  T value{};
  const long answer = cuPointerGetAttribute(&value, attribute, at(memory));
  return both(answer, 10, value == known);
}

long type_of(const void *memory) {
  unsigned type = 9;
  const long answer = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(memory));
  return both(answer, 10, type);
}

long ordinal(const void *memory) {
  int device = 77;
  const auto attribute = CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
  return both(cuPointerGetAttribute(&device, attribute, at(memory)), 100, device + 10);
}

Questions allocation() {
  return {
    STEPS("cuMemAlloc 0 bytes", w.address = 1; const long answer = cuMemAlloc(&w.address, 0);
          return both(answer, 10, w.address == 0);),
        ASK("cuMemAlloc NULL out", cuMemAlloc(nullptr, 64)),
        ASK("cuMemAlloc huge", cuMemAlloc(&w.address, HUGE_BYTES)),
        ASK("cuMemFree NULL", cuMemFree(0)), ASK("cuMemFree host", cuMemFree(at(w.host))),
        ASK("cuMemFree pageable", cuMemFree(at(w.pageable))),
        ASK("cuMemFree inside", cuMemFree(at(w.device) + 256)),
        ASK("cuMemFree twice", cuMemFree(at(w.freed_device))),
        ASK("cuMemFree of cudaMalloc", cuMemFree(at(w.device))),
        STEPS("cuMemAllocHost 0 bytes", const long answer = cuMemAllocHost(&w.out, 0);
              return both(answer, 10, w.out == nullptr);),
        ASK("cuMemAllocHost NULL out", cuMemAllocHost(nullptr, 64)),
        ASK("cuMemAllocHost huge", cuMemAllocHost(&w.out, HUGE_BYTES)),
        STEPS("cuMemHostAlloc 0 bytes", const long answer = cuMemHostAlloc(&w.out, 0, 0);
              return both(answer, 10, w.out == nullptr);),
        ASK("cuMemHostAlloc NULL out", cuMemHostAlloc(nullptr, 64, 0)),
        ASK("cuMemHostAlloc flags 0x80", cuMemHostAlloc(&w.out, 64, 0x80)),
        ASK("cuMemHostAlloc flags 7", cuMemHostAlloc(&w.out, 64, 7)),
        ASK("cuMemHostAlloc huge", cuMemHostAlloc(&w.out, HUGE_BYTES, 0)),
        ASK("cuMemFreeHost NULL", cuMemFreeHost(nullptr)),
        ASK("cuMemFreeHost device", cuMemFreeHost(w.device)),
        ASK("cuMemFreeHost pageable", cuMemFreeHost(w.pageable)),
        ASK("cuMemFreeHost inside", cuMemFreeHost(w.host + 4096)),
        ASK("cuMemFreeHost twice", cuMemFreeHost(w.freed_host)),
        ASK("cuMemFreeHost of cudaHostAlloc", cuMemFreeHost(w.host)),
        STEPS("cuMemFreeHost registered", cuMemHostRegister(w.pageable, BYTES, 0);
              return cuMemFreeHost(w.pageable);),
        ASK("cuMemAllocManaged 0 bytes", cuMemAllocManaged(&w.address, 0, 1)),
        ASK("cuMemAllocManaged flags 0", cuMemAllocManaged(&w.address, 64, 0)),
        ASK("cuMemAllocManaged NULL out", cuMemAllocManaged(nullptr, 64, 1)),
        ASK("cuMemAllocPitch elements of 3", cuMemAllocPitch(&w.address, &w.size, 64, 4, 3)),
        ASK("cuMemAllocPitch elements of 8", cuMemAllocPitch(&w.address, &w.size, 64, 4, 8)),
        ASK("cuMemAllocPitch no lines", cuMemAllocPitch(&w.address, &w.size, 64, 0, 4)),
        ASK("cuMemAllocAsync 0 bytes", cuMemAllocAsync(&w.address, 0, w.stream)),
        ASK("cuMemAllocAsync NULL out", cuMemAllocAsync(nullptr, 64, w.stream)),
        ASK("cuMemFreeAsync NULL", cuMemFreeAsync(0, w.stream)),
        ASK("cuMemFreeAsync host", cuMemFreeAsync(at(w.host), w.stream)),
        ASK("cuMemGetInfo NULL", cuMemGetInfo(nullptr, nullptr)),
  };
}

Questions registration() {
  return {
    ASK("cuMemHostRegister", cuMemHostRegister(w.pageable, BYTES, 0)),
        ASK("cuMemHostRegister 0 bytes", cuMemHostRegister(w.pageable, 0, 0)),
        ASK("cuMemHostRegister NULL", cuMemHostRegister(nullptr, BYTES, 0)),
        ASK("cuMemHostRegister flags 0x80", cuMemHostRegister(w.pageable, BYTES, 0x80)),
        ASK("cuMemHostRegister device", cuMemHostRegister(w.device, BYTES, 0)),
        ASK("cuMemHostRegister pinned", cuMemHostRegister(w.host, BYTES, 0)),
        ASK("cuMemHostRegister unmapped", cuMemHostRegister(w.unmapped, BYTES, 0)),
        ASK("cuMemHostRegister read-only", cuMemHostRegister(w.read_only, BYTES, 0)),
        ASK("cuMemHostRegister read-only, flag", cuMemHostRegister(w.read_only, BYTES, 8)),
        ASK("cuMemHostRegister IoMemory of RAM", cuMemHostRegister(w.pageable, BYTES, 4)),
        STEPS("cuMemHostRegister twice", cuMemHostRegister(w.pageable, BYTES, 0);
              return cuMemHostRegister(w.pageable, BYTES, 0);),
        ASK("cuMemHostUnregister not registered", cuMemHostUnregister(w.pageable)),
        ASK("cuMemHostUnregister pinned", cuMemHostUnregister(w.host)),
        ASK("cuMemHostUnregister NULL", cuMemHostUnregister(nullptr)),
        STEPS("cuMemHostUnregister inside", cuMemHostRegister(w.pageable, BYTES, 0);
              return cuMemHostUnregister(w.pageable + 4096);),
        ASK("cuMemHostGetDevicePointer pageable",
            cuMemHostGetDevicePointer(&w.address, w.pageable, 0)),
        ASK("cuMemHostGetDevicePointer", cuMemHostGetDevicePointer(&w.address, w.host + 9, 0)),
        ASK("cuMemHostGetDevicePointer flags", cuMemHostGetDevicePointer(&w.address, w.host, 1)),
        ASK("cuMemHostGetDevicePointer NULL out", cuMemHostGetDevicePointer(nullptr, w.host, 0)),
        STEPS("cuMemHostGetFlags", const long answer = cuMemHostGetFlags(&w.flags, w.host);
              return both(answer, 100, w.flags);),
        ASK("cuMemHostGetFlags pageable", cuMemHostGetFlags(&w.flags, w.pageable)),
        ASK("cuMemHostGetFlags NULL out", cuMemHostGetFlags(nullptr, w.host)),
  };
}

Questions attributes() {
  return {
    ASK("memory type of device", type_of(w.device + 9)),
        ASK("memory type of pinned", type_of(w.host + 9)),
        ASK("memory type of pageable", type_of(w.pageable)),
        ASK("memory type of managed", type_of(w.managed)),
        ASK("memory type of freed device", type_of(w.freed_device)),
        ASK("memory type of NULL", type_of(nullptr)),
        STEPS("memory type of registered", cuMemHostRegister(w.pageable, BYTES, 0);
              return type_of(w.pageable);),
        ASK("device pointer of device",
            said<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, w.device + 9, at(w.device + 9))),
        ASK("device pointer of pinned",
            said<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, w.host + 9, at(w.host + 9))),
        ASK("device pointer of pageable",
            said<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, w.pageable, 0)),
        ASK("host pointer of device",
            said<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, w.device, nullptr)),
        ASK("host pointer of pinned",
            said<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, w.host + 9, w.host + 9)),
        ASK("host pointer of managed",
            said<void *>(CU_POINTER_ATTRIBUTE_HOST_POINTER, w.managed, w.managed)),
        ASK("is managed, of managed", said<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, w.managed, 1)),
        ASK("is managed, of device", said<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, w.device, 1)),
        ASK("is managed, of pageable", said<int>(CU_POINTER_ATTRIBUTE_IS_MANAGED, w.pageable, 1)),
        ASK("device's number, of device", ordinal(w.device)),
        ASK("device's number, of pinned", ordinal(w.host)),
        ASK("device's number, of pageable", ordinal(w.pageable)),
        ASK("range's start, of device inside",
            said<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, w.device + 9, at(w.device))),
        ASK("range's size, of device inside",
            said<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, w.device + 9, BYTES)),
        ASK("range's start, of pinned inside",
            said<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, w.host + 9, at(w.host))),
        ASK("range's size, of pinned inside",
            said<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, w.host + 9, BYTES)),
        ASK("range's size, of pageable",
            said<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, w.pageable, 0)),
        ASK("is mapped, of device", said<int>(CU_POINTER_ATTRIBUTE_MAPPED, w.device, 1)),
        ASK("is mapped, of pageable", said<int>(CU_POINTER_ATTRIBUTE_MAPPED, w.pageable, 1)),
        ASK("context of device", said<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, w.device, nullptr)),
        ASK("buffer of device",
            said<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, w.device, 0)),
        ASK("cuPointerGetAttribute 99",
            cuPointerGetAttribute(&w.id, static_cast<CUpointer_attribute>(99), at(w.device))),
        ASK("cuPointerGetAttribute NULL out",
            cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at(w.device))),
        STEPS("cuMemGetAddressRange inside",
              const long answer = cuMemGetAddressRange(&w.address, &w.size, at(w.device) + 9);
              return both(answer, 100, 10 * (w.address == at(w.device)) + (w.size == BYTES));),
        ASK("cuMemGetAddressRange pageable",
            cuMemGetAddressRange(&w.address, &w.size, at(w.pageable))),
        ASK("cuMemGetAddressRange pinned", cuMemGetAddressRange(&w.address, &w.size, at(w.host))),
        ASK("cuMemGetAddressRange NULL outs", cuMemGetAddressRange(nullptr, nullptr, at(w.device))),
        ASK("cuMemGetAddressRange freed",
            cuMemGetAddressRange(&w.address, &w.size, at(w.freed_device))),
  };
}

} // namespace

Questions driver_memory() {
  Questions all = allocation();
  for (const Questions &more : {registration(), attributes()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
