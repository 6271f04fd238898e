/// @file
/// Streams, which move data.

#ifndef PINLANE_CPP_STREAM_HPP
#define PINLANE_CPP_STREAM_HPP

#include "batch.hpp"
#include "device.hpp"
#include "file.hpp"
#include "foreign.hpp"
#include "pairs.hpp"
#include "parts.hpp"
#include "pool.hpp"
#include "rows.hpp"
#include "sides.hpp"
#include "strided.hpp"
#include "ticket.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

namespace detail {

/// The operations of a stream. `Self` is `stream` or `stream_ref`.
///
/// The device executes operations in the order of the stream, and after conflicting uses of their
/// buffers on other streams. They do not block, except with pageable memory. Both sides of a copy
/// have equal length. A side is a buffer or a slice of one; on the host it may also be pageable
/// memory: anything that `std::data` and `std::size` take, such as a vector, an array, or a
/// `pinlane::span` of a pointer and a size. A container in memory of a pool, by a
/// `pinned_resource`, is copied at the full speed of the link, and the call returns when the copy
/// is complete. Named as a `pinned_span` it is copied like a buffer, and the call returns at once.
///
/// If a call fails before it enqueues anything, nothing has changed. After an error of CUDA, the
/// contents of the destination are unspecified. The ticket may be dropped.
template <class Self>
class stream_operations : public batch_operations<Self>,
                          public file_operations<Self>,
                          public foreign_operations<Self>,
                          public pair_operations<Self>,
                          public part_operations<Self>,
                          public row_operations<Self>,
                          public strided_operations<Self> {
public:
  /// Copies `source`, in page-locked or pageable memory, to `destination`, in device memory. A
  /// source in pageable memory may be reused when the call returns. A small one, of at most 64 KiB
  /// unless `device::set_staging` says otherwise, does not block. A larger one blocks until nearly
  /// all of it is on the device. A `pinned_span` must not be written before the ticket is complete.
  template <class Source, class Destination>
  ticket upload(const Source& source, Destination&& destination) const {
    check_lengths(size_of(source), destination.size());
    return with_ticket(
        [&](pinlane_ticket** out) { return enqueue_upload(source, destination.slice(), out); });
  }
  template <class Source, class Destination>
  [[nodiscard]] pinlane_status upload(std::nothrow_t, const Source& source,
                                      Destination&& destination) const noexcept {
    return enqueue_upload(source, destination.slice(), nullptr);
  }

  /// Copies `source`, in device memory, to `destination`, in page-locked memory. `read` of a
  /// `pinned_buffer` waits for the copy; for a `pinned_span` wait for the ticket.
  template <class Source, class Destination, if_tracked<Destination> = 0>
  ticket download(const Source& source, Destination&& destination) const {
    check_lengths(source.size(), destination.size());
    return with_ticket(
        [&](pinlane_ticket** out) { return enqueue_download(source.slice(), destination, out); });
  }
  template <class Source, class Destination, if_tracked<Destination> = 0>
  [[nodiscard]] pinlane_status download(std::nothrow_t, const Source& source,
                                        Destination&& destination) const noexcept {
    return enqueue_download(source.slice(), destination, nullptr);
  }

  /// Copies `source`, in device memory, to `destination`, in pageable memory. Returns when
  /// everything has arrived.
  template <class Source, class Destination, if_pageable<Destination> = 0>
  void download(const Source& source, Destination&& destination) const {
    check_lengths(source.size(), std::size(destination));
    check(download(std::nothrow, source, destination));
  }
  template <class Source, class Destination, if_pageable<Destination> = 0>
  [[nodiscard]] pinlane_status download(std::nothrow_t, const Source& source,
                                        Destination&& destination) const noexcept {
    const auto from = source.slice();
    check_elements<decltype(from), Destination>();
    check_writable<Destination>();
    if (from.size() != std::size(destination)) {
      return lengths_differ(from.size(), std::size(destination));
    }
    return pinlane_device_buffer_download_slice(self(), from.get(), from.offset_bytes(),
                                                std::data(destination), from.size_bytes());
  }

  /// Copies between two device buffers, of one device or of two. This stream belongs to one of
  /// them.
  template <class Source, class Destination>
  ticket copy(const Source& source, Destination&& destination) const {
    return enqueue(pinlane_device_buffer_copy, source.slice(), destination.slice());
  }
  template <class Source, class Destination>
  [[nodiscard]] pinlane_status copy(std::nothrow_t, const Source& source,
                                    Destination&& destination) const noexcept {
    return enqueue(pinlane_device_buffer_copy, source.slice(), destination.slice(), nullptr);
  }

  /// Copies `source`, in page-locked or pageable memory, to your own device memory at
  /// `destination`, which must stay allocated until the copy is complete. You order other work on
  /// that memory.
  template <class Source>
  ticket upload_to(const Source& source, void* destination) const {
    return with_ticket([&](pinlane_ticket** out) {
      if constexpr (is_pageable<Source>) {
        return pinlane_upload_slice(self(), std::data(source), destination, pageable_bytes(source),
                                    out);
      } else if constexpr (is_pinned_span<Source>) {
        return pinlane_upload_pinned(self(), source.address(), destination, source.size_bytes(),
                                     out);
      } else {
        const auto from = source.slice();
        return pinlane_upload(self(), from.get(), from.offset_bytes(), destination,
                              from.size_bytes(), out);
      }
    });
  }

  /// Copies your own device memory at `source` to `destination`, in page-locked memory, as
  /// `upload_to`.
  template <class Destination, if_tracked<Destination> = 0>
  ticket download_from(const void* source, Destination&& destination) const {
    return with_ticket([&](pinlane_ticket** out) {
      if constexpr (is_pinned_span<Destination>) {
        check_writable<Destination>();
        return pinlane_download_pinned(self(), source, destination.address(),
                                       destination.size_bytes(), out);
      } else {
        const auto to = writable(destination);
        return pinlane_download(self(), source, to.get(), to.offset_bytes(), to.size_bytes(), out);
      }
    });
  }

  /// Copies your own device memory at `source` to `destination`, in pageable memory. Returns when
  /// everything has arrived.
  template <class Destination, if_pageable<Destination> = 0>
  void download_from(const void* source, Destination&& destination) const {
    check_elements<void, Destination>();
    check_writable<Destination>();
    check(pinlane_download_slice(self(), source, std::data(destination),
                                 pageable_bytes(destination)));
  }

  /// Sets every element of `destination`, in device memory, to `value`, of at most 64 bytes.
  template <class Destination>
  ticket fill(Destination&& destination, const element_of<Destination>& value) const {
    const auto to = writable(destination);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_device_buffer_fill(self(), to.get(), to.offset_bytes(), to.size_bytes(),
                                        &value, sizeof(value), out);
    });
  }

  /// Writes the checksum of the bytes of `source` to `sum`, one `uint64_t`. Both are in the memory
  /// of this stream's device, in different buffers. The result equals `pinlane::checksum` of the
  /// same bytes.
  template <class Source, class Sum>
  ticket checksum(const Source& source, Sum&& sum) const {
    static_assert(std::is_same_v<element_of<Sum>, std::uint64_t>, "a checksum is a uint64_t");
    const auto from = source.slice();
    const auto to = writable(sum);
    check_lengths(to.size(), 1);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_device_buffer_checksum(self(), from.get(), from.offset_bytes(),
                                            from.size_bytes(), to.get(), to.offset_bytes(), out);
    });
  }

  /// Calls `function` on a thread of the CUDA runtime after all earlier work of the stream is
  /// complete. Later work of the stream waits for it. Does not block.
  ///
  /// `function` must not throw and must not wait for device work; calls of CUDA and pinlane fail in
  /// it. It may destroy buffers, but not those of your own host memory. After an error of the
  /// device it may never be called; its captured values then leak. If this throws, it is not
  /// called.
  template <class Function>
  ticket launch_host(Function&& function) const {
    using object = std::decay_t<Function>;
    auto owned = std::make_unique<object>(std::forward<Function>(function));
    ticket done = with_ticket([&](pinlane_ticket** out) {
      return pinlane_stream_launch_host(self(), call_once<object>, owned.get(), out);
    });
    static_cast<void>(owned.release()); // `call_once` has it
    return done;
  }

  /// A ticket for everything enqueued on the stream so far.
  [[nodiscard]] ticket record() const {
    return with_ticket([&](pinlane_ticket** out) { return pinlane_stream_record(self(), out); });
  }

  /// Makes later work of this stream wait, on the device, for the operation of `ticket`. Uses of
  /// buffers need no such call.
  void wait(const ticket& ticket) const { check(pinlane_stream_wait(self(), ticket.get())); }

  /// Makes later work of this stream wait, on the device, for the work that your own `cudaEvent_t`
  /// captured when it was last recorded. The event may belong to any device.
  void wait_event(void* cuda_event) const { check(pinlane_stream_wait_event(self(), cuda_event)); }

  /// Captures everything enqueued on the stream so far in your own `cudaEvent_t`, of the same
  /// device.
  void record_event(void* cuda_event) const {
    check(pinlane_stream_record_event(self(), cuda_event));
  }

  /// Keeps the stream busy for about `duration` of device time, at most 10 s, for tests of overlap.
  ticket busy(std::chrono::nanoseconds duration) const {
    detail::check_not_negative(duration, "stream::busy: the duration");
    const auto nanoseconds = static_cast<std::uint64_t>(duration.count());
    return with_ticket(
        [&](pinlane_ticket** out) { return pinlane_stream_busy(self(), nanoseconds, out); });
  }

  /// Blocks until everything that was enqueued on the stream before the call is complete.
  void synchronize() const { check(synchronize(std::nothrow)); }
  [[nodiscard]] pinlane_status synchronize(std::nothrow_t) const noexcept {
    return pinlane_stream_synchronize(self());
  }

  /// The device that the stream belongs to.
  [[nodiscard]] pinlane::device device() const {
    pinlane_device* handle = nullptr;
    check(pinlane_stream_device(self(), &handle));
    return pinlane::device(handle);
  }

  /// The number of the device that the stream belongs to.
  [[nodiscard]] int device_ordinal() const {
    std::int32_t ordinal = 0;
    check(pinlane_stream_device_ordinal(self(), &ordinal));
    return ordinal;
  }

  /// The `cudaStream_t`, valid as long as the stream.
  [[nodiscard]] void* native_handle() const {
    void* stream = nullptr;
    check(pinlane_stream_native(self(), &stream));
    return stream;
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }

  template <class Destination>
  static auto writable(Destination& destination) noexcept {
    const auto slice = destination.slice();
    check_writable<decltype(slice)>();
    return slice;
  }

  template <class Source, class To>
  pinlane_status enqueue_upload(const Source& source, To to, pinlane_ticket** out) const noexcept {
    if constexpr (is_pageable<Source>) {
      check_elements<To, Source>();
      check_writable<To>();
      if (std::size(source) != to.size()) {
        return lengths_differ(std::size(source), to.size());
      }
      return pinlane_device_buffer_upload_slice(self(), std::data(source), to.get(),
                                                to.offset_bytes(), to.size_bytes(), out);
    } else if constexpr (is_pinned_span<Source>) {
      check_elements<To, Source>();
      check_writable<To>();
      if (source.size() != to.size()) {
        return lengths_differ(source.size(), to.size());
      }
      return pinlane_device_buffer_upload_pinned(self(), source.address(), to.get(),
                                                 to.offset_bytes(), to.size_bytes(), out);
    } else {
      return enqueue(pinlane_device_buffer_upload, source.slice(), to, out);
    }
  }

  template <class From, class Destination>
  pinlane_status enqueue_download(From from, Destination& destination,
                                  pinlane_ticket** out) const noexcept {
    if constexpr (is_pinned_span<Destination>) {
      check_elements<From, Destination>();
      check_writable<Destination>();
      if (from.size() != destination.size()) {
        return lengths_differ(from.size(), destination.size());
      }
      return pinlane_device_buffer_download_pinned(self(), from.get(), from.offset_bytes(),
                                                   destination.address(), from.size_bytes(), out);
    } else {
      return enqueue(pinlane_device_buffer_download, from, destination.slice(), out);
    }
  }

  template <class Function, class From, class To>
  ticket enqueue(Function function, From from, To to) const {
    check_lengths(from.size(), to.size());
    return with_ticket([&](pinlane_ticket** out) { return enqueue(function, from, to, out); });
  }

  template <class Function, class From, class To>
  pinlane_status enqueue(Function function, From from, To to, pinlane_ticket** out) const noexcept {
    using source_element = std::remove_const_t<typename From::element_type>;
    static_assert(std::is_same_v<source_element, typename To::element_type>,
                  "both sides have elements of one type, and the destination's are not const");
    if (from.size() != to.size()) {
      return lengths_differ(from.size(), to.size());
    }
    return function(self(), from.get(), from.offset_bytes(), to.get(), to.offset_bytes(),
                    from.size_bytes(), out);
  }
};

} // namespace detail

