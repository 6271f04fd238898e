// Uses mapped memory in one of the ways that CUDA forbids.
#include "mapped.h"

#include <string>

namespace {
const size_t unit = 2 << 20;
CUdeviceptr at;
CUstream streams[2];
CUmemGenericAllocationHandle handle;
CUmemAllocationProp of = {};

void open_to(int device, CUmemAccess_flags how) {
  CUmemAccessDesc access = {of.location, how};
  access.location.id = device;
  FINE(cuMemSetAccess(at, unit, &access, 1));
}

void refused(CUdeviceptr where, size_t bytes) {
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(where, 1, bytes, streams[0]));
}

void use(const std::string& what) {
  const auto read_write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (what == "closed") return refused(at, 1);
  if (what == "other device") {
    open_to(0, read_write);
    CUcontext other;
    CUstream stream;
    FINE(cuDevicePrimaryCtxRetain(&other, 1));
    FINE(cuCtxSetCurrent(other));
    FINE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    cuMemsetD8Async(at, 1, 8, stream);
    cuStreamSynchronize(stream);
    return;
  }
  if (what == "read only") {
    open_to(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    char byte;
    FINE(cuMemcpyDtoH(&byte, at, 1));
    cuMemsetD8Async(at, 1, 8, streams[0]);
    cuStreamSynchronize(streams[0]);
    return;
  }
  open_to(0, read_write);
  if (what == "unmapped") return refused(at + unit, 1);
  if (what == "border") return refused(at + unit - 1, 2);
  if (what == "gone") {
    FINE(cuMemUnmap(at, unit));
    return refused(at, 1);
  }
  if (what == "address free") {
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, 4 * unit));
    FINE(cuMemUnmap(at, unit));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at, unit));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(at + unit, 3 * unit));
    FINE(cuMemAddressFree(at, 4 * unit));
  } else if (what == "unmap") {
    CUmemGenericAllocationHandle longer;
    FINE(cuMemCreate(&longer, 2 * unit, &of, 0));
    FINE(cuMemMap(at + unit, 2 * unit, 0, longer, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at, 2 * unit));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(at + 3 * unit, unit));
    FINE(cuMemUnmap(at, 3 * unit));
  } else if (what == "free") {
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemFree(at));
  } else if (what == "handle") {
    FINE(cuMemRelease(handle));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuMemMap(at + unit, unit, 0, handle, 0));
  } else if (what == "unmap in use") {
    FINE(cuMemsetD8Async(at, 1, unit, streams[0]));
    FINE(cuMemUnmap(at, unit));
    cuStreamSynchronize(streams[0]);
  } else if (what == "race") {
    CUmemGenericAllocationHandle second;
    FINE(cuMemCreate(&second, unit, &of, 0));
    FINE(cuMemMap(at + unit, unit, 0, second, 0));
    const CUmemAccessDesc access = {of.location, read_write};
    FINE(cuMemSetAccess(at, 2 * unit, &access, 1));
    FINE(cuMemsetD8Async(at, 1, 2 * unit, streams[0]));
    FINE(cuMemsetD8Async(at + unit + 8, 2, 8, streams[1]));
    FINE(cuCtxSynchronize());
  }
}
}  // namespace

int main(int, char** arguments) {
  CUcontext context;
  FINE(cuInit(0));
  FINE(cuDevicePrimaryCtxRetain(&context, 0));
  FINE(cuCtxSetCurrent(context));
  for (CUstream& stream : streams) FINE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location.type = decltype(of.location.type)(CU_MEM_LOCATION_TYPE_DEVICE);
  FINE(cuMemAddressReserve(&at, 4 * unit, 0, 0, 0));
  FINE(cuMemCreate(&handle, unit, &of, 0));
  FINE(cuMemMap(at, unit, 0, handle, 0));
  use(arguments[1]);
  std::puts("done");
}
