/// @file
/// Many copies by one call.

#ifndef PINLANE_CPP_BATCH_HPP
#define PINLANE_CPP_BATCH_HPP

#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iterator>
#include <type_traits>
#include <utility>
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#if defined(__linux__)
#include <pthread.h>
#endif
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The route of a batch.
enum class route : std::int32_t {
  /// The route that is fastest by rule.
  automatic = PINLANE_ROUTE_AUTOMATIC,
  /// One `cudaMemcpyAsync` for each run of adjacent copies.
  copies = PINLANE_ROUTE_COPIES,
  /// One `cudaMemcpyBatchAsync` for many copies, if the driver has it.
  batch_call = PINLANE_ROUTE_BATCH_CALL,
  /// A kernel moves the bytes: it reads or writes page-locked memory over the bus.
  kernel = PINLANE_ROUTE_KERNEL,
};

namespace detail {

template <class Host>
void set_host(pinlane_copy& copy, const Host& host) {
  const auto slice = host.slice();
  copy.buffer = slice.get();
  copy.buffer_offset = slice.offset_bytes();
  copy.bytes = slice.size_bytes();
}

/// The buffer of `device`, which must have `size` elements. Sets the offset in it.
template <class Device>
pinlane_device_buffer* set_device(std::size_t& offset, std::size_t size, const Device& device) {
  const auto slice = device.slice();
  check_lengths(size, slice.size());
  offset = slice.offset_bytes();
  return slice.get();
}

/// The options of a batch that takes this route.
inline pinlane_batch_options forced(route by) noexcept {
  pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
  options.route = static_cast<std::int32_t>(by);
  return options;
}

} // namespace detail

/// One copy of `stream::upload_batch`. It names memory and does not own it.
struct upload_item : pinlane_copy {
  /// From page-locked memory (also a `pinned_span`) or pageable memory to a `device_buffer` or a
  /// slice of one, or to your own device memory, named by its address. Both sides have equal
  /// length.
  template <class Source, class Destination, detail::if_stays<Source, Destination> = 0>
  upload_item(Source&& source, Destination&& destination) : pinlane_copy{} {
    if constexpr (detail::is_pageable<Source>) {
      src = std::data(source);
      bytes = detail::pageable_bytes(source);
      detail::check_elements<void, Source>();
    } else if constexpr (detail::is_pinned_span<Source>) {
      detail::set_pinned(*this, source);
      bytes = source.size_bytes();
    } else {
      detail::set_host(*this, source);
    }
    if constexpr (std::is_pointer_v<std::decay_t<Destination>>) {
      dst = destination;
    } else {
      using to = decltype(destination.slice());
      detail::check_writable<to>();
      static_assert(std::is_same_v<detail::element_of<to>,
                                   std::remove_const_t<detail::element_of<const Source>>>,
                    "both sides have elements of one type");
      device_buffer = detail::set_device(device_offset, detail::size_of(source), destination);
    }
  }
  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Source, class Destination, detail::if_goes<Source, Destination> = 0>
  upload_item(Source&& source, Destination&& destination) = delete;
};

/// One copy of `stream::download_batch`. It names memory and does not own it.
struct download_item : pinlane_copy {
  /// From a `device_buffer` or a slice of one, or from your own device memory, named by its
  /// address, to page-locked memory (also a `pinned_span`) or pageable memory. Both sides have
  /// equal length.
  template <class Source, class Destination, detail::if_stays<Source, Destination> = 0>
  download_item(Source&& source, Destination&& destination) : pinlane_copy{} {
    if constexpr (detail::is_pageable<Destination>) {
      detail::check_writable<Destination>();
      detail::check_elements<void, Destination>();
      dst = std::data(destination);
      bytes = detail::pageable_bytes(destination);
    } else if constexpr (detail::is_pinned_span<Destination>) {
      detail::check_writable<Destination>();
      detail::set_pinned(*this, destination);
      bytes = destination.size_bytes();
    } else {
      detail::check_writable<decltype(destination.slice())>();
      detail::set_host(*this, destination);
    }
    if constexpr (std::is_pointer_v<std::decay_t<Source>>) {
      src = source;
    } else {
      using from = std::remove_const_t<detail::element_of<decltype(source.slice())>>;
      static_assert(std::is_same_v<from, detail::element_of<Destination>>,
                    "both sides have elements of one type");
      device_buffer = detail::set_device(device_offset, detail::size_of(destination), source);
    }
  }
  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Source, class Destination, detail::if_goes<Source, Destination> = 0>
  download_item(Source&& source, Destination&& destination) = delete;
};

/// One copy of `stream::copy_batch`. It names memory and does not own it.
struct copy_item : pinlane_device_copy {
  /// From a `device_buffer` or a slice of one to another, of equal length.
  template <class Source, class Destination, detail::if_stays<Source, Destination> = 0>
  copy_item(Source&& source, Destination&& destination) : pinlane_device_copy{} {
    const auto from = source.slice();
    const auto to = destination.slice();
    using source_element = std::remove_const_t<detail::element_of<decltype(from)>>;
    static_assert(std::is_same_v<source_element, detail::element_of<decltype(to)>>,
                  "both sides have elements of one type, and the destination's are not const");
    src_buffer = from.get();
    src_offset = from.offset_bytes();
    bytes = from.size_bytes();
    dst_buffer = detail::set_device(dst_offset, from.size(), to);
  }

  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Source, class Destination, detail::if_goes<Source, Destination> = 0>
  copy_item(Source&& source, Destination&& destination) = delete;

