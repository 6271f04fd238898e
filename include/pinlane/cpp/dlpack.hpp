/// @file
/// Buffers as tensors of DLPack, and tensors of other libraries as buffers, without a copy. Needs
/// no header of DLPack.

#ifndef PINLANE_CPP_DLPACK_HPP
#define PINLANE_CPP_DLPACK_HPP

#include "device.hpp"
#include "stream.hpp"
#include "strided.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The layout of a tensor of a buffer.
struct tensor_layout {
  /// The length of each dimension; by default one dimension, as long as the buffer.
  std::vector<std::int64_t> shape = {};
  /// The distance between neighbours in each dimension, in elements; by default no gaps, and the
  /// last dimension is the innermost.
  std::vector<std::int64_t> strides = {};
  /// The first element, counted in elements.
  std::size_t offset = 0;
  /// Whether consumers must not write.
  bool read_only = false;
  /// Whether host memory is exported as page-locked (`kDLCUDAHost`). Fewer libraries accept that.
  bool page_locked = false;
};

namespace detail {

/// The code of T's elements, if DLPack has one.
template <class T>
constexpr std::uint8_t type_code() noexcept {
  return std::is_same_v<T, bool>       ? 6
         : std::is_floating_point_v<T> ? 2
         : std::is_unsigned_v<T>       ? 1
                                       : 0;
}

template <class T>
pinlane_dlpack_options raw(const tensor_layout& layout, pinlane_stream* consumer) {
  static_assert(std::is_arithmetic_v<T>, "DLPack has names for numbers");
  if (!layout.strides.empty() && layout.strides.size() != layout.shape.size()) {
    fail(set_error(PINLANE_STATUS_INVALID_VALUE, "into_dlpack: pass one stride for each length"));
  }
  pinlane_dlpack_options raw = PINLANE_DLPACK_OPTIONS_INIT;
  raw.code = type_code<T>();
  raw.bits = 8 * sizeof(T);
  raw.shape = layout.shape.empty() ? nullptr : layout.shape.data();
  raw.strides = layout.strides.empty() ? nullptr : layout.strides.data();
  raw.ndim = static_cast<std::int32_t>(layout.shape.size());
  raw.offset_bytes = in_bytes(layout.offset, sizeof(T));
  raw.device_type = layout.page_locked ? PINLANE_DLPACK_CUDA_HOST : PINLANE_DLPACK_CPU;
  raw.flags = layout.read_only ? PINLANE_DLPACK_READ_ONLY : 0u;
  raw.stream = consumer;
  return raw;
}

/// A member of a tensor's struct, at its offset in the ABI of DLPack 1.
template <class Member>
Member member_at(const DLManagedTensorVersioned* tensor, std::size_t offset) noexcept {
  Member member;
  std::memcpy(&member, reinterpret_cast<const unsigned char*>(tensor) + offset, sizeof member);
  return member;
}

/// Refuses a tensor whose elements are not of type T, or not aligned for it.
template <class T>
void check_elements(const DLManagedTensorVersioned* tensor) {
  // The C interface refuses these itself. The layout of other versions is unknown.
  if (tensor == nullptr || member_at<std::uint32_t>(tensor, 0) != 1) {
    return;
  }
  const int code = member_at<std::uint8_t>(tensor, 52);
  const int bits = member_at<std::uint8_t>(tensor, 53);
  const int lanes = member_at<std::uint16_t>(tensor, 54);
  const auto data = member_at<std::uintptr_t>(tensor, 32);
  bool is_same = std::is_same_v<T, std::byte>;
  if constexpr (std::is_arithmetic_v<T>) {
    is_same = code == type_code<T>() && bits == 8 * int{sizeof(T)} && lanes == 1;
  } else if constexpr (!std::is_same_v<T, std::byte>) {
    is_same = static_cast<std::size_t>(bits) * static_cast<std::size_t>(lanes) == 8 * sizeof(T);
  }
  if (!is_same) {
    fail(PINLANE_STATUS_INVALID_VALUE,
         "from_dlpack: the tensor's elements, of code " + std::to_string(code) + ", " +
             std::to_string(bits) + " bits and " + std::to_string(lanes) +
             " lanes, are not of the type that was asked for; std::byte takes all types");
  }
  // Only the low bits count, so the sum may wrap.
  const std::uint64_t first = data + member_at<std::uint64_t>(tensor, 72);
  if (data != 0 && first % alignof(T) != 0) {
    fail(PINLANE_STATUS_INVALID_VALUE, "from_dlpack: the tensor's elements are not aligned to " +
                                           std::to_string(alignof(T)) +
                                           " bytes; import them as std::byte, or copy them");
  }
}

template <class Export, class Buffer>
DLManagedTensorVersioned* exported(Export function, Buffer& buffer,
                                   const pinlane_dlpack_options& options) {
  DLManagedTensorVersioned* tensor = nullptr;
  check(function(buffer.get(), &options, &tensor));
  static_cast<void>(buffer.release()); // the handle is freed
  return tensor;
}

/// An imported buffer, as one of elements of T.
template <class T, template <class> class Buffer, class Handle>
Buffer<T> imported(Handle* handle) {
  Buffer<unsigned char> bytes = Buffer<unsigned char>::adopt(handle);
  auto elements = Buffer<T>::adopt(bytes.get());
  static_cast<void>(bytes.release());
  return elements;
}

/// The same and its rows, which are those of a tensor of elements of T.
template <class T, template <class> class Buffer, class Handle>
std::pair<Buffer<T>, strides> imported(Handle* handle, const pinlane_strided& rows) {
  const std::size_t size = sizeof(T);
  return {imported<T, Buffer>(handle), strides(rows.row_bytes / size, rows.rows, rows.pitch / size)
                                           .planes(rows.planes, rows.plane_pitch / size)};
}

} // namespace detail

