/// @file
/// Parts of two sides, by arrays of their offsets.

#ifndef PINLANE_CPP_PARTS_HPP
#define PINLANE_CPP_PARTS_HPP

#include "batch.hpp"
#include "rows.hpp"
#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <iterator>
#include <type_traits>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The parts of a source and of a destination that a copy moves: where they begin and how long they
/// are, in elements. Parts of the destination must not overlap. It names the arrays, contiguous
/// containers of `std::size_t`, and does not own them.
class parts {
public:
  /// Parts of different lengths: `lengths[i]` elements from `from[i]` on go to `to[i]`. Throws
  /// `error` with the status `LENGTH_MISMATCH` unless the three have as many numbers each.
  template <class From, class To, class Lengths, detail::if_stays<From, To, Lengths> = 0,
            std::enable_if_t<!std::is_convertible_v<Lengths, std::size_t>, int> = 0>
  parts(From&& from, To&& to, Lengths&& lengths) : parts(from, to, std::size_t{0}) {
    detail::check_lengths(std::size(from), std::size(lengths));
    m_raw.lengths = numbers(lengths);
  }
  /// Parts of `length` elements each. Throws as above.
  template <class From, class To, detail::if_stays<From, To> = 0>
  parts(From&& from, To&& to, std::size_t length) {
    detail::check_lengths(std::size(from), std::size(to));
    m_raw.from = numbers(from);
    m_raw.to = numbers(to);
    m_raw.length = length;
    m_raw.count = std::size(from);
  }

  /// The struct of the C interface, for elements of `size` bytes.
  [[nodiscard]] constexpr pinlane_parts of_size(std::size_t size) const noexcept {
    pinlane_parts raw = m_raw;
    raw.unit = size;
    return raw;
  }

private:
  template <class Numbers>
  static const std::size_t* numbers(const Numbers& numbers) noexcept {
    static_assert(
        std::is_same_v<std::remove_const_t<detail::element_of<const Numbers>>, std::size_t>,
        "a contiguous container of std::size_t");
    return std::data(numbers);
  }

  pinlane_parts m_raw{};
};

namespace detail {

/// The copies of parts on a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class part_operations {
public:
  /// Copies parts of `source`, in page-locked or pageable memory, to parts of `destination`, in
  /// device memory. What lies between them is left alone. A call costs less than `upload_batch` for
  /// as many copies.
  ///
  /// Ordered as `upload`, as a use from the first part to the end of the last one. Does not block
  /// if `source` is a `pinned_buffer`, a slice of one or a `pinned_span`; pageable memory may be
  /// reused when the call returns.
  ///
  /// @code
  ///   const std::vector<std::size_t> from{0, 500}, to{700, 100}, lengths{30, 20};
  ///   stream.upload_parts(host, gpu, pinlane::parts(from, to, lengths));
  /// @endcode
  template <class Source, class Destination>
  ticket upload_parts(const Source& source, Destination&& destination, const parts& which,
                      route by = route::automatic) const {
    using element = std::remove_const_t<element_of<const Source>>;
    auto slice = destination.slice();
    const upload_layer<element> layer(source, slice);
    const pinlane_parts raw = which.of_size(sizeof(element));
    const pinlane_batch_options options = forced(by);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_upload_parts(self(), &layer, &raw, &options, out);
    });
  }

  /// As `upload_parts`, from parts in device memory to parts in page-locked or pageable memory.
  /// Does not block if `destination` is a `pinned_buffer`, a slice of one or a `pinned_span`. In
  /// pageable memory the parts have arrived when the call returns.
  template <class Source, class Destination>
  ticket download_parts(const Source& source, Destination&& destination, const parts& which,
                        route by = route::automatic) const {
    using element = std::remove_const_t<element_of<Destination>>;
    auto slice = source.slice();
    const download_layer<element> layer(slice, destination);
    const pinlane_parts raw = which.of_size(sizeof(element));
    const pinlane_batch_options options = forced(by);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_download_parts(self(), &layer, &raw, &options, out);
    });
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_PARTS_HPP
