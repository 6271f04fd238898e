/// @file
/// Rows of tables, by their numbers.

#ifndef PINLANE_CPP_ROWS_HPP
#define PINLANE_CPP_ROWS_HPP

#include "sides.hpp"
#include "ticket.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// All rows in order, instead of numbers.
struct all_rows_t {
  explicit all_rows_t() = default;
};
inline constexpr all_rows_t all_rows{};

/// The rows of a table that a copy uses, by their numbers, counted from 0: a contiguous container
/// of integers of 4 or 8 bytes, a `device_buffer` of them or a slice of one, or `all_rows`. It
/// names the numbers and does not own them.
///
/// - Numbers in host memory are read and checked at the call. Numbers in device memory are read
///   when the copy runs, in stream order: a row whose number is not in the table is not copied.
/// - A row that is read may be named twice. A row that is written may not: numbers in host memory
///   are checked, unless `distinct` turns the check off.
class indices {
public:
  indices(all_rows_t) noexcept {}

  template <class Numbers, std::enable_if_t<!std::is_same_v<std::decay_t<Numbers>, indices> &&
                                                !std::is_same_v<std::decay_t<Numbers>, all_rows_t>,
                                            int> = 0>
  indices(const Numbers& numbers) noexcept : m_given(true) {
    using number = std::remove_cv_t<detail::element_of<const Numbers>>;
    static_assert(std::is_integral_v<number> && (sizeof(number) == 4 || sizeof(number) == 8),
                  "numbers are integers of 4 or 8 bytes");
    constexpr bool is_long = sizeof(number) == 8;
    m_raw.kind = std::is_signed_v<number> ? (is_long ? PINLANE_INDEX_I64 : PINLANE_INDEX_I32)
                                          : (is_long ? PINLANE_INDEX_U64 : PINLANE_INDEX_U32);
    m_raw.count = detail::size_of(numbers);
    if constexpr (detail::is_pageable<const Numbers>) {
      m_raw.numbers = std::data(numbers);
    } else {
      const auto slice = numbers.slice();
      static_assert(std::is_same_v<typename decltype(slice)::handle_type, pinlane_device_buffer>,
                    "numbers in a pinned_buffer are read: pass read() of it");
      m_raw.device_buffer = slice.get();
      m_raw.device_offset = slice.offset_bytes();
    }
  }

  /// The same numbers, with the promise that none is repeated, which skips the check. If one is
  /// repeated nevertheless, each byte of a written row comes from one of its sources, or the copy
  /// fails with `PINLANE_STATUS_INVALID_VALUE`.
  [[nodiscard]] indices distinct() const noexcept {
    indices promised = *this;
    promised.m_raw.flags = PINLANE_INDICES_DISTINCT;
    return promised;
  }

  /// The struct of the C interface; NULL for all rows. Valid as long as this object.
  [[nodiscard]] const pinlane_indices* get() const noexcept { return m_given ? &m_raw : nullptr; }

private:
  pinlane_indices m_raw = PINLANE_INDICES_INIT;
  bool m_given = false;
};

namespace detail {

/// Sets the host table and the device table, and checks that their elements match.
template <class T, class Host, class Device>
void set_tables(pinlane_layer& layer, Host& host, Device& device, bool up) noexcept {
  using host_element = std::remove_const_t<element_of<Host>>;
  using device_element = std::remove_const_t<element_of<decltype(device.slice())>>;
  static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
  static_assert(std::is_same_v<host_element, T> && std::is_same_v<device_element, T>,
                "both tables have elements of one type");
  std::size_t& host_bytes = up ? layer.src_bytes : layer.dst_bytes;
  if constexpr (is_pageable<Host>) {
    host_bytes = pageable_bytes(host);
    if (up) {
      layer.src = std::data(host);
    } else {
      layer.dst = const_cast<T*>(std::data(host)); // download_layer has found it writable
    }
  } else if constexpr (is_pinned_span<Host>) {
    host_bytes = host.size_bytes();
    set_pinned(layer, host);
  } else {
    const auto slice = host.slice();
    static_assert(std::is_same_v<typename decltype(slice)::handle_type, pinlane_buffer>,
                  "a table in host memory and one in device memory");
    layer.buffer = slice.get();
    layer.buffer_offset = slice.offset_bytes();
    host_bytes = slice.size_bytes();
  }
  const auto slice = device.slice();
  static_assert(std::is_same_v<typename decltype(slice)::handle_type, pinlane_device_buffer>,
                "a table in host memory and one in device memory");
  layer.device_buffer = slice.get();
  layer.device_offset = slice.offset_bytes();
  (up ? layer.dst_bytes : layer.src_bytes) = slice.size_bytes();
}

} // namespace detail

/// The tables of one layer for `stream::upload_blocks`, of elements of type `T`: one in page-locked
/// or pageable memory, and one in device memory. It names memory and does not own it.
template <class T>
struct upload_layer : pinlane_layer {
  using element_type = T;

  /// From a `pinned_buffer`, a slice of one, a `pinned_span` or pageable memory, to a
  /// `device_buffer` or a slice of one.
  template <class Source, class Destination, detail::if_stays<Source, Destination> = 0>
  upload_layer(Source&& source, Destination&& destination) noexcept : pinlane_layer{} {
    detail::check_writable<decltype(destination.slice())>();
    detail::set_tables<T>(*this, source, destination, true);
  }
  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Source, class Destination, detail::if_goes<Source, Destination> = 0>
  upload_layer(Source&& source, Destination&& destination) = delete;
};
template <class Source, class Destination>
upload_layer(Source&&,
             Destination&&) -> upload_layer<std::remove_const_t<detail::element_of<Source>>>;

