// Tensors of DLPack in C++. The C interface's own tests are in tests/ffi/c/dlpack*.c.

#include "check.hpp"

#include <cstdint>
#include <utility>

namespace {

/// The beginning of the struct, as the specification of DLPack 1.0 has it.
struct tensor {
  std::uint32_t version[2];
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};

tensor& seen(DLManagedTensorVersioned* managed) { return *reinterpret_cast<tensor*>(managed); }

template <class T>
bool has_type(rig& rig, int code, int bits) {
  auto* const managed = pinlane::into_dlpack(rig.pool.alloc<T>(6));
  const bool holds = seen(managed).code == code && seen(managed).bits == bits &&
                     seen(managed).ndim == 1 && seen(managed).shape[0] == 6;
  seen(managed).deleter(managed);
  return holds;
}

void elements_have_their_types(rig& rig) {
  EXPECT(has_type<float>(rig, 2, 32) && has_type<double>(rig, 2, 64));
  EXPECT(has_type<std::int8_t>(rig, 0, 8) && has_type<std::uint64_t>(rig, 1, 64));
  EXPECT(has_type<bool>(rig, 6, 8));
}

void host_memory_goes_and_comes_back(rig& rig) {
  auto host = rig.pool.alloc<float>(24);
  float* const address = host.address();
  pinlane::tensor_layout layout;
  layout.shape = {4, 5};
  layout.offset = 4;
  layout.page_locked = true;
  auto* const managed = pinlane::into_dlpack(std::move(host), rig.stream, layout);
  EXPECT(!host && host.empty());
  EXPECT(seen(managed).data == address && seen(managed).byte_offset == 16);
  EXPECT(seen(managed).device_type == 3 && seen(managed).strides[0] == 5);
  auto back = pinlane::from_dlpack<float>(rig.device, managed);
  EXPECT(back.size() == 20 && back.address() == address + 4);
  back.write()[19] = 2.0f;
  back = {};
  EXPECT(rig.pool.stats().live_bytes == 0);
}

void device_memory_goes_and_comes_back(rig& rig) {
  auto gpu = rig.device.alloc<std::uint32_t>(64);
  rig.stream.fill(gpu, 7u);
  const pinlane::stream consumer(rig.device), later(rig.device);
  auto* const managed = pinlane::into_dlpack(std::move(gpu), consumer);
  EXPECT(!gpu && seen(managed).device_type == 12);
  auto back = pinlane::from_dlpack<std::uint32_t>(consumer, managed);
  auto host = rig.pool.alloc<std::uint32_t>(64);
  later.download(back, host);
  EXPECT(host.read()[63] == 7);
}

void what_is_refused_stays(rig& rig) {
  auto host = rig.pool.alloc<float>(6);
  pinlane::tensor_layout layout;
  layout.shape = {7};
  EXPECT(thrown_by([&] { (void)pinlane::into_dlpack(std::move(host), layout); }) ==
         PINLANE_STATUS_OUT_OF_RANGE);
  layout.strides = {1, 1};
  EXPECT(thrown_by([&] { (void)pinlane::into_dlpack(std::move(host), layout); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(host.size() == 6 && host.write().size() == 6);

  layout = {};
  layout.page_locked = layout.read_only = true;
  auto* managed = pinlane::into_dlpack(std::move(host), layout);
  EXPECT(seen(managed).flags == 1);
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack<float>(rig.device, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  seen(managed).deleter(managed);

  layout.read_only = false; // 3 floats are no whole number of doubles
  managed = pinlane::into_dlpack(rig.pool.alloc<float>(3), layout);
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack<double>(rig.device, managed); }) ==
         PINLANE_STATUS_LENGTH_MISMATCH);
  EXPECT(rig.pool.stats().live_bytes == 0);
}

} // namespace

int main() {
  rig rig;
  elements_have_their_types(rig);
  host_memory_goes_and_comes_back(rig);
  device_memory_goes_and_comes_back(rig);
  what_is_refused_stays(rig);
  return verdict("tensors in C++");
}
