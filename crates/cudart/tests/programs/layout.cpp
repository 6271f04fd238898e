// The structs of the toolkit's headers are filled as they are declared there.
#include <cuda_runtime_api.h>

#include <cstring>

#include "cuda.h"

int main() {
  struct {
    cudaDeviceProp prop;
    unsigned char behind[64];
  } of;
  std::memset(&of, 0xee, sizeof of);
  OK(cudaGetDeviceProperties(&of.prop, 0));
  for (unsigned char byte : of.behind) EXPECT(byte == 0xee);
  const auto& prop = of.prop;
  EXPECT(std::strstr(prop.name, "Emulated") != nullptr);
  EXPECT(prop.warpSize == 32 && prop.maxThreadsDim[2] == 64 && prop.maxGridSize[1] == 65535);
  size_t free, total;
  OK(cudaMemGetInfo(&free, &total));
  EXPECT(prop.totalGlobalMem == total && free == total);
  struct {
    cudaDeviceAttr attribute;
    long long field;
  } const pairs[] = {
      {cudaDevAttrMaxThreadsPerBlock, prop.maxThreadsPerBlock},
      {cudaDevAttrComputeCapabilityMajor, prop.major},
      {cudaDevAttrMultiProcessorCount, prop.multiProcessorCount},
      {cudaDevAttrL2CacheSize, prop.l2CacheSize},
      {cudaDevAttrPciBusId, prop.pciBusID},
      {cudaDevAttrUnifiedAddressing, prop.unifiedAddressing},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin,
       static_cast<long long>(prop.sharedMemPerBlockOptin)},
      {cudaDevAttrMemoryPoolsSupported, prop.memoryPoolsSupported},
      {cudaDevAttrHostRegisterSupported, prop.hostRegisterSupported},
      {cudaDevAttrManagedMemory, prop.managedMemory},
  };
  for (const auto& pair : pairs) {
    int value = -1;
    OK(cudaDeviceGetAttribute(&value, pair.attribute, 0));
    EXPECT(value == pair.field && value != 0);
  }
  struct {
    cudaPointerAttributes attributes;
    unsigned char behind[64];
  } pointer;
  std::memset(&pointer, 0xee, sizeof pointer);
  OK(cudaPointerGetAttributes(&pointer.attributes, &of));
  for (unsigned char byte : pointer.behind) EXPECT(byte == 0xee);
  EXPECT(pointer.attributes.type == cudaMemoryTypeUnregistered);

  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  props.maxSize = 1 << 20;
  cudaMemPool_t pool;
  OK(cudaMemPoolCreate(&pool, &props));
  void *some, *more;
  OK(cudaMallocFromPoolAsync(&some, 1 << 20, pool, nullptr));
  EXPECT(cudaMallocFromPoolAsync(&more, 1, pool, nullptr) == cudaErrorMemoryAllocation);
  size_t used = 0;
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  EXPECT(used == 1 << 20);
  OK(cudaFreeAsync(some, nullptr));
  OK(cudaMemPoolDestroy(pool));

  // Two planes of three lines of four bytes, in the middle of larger ones.
  cudaPitchedPtr volume;
  OK(cudaMalloc3D(&volume, {8, 5, 3}));
  OK(cudaMemset3D(volume, 1, {8, 5, 3}));
  char there[24], back[8 * 5 * 3];
  std::memset(there, 7, sizeof there);
  cudaMemcpy3DParms up = {};
  up.srcPtr = {there, 4, 4, 3};
  up.dstPtr = volume;
  up.dstPos = {2, 1, 1};
  up.extent = {4, 3, 2};
  up.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&up));
  cudaMemcpy3DParms down = {};
  down.srcPtr = volume;
  down.dstPtr = {back, 8, 8, 5};
  down.extent = {8, 5, 3};
  down.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3DAsync(&down, nullptr));
  OK(cudaDeviceSynchronize());
  for (int at = 0; at < 120; ++at) {
    const int x = at % 8, y = at / 8 % 5, z = at / 40;
    const bool inside = x >= 2 && x < 6 && y >= 1 && y < 4 && z >= 1;
    EXPECT(back[at] == (inside ? 7 : 1));
  }
  EXPECT(cudaMemcpy3D(nullptr) == cudaErrorInvalidValue);
  OK(cudaFree(volume.ptr));
  std::puts("as declared");
}