/// Options of a stream.
struct stream_options {
  /// Of kernels that wait for room on the device, those with lower numbers run first. Copies by the
  /// copy engine have no priority. Clamped to the device's range.
  int priority = 0;
  /// Whether the stream waits for the legacy default stream, and that stream waits for it.
  bool blocking = false;
};

/// A queue of device work, which is executed in order. Destroying it returns at once; enqueued work
/// is still executed.
class stream : public detail::owner<pinlane_stream, pinlane_stream_free>,
               public detail::stream_operations<stream> {
public:
  using owner::owner;

  /// A new stream.
  explicit stream(const pinlane::device& device, stream_options options = {}) {
    pinlane_stream_options raw = PINLANE_STREAM_OPTIONS_INIT;
    raw.priority = options.priority;
    raw.flags = options.blocking ? PINLANE_STREAM_BLOCKING : 0;
    pinlane_stream* handle = nullptr;
    detail::check(pinlane_stream_create(device.get(), &raw, &handle));
    *this = stream(handle);
  }

  /// Your own `cudaStream_t`, a stream of `device`. It must outlive this object and the work that
  /// is enqueued through it, and is not destroyed with it. For the default streams see below.
  [[nodiscard]] static stream from_native_handle(const pinlane::device& device, void* cuda_stream) {
    pinlane_stream* handle = nullptr;
    detail::check(pinlane_stream_borrow(device.get(), cuda_stream, &handle));
    return stream(handle);
  }
  static stream from_native_handle(const pinlane::device&, int) = delete;
  static stream from_native_handle(const pinlane::device&, std::nullptr_t) = delete;

  /// The legacy default stream of `device`: `cudaStreamLegacy`.
  [[nodiscard]] static stream legacy_default(const pinlane::device& device) {
    return from_native_handle(device, reinterpret_cast<void*>(std::uintptr_t{1}));
  }

  /// The calling thread's default stream, `cudaStreamPerThread`. Other threads cannot use it.
  [[nodiscard]] static stream per_thread_default(const pinlane::device& device) {
    return from_native_handle(device, reinterpret_cast<void*>(std::uintptr_t{2}));
  }
};

/// A reference to a stream that other code owns and keeps alive, for parameters of functions. Cheap
/// to copy.
class stream_ref : public detail::stream_operations<stream_ref> {
public:
  stream_ref(const stream& stream) noexcept : m_handle(stream.get()) {}
  explicit stream_ref(pinlane_stream* handle) noexcept : m_handle(handle) {}
  stream_ref(std::nullptr_t) = delete;
  stream_ref(int) = delete;

  /// The handle.
  [[nodiscard]] pinlane_stream* get() const noexcept { return m_handle; }

private:
  pinlane_stream* m_handle;
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_STREAM_HPP