/// Gives a buffer to another library as a tensor. The tensor's holder calls its deleter, which
/// gives the memory back to the pool. Blocks until every pending device use of the buffer is
/// complete. If it throws, the buffer is unchanged.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(pinned_buffer<T>&& buffer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, nullptr);
  return detail::exported(pinlane_buffer_into_dlpack, buffer, options);
}

/// The same, for a library whose own device work on `consumer` uses the memory: it is reused only
/// after all work that was on the stream when the deleter was called.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(pinned_buffer<T>&& buffer, stream_ref consumer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, consumer.get());
  return detail::exported(pinlane_buffer_into_dlpack, buffer, options);
}

/// Gives a buffer in device memory to another library, which uses it on `consumer`: later work of
/// that stream waits for every pending use. The deleter frees the memory after all work that is on
/// the stream by then. Does not block.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(device_buffer<T>&& buffer, stream_ref consumer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, consumer.get());
  return detail::exported(pinlane_device_buffer_into_dlpack, buffer, options);
}

/// Makes a buffer of a tensor in host memory, which it owns. Memory that is not page-locked is
/// page-locked in place. Destroying the buffer blocks until the device is done with the memory,
/// then the tensor's deleter is called.
///
/// The tensor's type must be that of T, and its elements aligned for T: code, bits and one lane if
/// T is a number; as many bits if it is another type, such as a complex number or a vector. A
/// buffer of `std::byte` takes tensors of all types. If it throws, you keep the tensor.
template <class T>
[[nodiscard]] pinned_buffer<T> from_dlpack(const device& device, DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_buffer* handle = nullptr;
  detail::check(pinlane_buffer_from_dlpack(device.get(), tensor, &handle));
  return detail::imported<T, pinned_buffer>(handle);
}

/// Makes a buffer of a tensor in host memory that is only read: a source of uploads. The tensor may
/// have the flag of one that is read-only. Otherwise as above.
template <class T>
[[nodiscard]] read_only_buffer<T> from_dlpack_read_only(const device& device,
                                                        DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_buffer* handle = nullptr;
  detail::check(pinlane_buffer_from_dlpack_read_only(device.get(), tensor, &handle));
  return detail::imported<T, read_only_buffer>(handle);
}

/// Makes a buffer of a tensor in the memory of the stream's device, as above. Its uses wait for all
/// work on `producer`, the stream that you passed to the tensor's producer.
template <class T>
[[nodiscard]] device_buffer<T> from_dlpack(stream_ref producer, DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_device_buffer* handle = nullptr;
  detail::check(pinlane_device_buffer_from_dlpack(producer.get(), tensor, &handle));
  return detail::imported<T, device_buffer>(handle);
}

/// As `from_dlpack`, of a tensor that may have gaps: a buffer from its first element to its last
/// one, and where the elements lie in it, in their order. A tensor without gaps is one row.
///
/// Contiguous dimensions count as one. If neighbours in the last dimension follow each other, they
/// are a row, and there may be two other dimensions. If they lie apart, as in one column of a
/// matrix, each element is a row, and there may be two dimensions. Until the tensor is deleted, no
/// other code may use the gaps either.
///
/// @code
///   auto [columns, rows] = pinlane::from_dlpack_strided<float>(device, tensor);
///   auto gpu = device.alloc<float>(rows.row() * rows.rows() * rows.planes());
///   stream.upload_strided(columns, rows, gpu, pinlane::no_gaps);
/// @endcode
template <class T>
[[nodiscard]] std::pair<pinned_buffer<T>, strides>
from_dlpack_strided(const device& device, DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_buffer* handle = nullptr;
  pinlane_strided rows{};
  detail::check(pinlane_buffer_from_dlpack_strided(device.get(), tensor, &handle, &rows));
  return detail::imported<T, pinned_buffer>(handle, rows);
}

/// As `from_dlpack_read_only`, of a tensor that may have gaps, as above.
template <class T>
[[nodiscard]] std::pair<read_only_buffer<T>, strides>
from_dlpack_read_only_strided(const device& device, DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_buffer* handle = nullptr;
  pinlane_strided rows{};
  detail::check(pinlane_buffer_from_dlpack_read_only_strided(device.get(), tensor, &handle, &rows));
  return detail::imported<T, read_only_buffer>(handle, rows);
}

/// Makes a buffer of a tensor in the memory of the stream's device that may have gaps, as above.
template <class T>
[[nodiscard]] std::pair<device_buffer<T>, strides>
from_dlpack_strided(stream_ref producer, DLManagedTensorVersioned* tensor) {
  detail::check_elements<T>(tensor);
  pinlane_device_buffer* handle = nullptr;
  pinlane_strided rows{};
  detail::check(pinlane_device_buffer_from_dlpack_strided(producer.get(), tensor, &handle, &rows));
  return detail::imported<T, device_buffer>(handle, rows);
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_DLPACK_HPP
