// Pools of memory in the order of streams.
#include "questions.h"

namespace {

using Properties = cudaMemPoolProps;

Properties on(cudaMemLocationType location, int device) {
  Properties properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = location;
  properties.location.id = device;
  return properties;
}

Properties on_device() { return on(cudaMemLocationTypeDevice, 0); }

long create(World &w, Properties properties) { return cudaMemPoolCreate(&w.pool, &properties); }

// Memory of a pool in such a place.
long memory_on(World &w, cudaMemLocationType location, int device) {
  const long answer = create(w, on(location, device));
  if (answer != 0)
    return both(1, 10000, answer);
  return cudaMallocFromPoolAsync(&w.out, BYTES, w.pool, w.stream);
}

cudaMemPoolAttr attribute(int number) { return static_cast<cudaMemPoolAttr>(number); }

long set(cudaMemPool_t pool, int number, unsigned long long value) {
  return cudaMemPoolSetAttribute(pool, attribute(number), &value);
}

long get(cudaMemPool_t pool, int number) {
  unsigned long long value = 0;
  const long answer = cudaMemPoolGetAttribute(pool, attribute(number), &value);
  return answer != 0 ? answer : static_cast<long>(value);
}

long open(cudaMemPool_t pool, cudaMemLocationType location, int device, int access) {
  cudaMemAccessDesc description{};
  description.location.type = location;
  description.location.id = device;
  description.flags = static_cast<cudaMemAccessFlags>(access);
  return cudaMemPoolSetAccess(pool, &description, 1);
}

long opened(cudaMemPool_t pool, cudaMemLocationType location, int device) {
  cudaMemLocation place{};
  place.type = location;
  place.id = device;
  auto access = static_cast<cudaMemAccessFlags>(9);
  const long answer = cudaMemPoolGetAccess(&access, pool, &place);
  return both(answer, 10, access);
}

Questions making() {
  return {
    ASK("cudaDeviceGetDefaultMemPool NULL", cudaDeviceGetDefaultMemPool(nullptr, 0)),
        ASK("cudaDeviceGetDefaultMemPool 9", cudaDeviceGetDefaultMemPool(&w.pool, 9)),
        STEPS("cudaDeviceGetMemPool is the default",
              const long answer = cudaDeviceGetMemPool(&w.pool, 0);
              return both(answer, 10, w.pool == w.default_pool);),
        ASK("cudaDeviceGetMemPool NULL", cudaDeviceGetMemPool(nullptr, 0)),
        ASK("cudaDeviceSetMemPool NULL", cudaDeviceSetMemPool(0, nullptr)),
        ASK("cudaDeviceSetMemPool 9", cudaDeviceSetMemPool(9, w.default_pool)),
        STEPS("cudaDeviceSetMemPool another", create(w, on_device());
              const long answer = cudaDeviceSetMemPool(0, w.pool); cudaMemPool_t now = nullptr;
              cudaDeviceGetMemPool(&now, 0); return both(answer, 10, now == w.pool);),
        ASK("cudaMemPoolCreate", create(w, on_device())),
        STEPS("cudaMemPoolCreate NULL out", const Properties p = on_device();
              return cudaMemPoolCreate(nullptr, &p);),
        ASK("cudaMemPoolCreate NULL properties", cudaMemPoolCreate(&w.pool, nullptr)),
        ASK("cudaMemPoolCreate no properties", create(w, Properties{})),
        ASK("cudaMemPoolCreate device 9", create(w, on(cudaMemLocationTypeDevice, 9))),
        ASK("cudaMemPoolCreate device -1", create(w, on(cudaMemLocationTypeDevice, -1))),
        STEPS("cudaMemPoolCreate no type", Properties p = on_device();
              p.allocType = cudaMemAllocationTypeInvalid; return create(w, p);),
        STEPS("cudaMemPoolCreate type 9", Properties p = on_device();
              p.allocType = static_cast<cudaMemAllocationType>(9); return create(w, p);),
        STEPS("cudaMemPoolCreate with descriptors", Properties p = on_device();
              p.handleTypes = cudaMemHandleTypePosixFileDescriptor; return create(w, p);),
        STEPS("cudaMemPoolCreate handles 0x80", Properties p = on_device();
              p.handleTypes = static_cast<cudaMemAllocationHandleType>(0x80); return create(w, p);),
        STEPS("cudaMemPoolCreate limited", Properties p = on_device(); p.maxSize = 64 << 20;
              return create(w, p);),
        ASK("cudaMemPoolCreate host", create(w, on(cudaMemLocationTypeHost, 0))),
        ASK("cudaMemPoolCreate host's node 0", create(w, on(cudaMemLocationTypeHostNuma, 0))),
        ASK("cudaMemPoolCreate host's node 99", create(w, on(cudaMemLocationTypeHostNuma, 99))),
        ASK("cudaMemPoolCreate host's current node",
            create(w, on(cudaMemLocationTypeHostNumaCurrent, 0))),
        ASK("cudaMemPoolCreate location 77",
            create(w, on(static_cast<cudaMemLocationType>(77), 0))),
        ASK("memory of a pool on the host", memory_on(w, cudaMemLocationTypeHost, 0)),
        ASK("memory of a pool on node 0", memory_on(w, cudaMemLocationTypeHostNuma, 0)),
        STEPS("memory of a pool on node 0, type", memory_on(w, cudaMemLocationTypeHostNuma, 0);
              cudaStreamSynchronize(w.stream); cudaPointerAttributes a{};
              const long answer = cudaPointerGetAttributes(&a, w.out);
              return both(answer, 10, a.type);),
        ASK("cudaMemPoolDestroy NULL", cudaMemPoolDestroy(nullptr)),
        ASK("cudaMemPoolDestroy the default", cudaMemPoolDestroy(w.default_pool)),
        STEPS("cudaMemPoolDestroy", create(w, on_device()); return cudaMemPoolDestroy(w.pool);),
        STEPS("cudaMemPoolDestroy twice", create(w, on_device()); cudaMemPoolDestroy(w.pool);
              return cudaMemPoolDestroy(w.pool);),
        STEPS("cudaMemPoolDestroy with memory outside, then cudaFreeAsync", create(w, on_device());
              cudaMallocFromPoolAsync(&w.out, BYTES, w.pool, w.stream);
              const long answer = cudaMemPoolDestroy(w.pool);
              return both(answer, 1000, cudaFreeAsync(w.out, w.stream));),
        STEPS("cudaMemPoolDestroy of the device's, then cudaMallocAsync", create(w, on_device());
              cudaDeviceSetMemPool(0, w.pool); const long answer = cudaMemPoolDestroy(w.pool);
              return both(answer, 1000, cudaMallocAsync(&w.out, BYTES, w.stream));),
        ASK("cudaMemPoolTrimTo NULL", cudaMemPoolTrimTo(nullptr, 0)),
        ASK("cudaMemPoolTrimTo 0", cudaMemPoolTrimTo(w.default_pool, 0)),
        ASK("cudaMemPoolTrimTo huge", cudaMemPoolTrimTo(w.default_pool, HUGE_BYTES)),
  };
}

Questions figures() {
  return {
    ASK("cudaMemPoolSetAttribute 99", set(w.default_pool, 99, 0)),
        ASK("cudaMemPoolSetAttribute 0", set(w.default_pool, 0, 0)),
        ASK("cudaMemPoolSetAttribute NULL pool", set(nullptr, 4, 0)),
        ASK("cudaMemPoolSetAttribute NULL value",
            cudaMemPoolSetAttribute(w.default_pool, cudaMemPoolAttrReleaseThreshold, nullptr)),
        ASK("cudaMemPoolSetAttribute threshold", set(w.default_pool, 4, BYTES)),
        STEPS("cudaMemPoolSetAttribute threshold, read back", set(w.default_pool, 4, BYTES);
              return get(w.default_pool, 4);),
        ASK("cudaMemPoolSetAttribute reserved", set(w.default_pool, 5, 0)),
        ASK("cudaMemPoolSetAttribute most reserved, 0", set(w.default_pool, 6, 0)),
        ASK("cudaMemPoolSetAttribute most reserved, 1", set(w.default_pool, 6, 1)),
        ASK("cudaMemPoolSetAttribute used", set(w.default_pool, 7, 0)),
        ASK("cudaMemPoolSetAttribute most used, 0", set(w.default_pool, 8, 0)),
        ASK("cudaMemPoolSetAttribute most used, 1", set(w.default_pool, 8, 1)),
        STEPS("cudaMemPoolSetAttribute opportunistic, read back", set(w.default_pool, 2, 0);
              return get(w.default_pool, 2);),
        ASK("cudaMemPoolSetAttribute opportunistic, 5", set(w.default_pool, 2, 5)),
        ASK("cudaMemPoolGetAttribute 99", get(w.default_pool, 99)),
        ASK("cudaMemPoolGetAttribute NULL pool", get(nullptr, 4)),
        ASK("cudaMemPoolGetAttribute NULL out",
            cudaMemPoolGetAttribute(w.default_pool, cudaMemPoolAttrReleaseThreshold, nullptr)),
        ASK("cudaMemPoolGetAttribute follows events", get(w.default_pool, 1)),
        ASK("cudaMemPoolGetAttribute opportunistic", get(w.default_pool, 2)),
        ASK("cudaMemPoolGetAttribute internal order", get(w.default_pool, 3)),
        ASK("cudaMemPoolGetAttribute threshold", get(w.default_pool, 4)),
        ASK("cudaMemPoolGetAttribute used, none", get(w.default_pool, 7)),
        STEPS("cudaMemPoolGetAttribute used", cudaMallocAsync(&w.out, BYTES, w.stream);
              return get(w.default_pool, 7);),
        STEPS("cudaMemPoolGetAttribute used, 1 byte", cudaMallocAsync(&w.out, 1, w.stream);
              return get(w.default_pool, 7);),
        STEPS("cudaMemPoolGetAttribute reserved", cudaMallocAsync(&w.out, BYTES, w.stream);
              return get(w.default_pool, 5);),
        STEPS("cudaMemPoolGetAttribute reserved, freed and waited",
              cudaMallocAsync(&w.out, BYTES, w.stream);
              cudaFreeAsync(w.out, w.stream); cudaStreamSynchronize(w.stream);
              return get(w.default_pool, 5);),
        STEPS("cudaMemPoolGetAttribute most used, freed", cudaMallocAsync(&w.out, BYTES, w.stream);
              cudaFreeAsync(w.out, w.stream); cudaStreamSynchronize(w.stream);
              return get(w.default_pool, 8);),
  };
}

Questions access() {
  return {
    ASK("cudaMemPoolSetAccess NULL list", cudaMemPoolSetAccess(w.default_pool, nullptr, 1)),
        ASK("cudaMemPoolSetAccess NULL list of 0",
            cudaMemPoolSetAccess(w.default_pool, nullptr, 0)),
        ASK("cudaMemPoolSetAccess NULL pool", open(nullptr, cudaMemLocationTypeDevice, 0, 3)),
        ASK("cudaMemPoolSetAccess own device",
            open(w.default_pool, cudaMemLocationTypeDevice, 0, 3)),
        ASK("cudaMemPoolSetAccess own device, read",
            open(w.default_pool, cudaMemLocationTypeDevice, 0, 1)),
        ASK("cudaMemPoolSetAccess own device, none",
            open(w.default_pool, cudaMemLocationTypeDevice, 0, 0)),
        ASK("cudaMemPoolSetAccess access 9", open(w.default_pool, cudaMemLocationTypeDevice, 0, 9)),
        ASK("cudaMemPoolSetAccess device 9", open(w.default_pool, cudaMemLocationTypeDevice, 9, 3)),
        ASK("cudaMemPoolSetAccess host", open(w.default_pool, cudaMemLocationTypeHost, 0, 3)),
        ASK("cudaMemPoolGetAccess own device",
            opened(w.default_pool, cudaMemLocationTypeDevice, 0)),
        ASK("cudaMemPoolGetAccess device 9", opened(w.default_pool, cudaMemLocationTypeDevice, 9)),
        ASK("cudaMemPoolGetAccess host", opened(w.default_pool, cudaMemLocationTypeHost, 0)),
        ASK("cudaMemPoolGetAccess NULL pool", opened(nullptr, cudaMemLocationTypeDevice, 0)),
        STEPS("cudaMemPoolGetAccess NULL out", cudaMemLocation place{};
              place.type = cudaMemLocationTypeDevice;
              return cudaMemPoolGetAccess(nullptr, w.default_pool, &place);),
        STEPS("cudaMemPoolGetAccess NULL place", cudaMemAccessFlags access{};
              return cudaMemPoolGetAccess(&access, w.default_pool, nullptr);),
  };
}

Questions memory() {
  return {
    ASK("cudaMallocFromPoolAsync",
        cudaMallocFromPoolAsync(&w.out, BYTES, w.default_pool, w.stream)),
        ASK("cudaMallocFromPoolAsync NULL pool",
            cudaMallocFromPoolAsync(&w.out, BYTES, nullptr, w.stream)),
        ASK("cudaMallocFromPoolAsync NULL out",
            cudaMallocFromPoolAsync(static_cast<void **>(nullptr), BYTES, w.default_pool,
                                    w.stream)),
        STEPS("cudaMallocFromPoolAsync 0 bytes",
              const long answer = cudaMallocFromPoolAsync(&w.out, 0, w.default_pool, w.stream);
              return both(answer, 10, w.out == nullptr);),
        ASK("cudaMallocFromPoolAsync huge",
            cudaMallocFromPoolAsync(&w.out, HUGE_BYTES, w.default_pool, w.stream)),
        STEPS("cudaMallocFromPoolAsync above the limit", Properties p = on_device();
              p.maxSize = 64 << 20; create(w, p);
              return cudaMallocFromPoolAsync(&w.out, 256 << 20, w.pool, w.stream);),
        STEPS("cudaMallocFromPoolAsync destroyed", create(w, on_device());
              cudaMemPoolDestroy(w.pool);
              return cudaMallocFromPoolAsync(&w.out, BYTES, w.pool, w.stream);),
        ASK("cudaMallocFromPoolAsync default stream",
            cudaMallocFromPoolAsync(&w.out, BYTES, w.default_pool, nullptr)),
        ASK("cudaMemPoolExportPointer NULL out", cudaMemPoolExportPointer(nullptr, w.device)),
        STEPS("cudaMemPoolExportToShareableHandle of the default", int file = -1;
              return cudaMemPoolExportToShareableHandle(&file, w.default_pool,
                                                        cudaMemHandleTypePosixFileDescriptor, 0);),
  };
}

} // namespace

Questions pools() {
  Questions all = making();
  for (const Questions &more : {figures(), access(), memory()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}
