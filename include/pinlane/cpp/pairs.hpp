/// @file
/// Pairs of host and device memory that are copied repeatedly.

#ifndef PINLANE_CPP_PAIRS_HPP
#define PINLANE_CPP_PAIRS_HPP

#include "batch.hpp"
#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <type_traits>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// One pair of a list of `pairs`. It names memory and does not own it.
struct pair_item : pinlane_pair {
  /// A `pinned_buffer`, a slice of one or a `pinned_span`, and a `device_buffer` or a slice of one.
  /// Both sides have equal length.
  template <class Host, class Device, detail::if_stays<Host, Device> = 0>
  pair_item(Host&& host, Device&& device) : pinlane_pair{} {
    const auto near = [&] {
      if constexpr (detail::is_pinned_span<Host>) {
        return host;
      } else {
        return host.slice();
      }
    }();
    using near_type = std::remove_const_t<decltype(near)>;
    using device_slice = decltype(device.slice());
    static_assert(std::is_same_v<typename device_slice::handle_type, pinlane_device_buffer>,
                  "page-locked memory and device memory");
    static_assert(std::is_same_v<detail::element_of<near_type>, detail::element_of<device_slice>>,
                  "both sides have elements of one type");
    detail::check_writable<near_type>();
    if constexpr (detail::is_pinned_span<Host>) {
      detail::set_pinned(*this, near);
    } else {
      static_assert(std::is_same_v<typename near_type::handle_type, pinlane_buffer>,
                    "page-locked memory and device memory");
      buffer = near.get();
      buffer_offset = near.offset_bytes();
    }
    device_buffer = detail::set_device(device_offset, near.size(), device);
    bytes = near.size_bytes();
  }
  /// Not from temporaries, which are destroyed before the copies are made. See `is_view`.
  template <class Host, class Device, detail::if_goes<Host, Device> = 0>
  pair_item(Host&& host, Device&& device) = delete;
};

static_assert(sizeof(pair_item) == sizeof(pinlane_pair),
              "an array of one is an array of the other");

/// Pairs of page-locked memory and device memory, which `stream::upload_pairs` and
/// `stream::download_pairs` copy as often as needed: the state of an optimizer, the blocks of a
/// cache. The first copy in a direction checks the pairs and lays out what the kernel reads; the
/// others only enqueue.
///
/// Between the copies the buffers can be used as usual. They are not owned: after one is destroyed,
/// copies of the pairs fail with `PINLANE_STATUS_INVALID_HANDLE`. After the memory of a
/// `pinned_span` is given back, the pairs must not be copied. One thread at a time uses the list.
///
/// @code
///   std::vector<pinlane::pair_item> items;
///   for (auto& part : state) items.emplace_back(part.host, part.gpu);
///   pinlane::pairs pairs(items);
///   stream.upload_pairs(pairs);
/// @endcode
class pairs : public detail::owner<pinlane_pairs, pinlane_pairs_free> {
public:
  using owner::owner;

  /// The pairs of `items`, a contiguous container of `pair_item`, which may be destroyed
  /// afterwards.
  template <class Items, detail::if_pageable<const Items> = 0>
  explicit pairs(const Items& items, route by = route::automatic) {
    static_assert(std::is_same_v<std::remove_const_t<detail::element_of<const Items>>, pair_item>,
                  "a contiguous container of pair_item");
    pinlane_batch_options options = PINLANE_BATCH_OPTIONS_INIT;
    options.route = static_cast<std::int32_t>(by);
    pinlane_pairs* handle = nullptr;
    detail::check(pinlane_pairs_create(std::data(items), std::size(items), &options, &handle));
    *this = pairs(handle);
  }
};

namespace detail {

/// The copies of pairs on a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class pair_operations {
public:
  /// Copies the page-locked side of every pair to its device side. The copies have no order among
  /// themselves, so their destinations must not overlap. Ordered as `upload`; does not block.
  ticket upload_pairs(const pairs& list) const {
    return with_ticket(
        [&](pinlane_ticket** out) { return pinlane_upload_pairs(self(), list.get(), out); });
  }
  [[nodiscard]] pinlane_status upload_pairs(std::nothrow_t, const pairs& list) const noexcept {
    return pinlane_upload_pairs(self(), list.get(), nullptr);
  }

  /// Copies the device side of every pair to its page-locked side. `read` of a `pinned_buffer`
  /// waits for the copies; for a `pinned_span` wait for the ticket. Otherwise as `upload_pairs`.
  ticket download_pairs(const pairs& list) const {
    return with_ticket(
        [&](pinlane_ticket** out) { return pinlane_download_pairs(self(), list.get(), out); });
  }
  [[nodiscard]] pinlane_status download_pairs(std::nothrow_t, const pairs& list) const noexcept {
    return pinlane_download_pairs(self(), list.get(), nullptr);
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_PAIRS_HPP
