// A correct program for the driver: contexts, copies, streams, events.
#include "driver.h"

#include <climits>
#include <cstring>
#include <thread>
#include <vector>

namespace {

// Two streams, one of which waits for the other's event.
void copies() {
  const size_t bytes = 1 << 16;
  CUstream up, down;
  CUevent done;
  CUdeviceptr a, b;
  void* pinned;
  FINE(cuStreamCreate(&up, CU_STREAM_NON_BLOCKING));
  FINE(cuStreamCreate(&down, CU_STREAM_NON_BLOCKING));
  FINE(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  FINE(cuMemAlloc(&a, bytes));
  FINE(cuMemAlloc(&b, bytes));
  FINE(cuMemAllocHost(&pinned, bytes));
  std::memset(pinned, 5, bytes);
  FINE(cuMemcpyHtoDAsync(a, pinned, bytes, up));
  FINE(cuMemsetD8Async(a, 6, bytes / 2, up));
  FINE(cuMemcpyDtoDAsync(b, a, bytes, up));
  FINE(cuEventRecord(done, up));
  FINE(cuStreamWaitEvent(down, done, 0));
  FINE(cuMemcpyDtoHAsync(pinned, b, bytes, down));
  FINE(cuStreamSynchronize(down));
  FINE(cuStreamQuery(down));
  const auto* back = static_cast<const char*>(pinned);
  EXPECT(back[0] == 6 && back[bytes - 1] == 5);
  std::vector<char> there(bytes, 7);
  FINE(cuMemcpyHtoD(b, there.data(), bytes));
  FINE(cuMemsetD8(b, 8, 1));
  FINE(cuMemcpyDtoH(there.data(), b, bytes));
  EXPECT(there[0] == 8 && there[1] == 7);
  unsigned type = 0;
  size_t size = 0;
  FINE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 100));
  FINE(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, a + 100));
  EXPECT(type == 2 && size == bytes);
  FINE(cuEventSynchronize(done));
  FINE(cuEventDestroy(done));
  FINE(cuStreamDestroy(up));
  FINE(cuStreamDestroy(down));
  FINE(cuMemFree(a));
  FINE(cuMemFree(b));
  FINE(cuMemFreeHost(pinned));
}

// A copy goes as its addresses show: page-locked memory may stand where a name says a device's, and
// a device's where it says the host's.
void directions() {
  CUdeviceptr device;
  void* pinned;
  char there[64] = {};
  FINE(cuMemAlloc(&device, sizeof there));
  FINE(cuMemAllocHost(&pinned, sizeof there));
  std::memset(pinned, 5, sizeof there);
  FINE(cuMemsetD8(device, 6, sizeof there));
  const auto as_device = reinterpret_cast<CUdeviceptr>(pinned);
  const auto as_host = reinterpret_cast<void*>(device);
  FINE(cuMemcpyHtoD(as_device, as_host, 32));
  FINE(cuMemcpyDtoH(there, as_device, sizeof there));
  EXPECT(there[0] == 6 && there[31] == 6 && there[32] == 5);
  FINE(cuMemcpyDtoH(as_host, as_device + 32, 32));
  FINE(cuMemcpyHtoD(as_device, there + 32, 8));
  FINE(cuMemcpyDtoHAsync(as_host, as_device, 8, nullptr));
  FINE(cuMemcpyDtoDAsync(as_device, device, sizeof there, nullptr));
  FINE(cuStreamSynchronize(nullptr));
  const auto* back = static_cast<const char*>(pinned);
  EXPECT(back[0] == 5 && back[31] == 5 && back[32] == 6);
  FINE(cuMemFreeHost(pinned));
  FINE(cuMemFree(device));
}

bool is_active() {
  unsigned flags;
  int active;
  FINE(cuDevicePrimaryCtxGetState(0, &flags, &active));
  return active != 0;
}

} // namespace

int main() {
  int count;
  CUdeviceptr memory;
  CUcontext primary, other, seen;
  GIVES(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
  GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc(&memory, 100));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuInit(1));
  FINE(cuInit(0));
  FINE(cuDeviceGetCount(&count));
  EXPECT(count == 2);
  CUdevice device, second;
  FINE(cuDeviceGet(&device, 0));
  FINE(cuDeviceGet(&second, 1));
  GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 2));
  char name[8];
  size_t total;
  FINE(cuDeviceGetName(name, sizeof name, device));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, 0, device));
  GIVES(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, INT_MIN, device));
  FINE(cuDeviceTotalMem(&total, device));
  EXPECT(std::strlen(name) == 7 && total > 0);

  // No context is current until one is set, on each thread.
  FINE(cuCtxGetCurrent(&seen));
  EXPECT(seen == nullptr && !is_active());
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc(&memory, 100));
  FINE(cuDevicePrimaryCtxRetain(&primary, device));
  EXPECT(is_active());
  FINE(cuCtxSetCurrent(primary));
  copies();
  directions();
  std::thread([&] {
    CUcontext none;
    FINE(cuCtxGetCurrent(&none));
    EXPECT(none == nullptr);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize());
    FINE(cuCtxSetCurrent(primary));
    copies();
  }).join();

  // They are a stack.
  FINE(cuCtxCreate(&other, nullptr, 0, second));
  FINE(cuCtxGetDevice(&device));
  EXPECT(device == second);
  copies();
  FINE(cuCtxPopCurrent(&seen));
  EXPECT(seen == other);
  FINE(cuCtxGetDevice(&device));
  EXPECT(device == 0);
  FINE(cuCtxPushCurrent(other));
  FINE(cuCtxDestroy(other));
  FINE(cuCtxGetCurrent(&seen));
  EXPECT(seen == primary);
  GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(other));

  // The driver refuses to allocate 0 bytes.
  GIVES(CUDA_ERROR_INVALID_VALUE, cuMemAlloc(&memory, 0));

  // What is left in the primary context ends with it.
  FINE(cuMemAlloc(&memory, 100));
  FINE(cuDevicePrimaryCtxRelease(0));
  EXPECT(!is_active());
  GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree(memory));
  unsigned type;
  GIVES(CUDA_ERROR_INVALID_VALUE,
        cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
  GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease(0));
  const char* text;
  FINE(cuGetErrorName(CUDA_ERROR_INVALID_CONTEXT, &text));
  EXPECT(std::strcmp(text, "CUDA_ERROR_INVALID_CONTEXT") == 0);
  std::puts("all is right");
}
