// Pools of memory of the host, and what a GPU answers (an H100, driver 580.159.04).
#include "cuda.h"

#include <cstring>

#ifndef WITH_TOOLKIT
enum { cudaMemAllocationTypePinned = 1 };
enum cudaMemLocationType {
  cudaMemLocationTypeDevice = 1,
  cudaMemLocationTypeHost,
  cudaMemLocationTypeHostNuma,
  cudaMemLocationTypeHostNumaCurrent,
};
enum cudaMemAllocationHandleType { cudaMemHandleTypePosixFileDescriptor = 1 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemPoolProps {
  int allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void* securityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
extern "C" {
cudaError_t cudaMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t);
int cuMemPoolCreate(cudaMemPool_t*, const cudaMemPoolProps*);
}
#endif

namespace {

cudaMemPoolProps of(int type, int id, size_t bytes = 0) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {static_cast<cudaMemLocationType>(type), id};
  props.maxSize = bytes;
  return props;
}

cudaError_t created(cudaMemPoolProps props) {
  cudaMemPool_t pool = nullptr;
  const cudaError_t result = cudaMemPoolCreate(&pool, &props);
  if (result == cudaSuccess) OK(cudaMemPoolDestroy(pool));
  return result;
}

void is_used(int type) {
  cudaMemPool_t pool;
  cudaStream_t stream;
  const cudaMemPoolProps props = of(type, 0, 1 << 20);
  OK(cudaMemPoolCreate(&pool, &props));
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void *up, *down, *device, *more;
  OK(cudaMallocFromPoolAsync(&up, 1000, pool, stream));
  OK(cudaMallocFromPoolAsync(&down, 1000, pool, stream));
  OK(cudaMalloc(&device, 1000));
  EXPECT(cudaMallocFromPoolAsync(&more, 1 << 20, pool, stream) != cudaSuccess);
  OK(cudaStreamSynchronize(stream));
  cudaPointerAttributes about;
  OK(cudaPointerGetAttributes(&about, up));
  EXPECT(about.type == cudaMemoryTypeHost && about.hostPointer == up && about.device == 0);
  // The host uses it as it is; copies are asynchronous.
  std::memset(up, 7, 1000);
  OK(cudaMemcpyAsync(device, up, 1000, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpyAsync(down, device, 1000, cudaMemcpyDeviceToHost, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(static_cast<char*>(down)[999] == 7);
  EXPECT(cudaDeviceSetMemPool(0, pool) == cudaErrorInvalidValue);
  // In stream order, or by a call that waits.
  OK(cudaMemcpyAsync(device, up, 1000, cudaMemcpyHostToDevice, stream));
  OK(cudaFreeAsync(up, stream));
  OK(cudaFree(down));
  OK(cudaMallocFromPoolAsync(&more, 1 << 20, pool, stream));
  OK(cudaFreeAsync(more, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolDestroy(pool));
  OK(cudaFree(device));
  OK(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  is_used(cudaMemLocationTypeHostNuma);
  is_used(cudaMemLocationTypeHost);
  EXPECT(created(of(cudaMemLocationTypeHostNuma, 0)) == cudaSuccess);
  EXPECT(created(of(cudaMemLocationTypeHost, 9)) == cudaSuccess);
  EXPECT(created(of(cudaMemLocationTypeHostNuma, 9)) == cudaErrorInvalidValue);
  EXPECT(created(of(cudaMemLocationTypeHostNumaCurrent, 0)) == cudaErrorInvalidValue);
  cudaMemPoolProps shared = of(cudaMemLocationTypeHost, 0);
  shared.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  EXPECT(created(shared) == cudaErrorInvalidValue);
#ifndef WITH_TOOLKIT
  cudaMemPool_t pool;
  const cudaMemPoolProps props = of(cudaMemLocationTypeHostNuma, 0);
  EXPECT(cuMemPoolCreate(&pool, &props) == 0);
  EXPECT(cuMemPoolCreate(&pool, &shared) == 1);
#endif
  std::puts("all is right");
}
