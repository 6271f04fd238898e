/// @file
/// Buffers as tensors of DLPack, and tensors of other libraries as buffers, without a copy. Needs
/// no header of DLPack.

#ifndef PINLANE_CPP_DLPACK_HPP
#define PINLANE_CPP_DLPACK_HPP

#include "device.hpp"
#include "stream.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// What a tensor of a buffer looks like.
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
  /// Whether host memory is called page-locked (`kDLCUDAHost`). Fewer libraries accept that.
  bool page_locked = false;
};

namespace detail {

template <class T>
pinlane_dlpack_options raw(const tensor_layout& layout, pinlane_stream* consumer) {
  static_assert(std::is_arithmetic_v<T>, "DLPack has names for numbers");
  if (!layout.strides.empty() && layout.strides.size() != layout.shape.size()) {
    fail(set_error(PINLANE_STATUS_INVALID_VALUE, "into_dlpack: pass one stride for each length"));
  }
  pinlane_dlpack_options raw = PINLANE_DLPACK_OPTIONS_INIT;
  raw.code = std::is_same_v<T, bool>       ? 6
             : std::is_floating_point_v<T> ? 2
             : std::is_unsigned_v<T>       ? 1
                                           : 0;
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

template <class Export, class Buffer>
DLManagedTensorVersioned* exported(Export function, Buffer& buffer,
                                   const pinlane_dlpack_options& options) {
  DLManagedTensorVersioned* tensor = nullptr;
  check(function(buffer.get(), &options, &tensor));
  static_cast<void>(buffer.release()); // the handle is freed
  return tensor;
}

} // namespace detail

/// Gives a buffer to another library as a tensor: whoever has the tensor calls its deleter, which
/// gives the memory back to the pool. Blocks until every pending device use of the buffer is
/// complete. If it throws, the buffer is as it was.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(pinned_buffer<T>&& buffer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, nullptr);
  return detail::exported(pinlane_buffer_into_dlpack, buffer, options);
}

/// The same, for a library whose own device work on `consumer` uses the memory: it is reused only
/// when everything is complete that the stream had been given when the deleter was called.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(pinned_buffer<T>&& buffer, stream_ref consumer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, consumer.get());
  return detail::exported(pinlane_buffer_into_dlpack, buffer, options);
}

/// Gives a buffer in device memory to another library, which uses it on `consumer`: later work of
/// that stream waits for every pending use. The deleter frees the memory behind everything that the
/// stream has been given. Does not block.
template <class T>
[[nodiscard]] DLManagedTensorVersioned* into_dlpack(device_buffer<T>&& buffer, stream_ref consumer,
                                                    const tensor_layout& layout = {}) {
  const auto options = detail::raw<T>(layout, consumer.get());
  return detail::exported(pinlane_device_buffer_into_dlpack, buffer, options);
}

/// Makes a buffer of a tensor in host memory, which it owns. Memory that is not page-locked is
/// page-locked in place. Destroying the buffer blocks until the device is done with the memory,
/// then the tensor's deleter is called. If it throws, the tensor is still yours, unless the bytes
/// are no whole number of elements, or not aligned for them: then it has been deleted.
template <class T>
[[nodiscard]] pinned_buffer<T> from_dlpack(const device& device, DLManagedTensorVersioned* tensor) {
  pinlane_buffer* handle = nullptr;
  detail::check(pinlane_buffer_from_dlpack(device.get(), tensor, &handle));
  pinned_buffer<unsigned char> bytes = pinned_buffer<unsigned char>::adopt(handle);
  auto elements = pinned_buffer<T>::adopt(bytes.get());
  static_cast<void>(bytes.release());
  return elements;
}

/// Makes a buffer of a tensor in the memory of the stream's device, as above. Its uses wait for
/// everything that `producer` has been given: name the stream that the producer was told.
template <class T>
[[nodiscard]] device_buffer<T> from_dlpack(stream_ref producer, DLManagedTensorVersioned* tensor) {
  pinlane_device_buffer* handle = nullptr;
  detail::check(pinlane_device_buffer_from_dlpack(producer.get(), tensor, &handle));
  device_buffer<unsigned char> bytes = device_buffer<unsigned char>::adopt(handle);
  auto elements = device_buffer<T>::adopt(bytes.get());
  static_cast<void>(bytes.release());
  return elements;
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_DLPACK_HPP
