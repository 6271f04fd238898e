// Maps memory at addresses that it has reserved, as allocators do that grow: copies and fills go
// over the border of two mappings. Then it maps, unmaps and asks in all ways that CUDA refuses.
#include "mapped.h"

#include <cstring>
#include <vector>

namespace {
const unsigned long long unit = 2 << 20;
CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp of = {};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location.type = decltype(of.location.type)(CU_MEM_LOCATION_TYPE_DEVICE);
  of.location.id = device;
  return of;
}

void open_to(int device, CUdeviceptr at, size_t bytes,
             CUmemAccess_flags how = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  const CUmemAccessDesc access = {on_device(device).location, how};
  FINE(cuMemSetAccess(at, bytes, &access, 1));
}

void right(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("%s\n", what);
  std::exit(1);
}
#define RIGHT(what) right(what, #what)

unsigned long long access_of(int device, CUdeviceptr at) {
  unsigned long long flags = 99;
  const CUmemLocation location = on_device(device).location;
  FINE(cuMemGetAccess(&flags, &location, at));
  return flags;
}

size_t free_bytes() {
  size_t free = 0, total = 0;
  FINE(cuMemGetInfo(&free, &total));
  return free;
}

// Memory that grows, as one range.
void grows(CUstream stream) {
  const size_t before = free_bytes();
  CUdeviceptr at = 0;
  FINE(cuMemAddressReserve(&at, 8 * unit, 0, 0, 0));
  RIGHT(at % unit == 0 && free_bytes() == before);
  const CUmemAllocationProp of = on_device(0);
  CUmemGenericAllocationHandle first, second;
  FINE(cuMemCreate(&first, unit, &of, 0));
  FINE(cuMemCreate(&second, 2 * unit, &of, 0));
  RIGHT(free_bytes() == before - 3 * unit);
  FINE(cuMemMap(at, unit, 0, first, 0));
  open_to(0, at, unit);
  FINE(cuMemsetD8Async(at, 1, unit, stream));
  FINE(cuMemMap(at + unit, 2 * unit, 0, second, 0));
  RIGHT(access_of(0, at + unit) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  open_to(0, at, 3 * unit);
  RIGHT(access_of(0, at + 3 * unit - 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  RIGHT(access_of(1, at) == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  FINE(cuMemsetD8Async(at + unit - 100, 2, unit + 100, stream));
  std::vector<unsigned char> bytes(2 * unit);
  FINE(cuMemcpyDtoHAsync(bytes.data(), at, bytes.size(), stream));
  FINE(cuStreamSynchronize(stream));
  RIGHT(bytes[unit - 101] == 1 && bytes[unit - 100] == 2 && bytes[2 * unit - 1] == 2);
  FINE(cuMemcpyDtoDAsync(at + 2 * unit, at + unit / 2, unit, stream));
  FINE(cuStreamSynchronize(stream));
  FINE(cuMemcpyDtoH(bytes.data(), at + 2 * unit, unit));
  RIGHT(bytes[0] == 1 && bytes[unit / 2 - 101] == 1 && bytes[unit / 2 - 100] == 2);
  CUdeviceptr base = 0;
  size_t size = 0;
  FINE(cuMemGetAddressRange(&base, &size, at + 2 * unit));
  RIGHT(base == at + unit && size == 2 * unit);
  GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange(&base, &size, at + 4 * unit));
  // The memory goes with the last handle and the last mapping.
  FINE(cuMemRelease(first));
  FINE(cuMemcpyDtoH(bytes.data(), at, 1));
  RIGHT(bytes[0] == 1 && free_bytes() == before - 3 * unit);
  CUmemGenericAllocationHandle again = 0;
  FINE(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at + 5)));
  RIGHT(again == first);
  FINE(cuMemUnmap(at, unit));
  RIGHT(free_bytes() == before - 3 * unit);
  FINE(cuMemMap(at + 4 * unit, unit, 0, again, 0));
  open_to(0, at + 4 * unit, unit);
  FINE(cuMemRelease(again));
  FINE(cuMemcpyDtoH(bytes.data(), at + 4 * unit, 1));
  RIGHT(bytes[0] == 1);
  FINE(cuMemUnmap(at + 4 * unit, unit));
  RIGHT(free_bytes() == before - 2 * unit);
  FINE(cuMemUnmap(at + unit, 2 * unit));
  FINE(cuMemRelease(second));
  RIGHT(free_bytes() == before);
  FINE(cuMemAddressFree(at, 8 * unit));
}

// One handle at two addresses, and another device's memory.
void is_shared(CUstream stream) {
  CUdeviceptr at = 0, other = 0;
  FINE(cuMemAddressReserve(&at, unit, 4 * unit, 0, 0));
  FINE(cuMemAddressReserve(&other, unit, 0, at, 0));
  RIGHT(at % (4 * unit) == 0 && other != at);
  CUmemAllocationProp of = on_device(1);
  of.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle;
  FINE(cuMemCreate(&handle, unit, &of, 0));
  CUmemAllocationProp got = {};
  FINE(cuMemGetAllocationPropertiesFromHandle(&got, handle));
  RIGHT(std::memcmp(&of, &got, sizeof of) == 0);
  FINE(cuMemMap(at, unit, 0, handle, 0));
  FINE(cuMemMap(other, unit, 0, handle, 0));
  open_to(0, at, unit);
  open_to(0, other, unit);
  open_to(1, other, unit, CU_MEM_ACCESS_FLAGS_PROT_READ);
  FINE(cuMemsetD8Async(at, 7, unit, stream));
  FINE(cuMemcpyDtoDAsync(other + 8, at, 8, stream));
  FINE(cuStreamSynchronize(stream));
  unsigned char byte = 0;
  FINE(cuMemcpyDtoH(&byte, other + 9, 1));
  RIGHT(byte == 7);
  int device = -1;
  FINE(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, other));
  RIGHT(device == 1);
  FINE(cuMemRelease(handle));
  FINE(cuMemUnmap(at, unit));
  FINE(cuMemUnmap(other, unit));
  FINE(cuMemAddressFree(at, unit));
  FINE(cuMemAddressFree(other, unit));
}

