/// @file
/// Rows that lie a pitch apart: columns of a matrix, a box of a volume.

#ifndef PINLANE_CPP_STRIDED_HPP
#define PINLANE_CPP_STRIDED_HPP

#include "rows.hpp"
#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <type_traits>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// All elements of a side, instead of rows.
struct no_gaps_t {
  explicit no_gaps_t() = default;
};
inline constexpr no_gaps_t no_gaps{};

/// Where rows of equal length lie in a side of a copy, in elements. The first one begins at the
/// first element. Rows lie in planes of equally many: a matrix is one plane. Rows must not overlap.
class strides {
public:
  constexpr strides(no_gaps_t) noexcept {}
  /// One plane of `rows` rows of `row` elements, which begin `pitch` elements apart.
  constexpr strides(std::size_t row, std::size_t rows, std::size_t pitch) noexcept
      : m_raw{row, rows, pitch, 1, 0}, m_given(true) {}

  /// As many planes, which begin `plane_pitch` elements apart.
  [[nodiscard]] constexpr strides planes(std::size_t planes,
                                         std::size_t plane_pitch) const noexcept {
    strides volume = *this;
    volume.m_raw.rows = planes == 0 ? 0 : m_raw.rows;
    volume.m_raw.planes = planes;
    volume.m_raw.plane_pitch = plane_pitch;
    return volume;
  }

  /// Whether there are rows. Otherwise all elements are copied, and the numbers below are 0.
  [[nodiscard]] constexpr bool has_rows() const noexcept { return m_given; }

  /// The length of a row.
  [[nodiscard]] constexpr std::size_t row() const noexcept { return m_raw.row_bytes; }
  /// The number of rows of a plane.
  [[nodiscard]] constexpr std::size_t rows() const noexcept { return m_raw.rows; }
  /// From the start of a row to that of the next. No meaning if a plane has one row.
  [[nodiscard]] constexpr std::size_t pitch() const noexcept { return m_raw.pitch; }
  /// The number of planes.
  [[nodiscard]] constexpr std::size_t planes() const noexcept { return m_raw.planes; }
  /// From the start of a plane to that of the next. No meaning if there is one plane.
  [[nodiscard]] constexpr std::size_t plane_pitch() const noexcept { return m_raw.plane_pitch; }

  /// The struct of the C interface, for elements of `size` bytes.
  [[nodiscard]] constexpr pinlane_strided in_bytes(std::size_t size) const noexcept {
    return {detail::in_bytes(m_raw.row_bytes, size), m_raw.rows,
            detail::in_bytes(m_raw.pitch, size), m_raw.planes,
            detail::in_bytes(m_raw.plane_pitch, size)};
  }

private:
  pinlane_strided m_raw{};
  bool m_given = false;
};

namespace detail {

/// The rows of a side of elements of type `T`, as the C interface takes them.
template <class T>
class rows_of {
public:
  explicit rows_of(const strides& rows) noexcept
      : m_raw(rows.in_bytes(sizeof(T))), m_given(rows.has_rows()) {}
  [[nodiscard]] const pinlane_strided* get() const noexcept { return m_given ? &m_raw : nullptr; }

private:
  pinlane_strided m_raw;
  bool m_given;
};

/// The copies of strided rows on a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class strided_operations {
public:
  /// Copies rows that lie a pitch apart in `source`, in page-locked or pageable memory, to rows of
  /// `destination`, in device memory: row by row, and plane by plane. Both sides have rows of the
  /// same shape, or one has no gaps and as many elements. What lies between the rows is left alone.
  ///
  /// Ordered as `upload`, as a use of the rows without the gaps between them. Does not block if
  /// `source` is a `pinned_buffer`, a slice of one or a `pinned_span`; pageable memory may be
  /// reused when the call returns.
  ///
  /// @code
  ///   auto image = pool.alloc_zeroed<float>(480 * 640);
  ///   auto tile = device.alloc<float>(64 * 64);
  ///   // The tile at line 100 and column 200.
  ///   stream.upload_strided(image.slice(100 * 640 + 200), pinlane::strides(64, 64, 640),
  ///                         tile, pinlane::no_gaps);
  /// @endcode
  template <class Source, class Destination>
  ticket upload_strided(const Source& source, const strides& from, Destination&& destination,
                        const strides& to) const {
    using element = std::remove_const_t<element_of<const Source>>;
    auto slice = destination.slice();
    const upload_layer<element> layer(source, slice);
    const rows_of<element> read(from), written(to);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_upload_strided(self(), &layer, read.get(), written.get(), out);
    });
  }

  /// As `upload_strided`, from rows in device memory to rows in page-locked or pageable memory.
  /// Does not block if `destination` is a `pinned_buffer`, a slice of one or a `pinned_span`. In
  /// pageable memory the rows have arrived when the call returns.
  template <class Source, class Destination>
  ticket download_strided(const Source& source, const strides& from, Destination&& destination,
                          const strides& to) const {
    using element = std::remove_const_t<element_of<Destination>>;
    auto slice = source.slice();
    const download_layer<element> layer(slice, destination);
    const rows_of<element> read(from), written(to);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_download_strided(self(), &layer, read.get(), written.get(), out);
    });
  }

  /// As `upload_strided`, between two device buffers or slices of such, of one device or of two.
  /// Does not block.
  template <class Source, class Destination>
  ticket copy_strided(const Source& source, const strides& from, Destination&& destination,
                      const strides& to) const {
    const auto src = source.slice();
    const auto dst = destination.slice();
    check_writable<decltype(destination.slice())>();
    using element = std::remove_const_t<element_of<decltype(destination.slice())>>;
    static_assert(
        std::is_same_v<std::remove_const_t<element_of<decltype(source.slice())>>, element>,
        "both sides have elements of one type");
    const rows_of<element> read(from), written(to);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_device_buffer_copy_strided(
          self(), src.get(), src.offset_bytes(), src.size_bytes(), read.get(), dst.get(),
          dst.offset_bytes(), dst.size_bytes(), written.get(), out);
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

#endif // PINLANE_CPP_STRIDED_HPP
