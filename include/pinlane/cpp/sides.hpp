/// @file
/// The two sides of a copy: buffers and slices, pageable memory, and your own device memory.

#ifndef PINLANE_CPP_SIDES_HPP
#define PINLANE_CPP_SIDES_HPP

#include "buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Whether a `T` names memory that outlives it: slices and spans do, containers and buffers do not.
/// A batch or a list of ranges takes temporaries only of such types. Specialise it for your own
/// views.
template <class T>
inline constexpr bool is_view =
#if defined(__cpp_lib_ranges)
    std::ranges::enable_borrowed_range<T> ||
#endif
    std::is_pointer_v<T>;
template <class T, class Handle>
inline constexpr bool is_view<basic_slice<T, Handle>> = true;
template <class T>
inline constexpr bool is_view<span<T>> = true;

/// The elements of a container in memory of a pool, such as a `std::pmr::vector` with a
/// `pinned_resource`. Copies from and to them return at once, like those of a `pinned_buffer`.
///
/// @code
///   std::pmr::vector<float> samples(n, &resource);
///   auto copied = stream.upload(pinlane::pinned_span(samples), gpu);
/// @endcode
///
/// Items of a batch, pairs and rows take it like a `pinned_buffer`. A list of `pairs` must not be
/// copied after the memory has been given back.
///
/// - Until the ticket is complete, do not write to memory that is being uploaded, and do not access
///   memory that is being downloaded.
/// - The container may be destroyed before, and give its memory back: the pool reuses it only when
///   the copy is complete.
/// - A copy of memory that does not lie in one allocation of a pool fails with
///   `PINLANE_STATUS_INVALID_VALUE`.
template <class T>
class pinned_span {
public:
  using element_type = T;

  constexpr pinned_span(T* elements, std::size_t size) noexcept
      : m_elements(elements), m_size(size) {}
  /// All elements of a contiguous container.
  template <class Container, class = decltype(std::data(std::declval<Container&>()))>
  explicit constexpr pinned_span(Container& container) noexcept
      : m_elements(std::data(container)), m_size(std::size(container)) {}

  [[nodiscard]] constexpr T* address() const noexcept { return m_elements; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept {
    return detail::in_bytes(m_size, sizeof(T));
  }

private:
  T* m_elements;
  std::size_t m_size;
};
template <class Container>
pinned_span(Container& container)
    -> pinned_span<std::remove_pointer_t<decltype(std::data(container))>>;
template <class T>
inline constexpr bool is_view<pinned_span<T>> = true;

namespace detail {

template <class Side>
inline constexpr bool is_pinned_span_type = false;
template <class T>
inline constexpr bool is_pinned_span_type<pinned_span<T>> = true;
template <class Side>
inline constexpr bool is_pinned_span =
    is_pinned_span_type<std::remove_const_t<std::remove_reference_t<Side>>>;

/// Sets memory of a pool as the host side of a copy, a pair or a layer.
template <class Named, class T>
void set_pinned(Named& named, const pinned_span<T>& memory) noexcept {
  static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
  named.pinned = const_cast<std::remove_const_t<T>*>(memory.address()); // writers check constness
}

/// Whether the memory of an argument outlives the call. `Passed` is deduced from a forwarding
/// reference.
template <class Passed>
inline constexpr bool stays =
    std::is_lvalue_reference_v<Passed> || is_view<std::remove_const_t<Passed>>;
template <class... Passed>
using if_stays = std::enable_if_t<(stays<Passed> && ...), int>;
template <class... Passed>
using if_goes = std::enable_if_t<!(stays<Passed> && ...), int>;

template <class Side, class = void>
struct has_data : std::false_type {};
template <class Side>
struct has_data<Side, std::void_t<decltype(std::data(std::declval<Side&>())),
                                  decltype(std::size(std::declval<Side&>()))>> : std::true_type {};

/// Whether `Side` is elements in pageable memory: a vector, an array, a span.
template <class Side>
inline constexpr bool is_pageable = has_data<std::remove_reference_t<Side>>::value;

/// For the overloads of one function.
template <class Side>
using if_pageable = std::enable_if_t<is_pageable<Side>, int>;
template <class Side>
using if_tracked = std::enable_if_t<!is_pageable<Side>, int>;

template <class Side, bool = is_pageable<Side>>
struct element {
  using type = typename std::remove_reference_t<Side>::element_type;
};
template <class Side>
struct element<Side, true> {
  using type = std::remove_pointer_t<decltype(std::data(std::declval<Side&>()))>;
};
template <>
struct element<void, false> { // device memory that is only an address
  using type = void;
};

/// The type of the elements of a buffer, a slice, or pageable memory.
template <class Side>
using element_of = typename element<Side>::type;

/// Checks that `Tracked` and `Pageable` have the same elements, and that they can be copied as
/// bytes. `Tracked` is `void` for memory of any type.
template <class Tracked, class Pageable>
constexpr void check_elements() noexcept {
  using pageable = element_of<Pageable>;
  using tracked = std::remove_const_t<element_of<Tracked>>;
  static_assert(std::is_trivially_copyable_v<pageable>, "elements are copied as bytes");
  static_assert(std::is_void_v<tracked> || std::is_same_v<tracked, std::remove_const_t<pageable>>,
                "both sides have elements of one type");
}

/// Checks that the destination is not const.
template <class Side>
constexpr void check_writable() noexcept {
  static_assert(!std::is_const_v<element_of<Side>>, "the destination is const");
}

/// The number of elements of the host side.
template <class Side>
std::size_t size_of(const Side& side) noexcept {
  if constexpr (is_pageable<Side>) {
    return std::size(side);
  } else {
    return side.size();
  }
}

/// The number of bytes of pageable memory.
template <class Pageable>
std::size_t pageable_bytes(const Pageable& side) noexcept {
  return in_bytes(std::size(side), sizeof(*std::data(side)));
}

/// Sets this thread's last error: two sides have different lengths.
inline pinlane_status lengths_differ(std::size_t source, std::size_t destination) noexcept {
  char text[128];
  std::snprintf(text, sizeof(text), "%zu elements do not fit %zu: take slices of equal length",
                source, destination);
  return set_error(PINLANE_STATUS_LENGTH_MISMATCH, text);
}

inline void check_lengths(std::size_t source, std::size_t destination) {
  if (source != destination) {
    fail(lengths_differ(source, destination));
  }
}

} // namespace detail

/// The 64-bit checksum of the bytes of a contiguous container, equal to what `stream::checksum`
/// computes on a device. Runs on the calling thread.
template <class Container>
[[nodiscard]] std::uint64_t checksum(const Container& elements) {
  static_assert(std::is_trivially_copyable_v<std::remove_reference_t<decltype(*elements.data())>>);
  std::uint64_t sum = 0;
  const std::size_t bytes = elements.size() * sizeof(*elements.data());
  detail::check(pinlane_checksum(elements.data(), bytes, &sum));
  return sum;
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_SIDES_HPP
