// Tensors of DLPack in C++. The C interface's own tests are in tests/ffi/c/dlpack*.c.

#include "check.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Rows of 3 of 5 numbers, 0 to 19, in page-locked memory.
DLManagedTensorVersioned* columns(rig& rig, bool read_only) {
  auto host = rig.pool.alloc<std::int32_t>(20);
  std::int32_t next = 0;
  for (std::int32_t& each : host.write()) {
    each = next++;
  }
  pinlane::tensor_layout layout;
  layout.shape = {4, 3};
  layout.strides = {5, 1};
  layout.offset = 1;
  layout.page_locked = true;
  layout.read_only = read_only;
  return pinlane::into_dlpack(std::move(host), layout);
}

/// Whether these are the numbers of `columns`.
bool are_columns(const std::vector<std::int32_t>& found) {
  return found == std::vector<std::int32_t>{1, 2, 3, 6, 7, 8, 11, 12, 13, 16, 17, 18};
}

bool has_strides(const pinlane::strides& it, std::size_t row, std::size_t rows, std::size_t pitch) {
  return it.has_rows() && it.row() == row && it.rows() == rows && it.pitch() == pitch &&
         it.planes() == 1;
}

void tensors_with_gaps_are_rows(rig& rig) {
  auto gpu = rig.device.alloc<std::int32_t>(12);
  std::vector<std::int32_t> found(12);
  {
    auto [host, rows] = pinlane::from_dlpack_strided<std::int32_t>(rig.device, columns(rig, false));
    static_assert(std::is_same_v<decltype(host), pinlane::pinned_buffer<std::int32_t>>);
    EXPECT(host.size() == 18 && has_strides(rows, 3, 4, 5));
    rig.stream.upload_strided(host, rows, gpu, pinlane::no_gaps);
    rig.stream.download(gpu, found);
    EXPECT(are_columns(found));
    // The other way: what lies between the rows stays.
    rig.stream.fill(gpu, 7);
    rig.stream.download_strided(gpu, pinlane::no_gaps, host, rows);
    EXPECT(host.read()[2] == 7 && host.read()[3] == 4 && host.read()[5] == 7);
  }
  {
    auto [host, rows] =
        pinlane::from_dlpack_read_only_strided<std::int32_t>(rig.device, columns(rig, true));
    static_assert(std::is_same_v<decltype(host), pinlane::read_only_buffer<std::int32_t>>);
    EXPECT(host.size() == 18 && has_strides(rows, 3, 4, 5));
    rig.stream.upload_strided(host, rows, gpu, pinlane::no_gaps);
    rig.stream.download(gpu, found);
    EXPECT(are_columns(found));
  }
  EXPECT(rig.pool.stats().live_bytes == 0); // both tensors are deleted

  // One column: a tensor of one dimension, whose elements lie apart.
  auto* const column = columns(rig, false);
  seen(column).ndim = 1;
  seen(column).strides[0] = 5;
  {
    auto [host, elements] = pinlane::from_dlpack_strided<std::int32_t>(rig.device, column);
    EXPECT(host.size() == 16 && has_strides(elements, 1, 4, 5));
    rig.stream.upload_strided(host, elements, gpu.slice(0, 4), pinlane::no_gaps);
    rig.stream.download(gpu, found);
    EXPECT(found[0] == 1 && found[1] == 6 && found[2] == 11 && found[3] == 16 && found[4] == 7);
  }

  auto [bytes, rows] = pinlane::from_dlpack_strided<std::byte>(rig.device, columns(rig, false));
  EXPECT(bytes.size() == 72 && has_strides(rows, 12, 4, 20));

  // Planes, on the device.
  auto volume = rig.device.alloc<double>(60);
  rig.stream.upload(std::vector<double>(60, 2.5), volume);
  pinlane::tensor_layout layout;
  layout.shape = {2, 3, 4};
  layout.strides = {30, 8, 1};
  auto* const managed = pinlane::into_dlpack(std::move(volume), rig.stream, layout);
  auto [box, planes] = pinlane::from_dlpack_strided<double>(rig.stream, managed);
  static_assert(std::is_same_v<decltype(box), pinlane::device_buffer<double>>);
  EXPECT(box.size() == 50 && planes.row() == 4 && planes.rows() == 3 && planes.pitch() == 8);
  EXPECT(planes.planes() == 2 && planes.plane_pitch() == 30);
  std::vector<double> back(planes.row() * planes.rows() * planes.planes());
  rig.stream.download_strided(box, planes, back, pinlane::no_gaps);
  EXPECT(back == std::vector<double>(24, 2.5));

  // Without gaps, and without elements.
  layout = {};
  layout.page_locked = true;
  auto whole = pinlane::from_dlpack_strided<float>(
      rig.device, pinlane::into_dlpack(rig.pool.alloc<float>(6), layout));
  EXPECT(whole.first.size() == 6 && has_strides(whole.second, 6, 1, 6));
  layout.shape = {0};
  auto none = pinlane::from_dlpack_strided<float>(
      rig.device, pinlane::into_dlpack(rig.pool.alloc<float>(6), layout));
  EXPECT(none.first.size() == 0 && has_strides(none.second, 0, 1, 0));
  static_assert(!pinlane::strides(pinlane::no_gaps).has_rows());
}

void tensors_with_other_gaps_stay(rig& rig) {
  const auto refused = [&](DLManagedTensorVersioned* managed) {
    const auto as_numbers = [&] {
      (void)pinlane::from_dlpack_strided<std::int32_t>(rig.device, managed);
    };
    const auto to_read = [&] {
      (void)pinlane::from_dlpack_read_only_strided<std::int32_t>(rig.device, managed);
    };
    return thrown_by(as_numbers) == PINLANE_STATUS_INVALID_VALUE &&
           thrown_by(to_read) == PINLANE_STATUS_INVALID_VALUE;
  };
  auto* const managed = columns(rig, false);
  for (const std::int64_t stride : {-5, 0, 1, 2}) { // backwards, and rows that overlap
    seen(managed).strides[0] = stride;
    EXPECT(refused(managed));
  }
  seen(managed).strides[0] = 5;
  seen(managed).code = 2; // of another type
  EXPECT(refused(managed) && refused(nullptr));
  seen(managed).code = 0;
  EXPECT(thrown_by([&] { (void)pinlane::from_dlpack<std::int32_t>(rig.device, managed); }) ==
         PINLANE_STATUS_INVALID_VALUE);
  EXPECT(pinlane::from_dlpack_strided<std::int32_t>(rig.device, managed).first.size() == 18);
  EXPECT(rig.pool.stats().live_bytes == 0);
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
  tensors_with_gaps_are_rows(rig);
  tensors_with_other_gaps_stay(rig);
  tensors_have_the_type_that_is_asked_for(rig);
  tensors_are_aligned_for_their_type(rig);
  return verdict("tensors in C++");
}
