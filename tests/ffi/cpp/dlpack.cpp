// Tensors of DLPack in C++. The C interface's own tests are in tests/ffi/c/dlpack*.c.

#include "check.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace {

/// The beginning of the struct, as the specification of DLPack has it.
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
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack_read_only<int>(rig.device, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  seen(managed).deleter(managed);
}

void read_only_tensors_are_sources(rig& rig) {
  auto host = rig.pool.alloc<float>(6);
  const float* const address = host.address();
  host.write()[5] = 2.5f;
  pinlane::tensor_layout layout;
  layout.page_locked = layout.read_only = true;
  auto* const managed = pinlane::into_dlpack(std::move(host), layout);
  auto gpu = rig.device.alloc<float>(6);
  {
    const auto source = pinlane::from_dlpack_read_only<float>(rig.device, managed);
    using part = decltype(source.slice());
    static_assert(std::is_const_v<typename part::element_type>, "a source only");
    EXPECT(source.size() == 6 && source.read().data() == address);
    rig.stream.upload(source, gpu);
  } // the tensor is deleted, after the copy
  auto back = rig.pool.alloc<float>(6);
  rig.stream.download(gpu, back);
  EXPECT(back.read()[5] == 2.5f);
}

/// Whether a tensor is refused as elements of T. It then stays the caller's.
template <class T>
bool refuses(rig& rig, DLManagedTensorVersioned* managed) {
  return thrown_by([&] { (void)pinlane::from_dlpack<T>(rig.device, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE;
}

struct alignas(8) pair_of_floats {
  float first, second;
};

void tensors_have_the_type_that_is_asked_for(rig& rig) {
  pinlane::tensor_layout layout;
  layout.page_locked = true;
  auto* managed = pinlane::into_dlpack(rig.pool.alloc<float>(6), layout);
  EXPECT(refuses<double>(rig, managed) && refuses<std::int32_t>(rig, managed));
  EXPECT(refuses<std::uint8_t>(rig, managed) && refuses<pair_of_floats>(rig, managed));
  seen(managed).lanes = 2;
  seen(managed).shape[0] = 3;
  EXPECT(refuses<float>(rig, managed) && refuses<double>(rig, managed));
  EXPECT(pinlane::from_dlpack<pair_of_floats>(rig.device, managed).size() == 3);

  managed = pinlane::into_dlpack(rig.pool.alloc<float>(6), layout);
  EXPECT(pinlane::from_dlpack<std::byte>(rig.device, managed).size() == 24);
  managed = pinlane::into_dlpack(rig.pool.alloc<bool>(6), layout);
  EXPECT(refuses<std::uint8_t>(rig, managed));
  EXPECT(pinlane::from_dlpack<bool>(rig.device, managed).size() == 6);

  // 7 elements of 4 bits are 4 bytes, and C++ has no such element type.
  managed = pinlane::into_dlpack(rig.pool.alloc<std::uint8_t>(8), layout);
  seen(managed).bits = 4;
  seen(managed).shape[0] = 7;
  EXPECT(refuses<std::uint8_t>(rig, managed));
  EXPECT(pinlane::from_dlpack<std::byte>(rig.device, managed).size() == 4);
  EXPECT(rig.pool.stats().live_bytes == 0);
}

void tensors_are_aligned_for_their_type(rig& rig) {
  pinlane::tensor_layout layout;
  layout.page_locked = true;
  layout.shape = {2};
  auto* managed = pinlane::into_dlpack(rig.pool.alloc<float>(6), layout);
  seen(managed).byte_offset = 2;
  EXPECT(refuses<float>(rig, managed));
  EXPECT(pinlane::from_dlpack<std::byte>(rig.device, managed).size() == 8);

  auto gpu = rig.device.alloc<std::uint32_t>(8);
  managed = pinlane::into_dlpack(std::move(gpu), rig.stream, layout);
  seen(managed).byte_offset = 2;
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack<std::uint32_t>(rig.stream, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack<float>(rig.stream, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  seen(managed).byte_offset = 4;
  EXPECT(pinlane::from_dlpack<std::uint32_t>(rig.stream, managed).size() == 2);

  // A handle with misaligned memory is not adopted either.
  alignas(8) unsigned char own[64];
  pinlane_buffer* handle = nullptr;
  EXPECT(pinlane_buffer_register(rig.device.get(), own + 4, 32, &handle) == PINLANE_STATUS_OK);
  EXPECT(thrown_by([&] { (void)pinlane::pinned_buffer<double>::adopt(handle); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(pinlane::pinned_buffer<float>::adopt(handle).size() == 8);
}

} // namespace

int main() {
  rig rig;
  elements_have_their_types(rig);
  host_memory_goes_and_comes_back(rig);
  device_memory_goes_and_comes_back(rig);
  what_is_refused_stays(rig);
  read_only_tensors_are_sources(rig);
  tensors_have_the_type_that_is_asked_for(rig);
  tensors_are_aligned_for_their_type(rig);
  return verdict("tensors in C++");
}