  /// Between your own memory and your own memory on the stream's device.
  copy_item(const void* source, void* destination, std::size_t size_bytes) noexcept
      : pinlane_device_copy{} {
    src = source;
    dst = destination;
    bytes = size_bytes;
  }
};

static_assert(sizeof(upload_item) == sizeof(pinlane_copy),
              "an array of one is an array of the other");
static_assert(sizeof(download_item) == sizeof(pinlane_copy),
              "an array of one is an array of the other");
static_assert(sizeof(copy_item) == sizeof(pinlane_device_copy),
              "an array of one is an array of the other");

namespace detail {

#if defined(__GLIBCXX__)
/// Defers the cancellation of the calling thread, which would unwind through C. Returns the former
/// state.
inline int hold_cancellation() noexcept {
  int state = 0;
#if defined(__linux__)
  static_cast<void>(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
#endif
  return state;
}
inline void let_cancellation(int state) noexcept {
#if defined(__linux__)
  static_cast<void>(pthread_setcancelstate(state, nullptr));
#else
  static_cast<void>(state);
#endif
}
#endif

/// Calls a function object from C, and keeps its exception, which must not unwind through C.
template <class Function>
struct landing {
  Function& function;
  std::exception_ptr thrown{};

  static std::int32_t call(void* user, std::size_t number, const void* data, std::size_t bytes) {
    auto& self = *static_cast<landing*>(user);
    const span<const std::byte> elements(static_cast<const std::byte*>(data), bytes);
#if defined(PINLANE_CPP_EXCEPTIONS)
    try {
#if defined(__GLIBCXX__)
      const at_exit allow{[state = hold_cancellation()]() noexcept { let_cancellation(state); }};
      try {
        self.function(number, elements);
      } catch (abi::__forced_unwind&) {
        // Nothing can stop the end of the thread, and it cannot unwind through the library.
        std::fputs(
            "pinlane: a thread was ended inside the function that download_batch_each calls\n",
            stderr);
        std::terminate();
      }
#else
      self.function(number, elements);
#endif
    } catch (...) {
      self.thrown = std::current_exception();
      return 1;
    }
#else
    self.function(number, elements);
#endif
    return 0;
  }
};

/// The batch copies of a stream. `Self` is `stream` or `stream_ref`. `items` is a vector or another
/// contiguous container of items.
template <class Self>
class batch_operations {
public:
  /// Makes all the copies of `items`, of type `upload_item`, in one call. They have no order among
  /// themselves, so their destinations must not overlap. Does not block if all sources are
  /// page-locked; otherwise it blocks until the pageable ones may be reused.
  template <class Items>
  ticket upload_batch(const Items& items, route by = route::automatic) const {
    const pinlane_batch_options options = forced(by);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_upload_batch(self(), array<upload_item>(items), std::size(items), &options,
                                  out);
    });
  }

  /// Makes all the copies of `items`, of type `download_item`, in one call. Blocks until everything
  /// for pageable memory has arrived. The ticket says when the rest has arrived; `read` of a
  /// `pinned_buffer` waits for it. For a `pinned_span`, wait for the ticket.
  template <class Items>
  ticket download_batch(const Items& items, route by = route::automatic) const {
    const pinlane_batch_options options = forced(by);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_download_batch(self(), array<download_item>(items), std::size(items), &options,
                                    out);
    });
  }

  /// As `download_batch`, and calls `landed(number, bytes)` for each item as soon as it has
  /// arrived, while others are in flight; `bytes` is a `span<const std::byte>`. Blocks until all
  /// have arrived. `landed` must not call pinlane. If it throws, it is not called again, and the
  /// exception continues when all have arrived. It must not end its thread: `pthread_exit`
  /// terminates the program, and cancellation waits until `landed` returns.
  template <class Items, class Landed>
  void download_batch_each(const Items& items, Landed&& landed) const {
    landing<std::remove_reference_t<Landed>> told{landed};
    const pinlane_status status = pinlane_download_batch_each(self(), array<download_item>(items),
                                                              std::size(items), told.call, &told);
    if (told.thrown) {
      std::rethrow_exception(told.thrown);
    }
    check(status);
  }

  /// Makes all the copies of `items`, of type `copy_item`, in one call. Does not block.
  template <class Items>
  ticket copy_batch(const Items& items) const {
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_copy_batch(self(), array<copy_item>(items), std::size(items), out);
    });
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }

  template <class Item, class Items>
  static auto array(const Items& items) noexcept {
    static_assert(std::is_same_v<std::remove_const_t<element_of<const Items>>, Item>,
                  "a contiguous container of upload_item, download_item or copy_item");
    return std::data(items);
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_BATCH_HPP