/// The tables of one layer for `stream::download_blocks`, of elements of type `T`: one in device
/// memory, and one in page-locked or pageable memory. It names memory and does not own it.
template <class T>
struct download_layer : pinlane_layer {
  using element_type = T;

  /// From a `device_buffer` or a slice of one, to a `pinned_buffer`, a slice of one, a
  /// `pinned_span` or pageable memory.
  template <class Source, class Destination, detail::if_stays<Source, Destination> = 0>
  download_layer(Source&& source, Destination&& destination) noexcept : pinlane_layer{} {
    if constexpr (detail::is_pageable<Destination> || detail::is_pinned_span<Destination>) {
      detail::check_writable<Destination>();
    } else {
      detail::check_writable<decltype(destination.slice())>();
    }
    detail::set_tables<T>(*this, destination, source, false);
  }
  /// Not from temporaries, which are destroyed before the copy is made. See `is_view`.
  template <class Source, class Destination, detail::if_goes<Source, Destination> = 0>
  download_layer(Source&& source, Destination&& destination) = delete;
};
template <class Source, class Destination>
download_layer(Source&&, Destination&&)
    -> download_layer<std::remove_const_t<detail::element_of<Destination>>>;

static_assert(sizeof(upload_layer<char>) == sizeof(pinlane_layer),
              "an array of one is an array of the other");
static_assert(sizeof(download_layer<char>) == sizeof(pinlane_layer),
              "an array of one is an array of the other");

namespace detail {

/// The copies of rows on a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class row_operations {
public:
  /// Gathers rows of `table`, in page-locked or pageable memory: row `i` of `rows`, in device
  /// memory, gets row `numbers[i]` of the table. A row has `rows.size() / numbers.size()` elements.
  /// Numbers may be repeated. `all_rows` is refused, because it does not determine the length of a
  /// row.
  ///
  /// Ordered as `upload`, as a use of the whole table. Does not block if `table` is a
  /// `pinned_buffer`, a slice of one or a `pinned_span`; pageable memory may be reused when the
  /// call returns.
  ///
  /// @code
  ///   auto table = pool.alloc_zeroed<float>(1000 * 64);  // 1000 rows of 64 numbers
  ///   auto rows = device.alloc<float>(3 * 64);
  ///   const std::array<std::uint32_t, 3> wanted = {7, 0, 7};
  ///   stream.upload_rows(table, wanted, rows);           // rows[i] = table[wanted[i]]
  /// @endcode
  template <class Table, class Rows>
  ticket upload_rows(const Table& table, const indices& numbers, Rows&& rows) const {
    auto to = rows.slice();
    const upload_layer<std::remove_const_t<element_of<const Table>>> layer(table, to);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_upload_rows(self(), &layer, numbers.get(), out);
    });
  }

  /// Scatters `rows`, in device memory, to rows of `table`, in page-locked or pageable memory: row
  /// `numbers[i]` of the table gets row `i` of `rows`. A row has `rows.size() / numbers.size()`
  /// elements. No row of the table may be named twice. `all_rows` is refused, because it does not
  /// determine the length of a row.
  ///
  /// Ordered as `upload_rows`. Does not block if `table` is a `pinned_buffer` or a slice of one:
  /// `read` of it waits for the rows. Does not block either if it is a `pinned_span`: wait for the
  /// ticket. In pageable memory the rows have arrived when the call returns.
  template <class Rows, class Table>
  ticket download_rows(const Rows& rows, const indices& numbers, Table&& table) const {
    auto from = rows.slice();
    const download_layer<std::remove_const_t<element_of<Table>>> layer(from, table);
    return with_ticket([&](pinlane_ticket** out) {
      return pinlane_download_rows(self(), &layer, numbers.get(), out);
    });
  }

  /// Copies blocks of the tables of `layers`, a contiguous container of `upload_layer`: in each
  /// layer, block `to[i]` of the destination gets block `from[i]` of the source. A block has
  /// `block` elements. Each table is a whole number of blocks, the same in all layers. `all_rows`
  /// names the first blocks in order, as many as the other side names.
  ///
  /// Ordered, and blocking, as `upload_rows`. Destinations must not overlap.
  ///
  /// @code
  ///   std::vector<pinlane::upload_layer<float>> layers;
  ///   layers.emplace_back(keys, gpu_keys);
  ///   layers.emplace_back(values, gpu_values);
  ///   stream.upload_blocks(layers, block, from, to);
  /// @endcode
  template <class Layers>
  ticket upload_blocks(const Layers& layers, std::size_t block, const indices& from,
                       const indices& to) const {
    return copy_blocks<upload_layer>(pinlane_upload_blocks, layers, block, from, to);
  }

  /// As `upload_blocks`, from device memory to page-locked or pageable memory: `layers` has
  /// `download_layer`. Ordered, and blocking, as `download_rows`.
  template <class Layers>
  ticket download_blocks(const Layers& layers, std::size_t block, const indices& from,
                         const indices& to) const {
    return copy_blocks<download_layer>(pinlane_download_blocks, layers, block, from, to);
  }

private:
  [[nodiscard]] pinlane_stream* self() const noexcept {
    return static_cast<const Self&>(*this).get();
  }

  template <template <class> class Layer, class Function, class Layers>
  ticket copy_blocks(Function function, const Layers& layers, std::size_t block,
                     const indices& from, const indices& to) const {
    using layer = std::remove_const_t<element_of<const Layers>>;
    using element = typename layer::element_type;
    static_assert(std::is_same_v<layer, Layer<element>>,
                  "a contiguous container of upload_layer or download_layer");
    const std::size_t bytes = in_bytes(block, sizeof(element));
    return with_ticket([&](pinlane_ticket** out) {
      return function(self(), std::data(layers), std::size(layers), bytes, from.get(), to.get(),
                      out);
    });
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_ROWS_HPP