void refuses() {
  CUdeviceptr at = 0;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, 0, 0, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, 100, 0, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, unit, 3, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&at, unit, 0, 0, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(nullptr, unit, 0, 0, 0));
  GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&at, 1ull << 60, 0, 0, 0));
  CUmemAllocationProp of = on_device(0);
  size_t granularity = 0;
  FINE(cuMemGetAllocationGranularity(&granularity, &of, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  RIGHT(granularity == unit);
  CUmemGenericAllocationHandle handle, all;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, unit / 2, &of, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, unit, &of, 1));
  GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&all, 1ull << 50, &of, 0));
  of.location.id = 2;
  GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, unit, &of, 0));
  of = on_device(0);
  of.location.type = decltype(of.location.type)(CU_MEM_LOCATION_TYPE_HOST);
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, unit, &of, 0));
  of = on_device(0);
  of.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, unit, &of, 0));
  of = on_device(0);
  FINE(cuMemCreate(&handle, unit, &of, 0));
  int descriptor;
  GIVES(CUDA_ERROR_NOT_SUPPORTED,
        cuMemExportToShareableHandle(&descriptor, handle,
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  FINE(cuMemAddressReserve(&at, 2 * unit, 0, 0, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, unit, unit, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, unit, 0, handle, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, unit / 2, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 4096, unit, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, 2 * unit, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + 2 * unit, unit, 0, handle, 0));
  const CUmemAccessDesc access = {on_device(0).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, unit, &access, 1));
  FINE(cuMemMap(at, unit, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at, unit, 0, handle, 0));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, 2 * unit, &access, 1));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(at, unit, &access, 0));
  const CUmemAccessDesc absent = {on_device(2).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(at, unit, &absent, 1));
  unsigned long long flags;
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemGetAccess(&flags, &access.location, at + unit));
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuMemRetainAllocationHandle(&all, reinterpret_cast<void*>(at + unit)));
  FINE(cuMemUnmap(at, unit));
  FINE(cuMemRelease(handle));
  FINE(cuMemAddressFree(at, 2 * unit));
}
}  // namespace

int main() {
  CUcontext context;
  CUstream stream;
  FINE(cuInit(0));
  // It needs no context.
  size_t granularity = 0;
  const CUmemAllocationProp of = on_device(1);
  FINE(cuMemGetAllocationGranularity(&granularity, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CUdeviceptr at = 0;
  FINE(cuMemAddressReserve(&at, unit, 0, 0, 0));
  FINE(cuMemAddressFree(at, unit));
  int is_there = 0;
  FINE(cuDeviceGetAttribute(&is_there, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
  RIGHT(is_there == 1);
  FINE(cuDevicePrimaryCtxRetain(&context, 0));
  FINE(cuCtxSetCurrent(context));
  FINE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (int turn = 0; turn < 3; ++turn) grows(stream);
  is_shared(stream);
  refuses();
  FINE(cuStreamDestroy(stream));
  std::puts("all is right");
}
