/// @file
/// What the two sides of a copy may be: buffers and slices, ordinary memory, and your own device memory.

#ifndef PINLANE_CPP_SIDES_HPP
#define PINLANE_CPP_SIDES_HPP

#include "buffer.hpp"

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>

namespace pinlane {

namespace detail {

template <class Side, class = void>
struct has_data : std::false_type {};
template <class Side>
struct has_data<Side, std::void_t<decltype(std::data(std::declval<Side&>())),
                                  decltype(std::size(std::declval<Side&>()))>> : std::true_type {};

/// Whether it is elements in ordinary memory: a vector, an array, a span.
template <class Side>
inline constexpr bool is_ordinary = has_data<std::remove_reference_t<Side>>::value;

/// For the overloads of one function.
template <class Side>
using if_ordinary = std::enable_if_t<is_ordinary<Side>, int>;
template <class Side>
using if_tracked = std::enable_if_t<!is_ordinary<Side>, int>;

template <class Side, bool = is_ordinary<Side>>
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

/// The type of the elements of a buffer, a slice, or ordinary memory.
template <class Side>
using element_of = typename element<Side>::type;

/// That `Tracked`, or memory of any type if it is `void`, and `Ordinary` have the same elements, and that
/// they can be copied as bytes.
template <class Tracked, class Ordinary>
constexpr void check_elements() noexcept {
  using ordinary = element_of<Ordinary>;
  using tracked = std::remove_const_t<element_of<Tracked>>;
  static_assert(std::is_trivially_copyable_v<ordinary>, "elements are copied as bytes");
  static_assert(std::is_void_v<tracked> || std::is_same_v<tracked, std::remove_const_t<ordinary>>,
                "both sides have elements of one type");
}

/// That what is written is not const.
template <class Side>
constexpr void check_writable() noexcept {
  static_assert(!std::is_const_v<element_of<Side>>, "the destination is const");
}

/// How many elements a side on the host has.
template <class Side>
std::size_t size_of(const Side& side) noexcept {
  if constexpr (is_ordinary<Side>) {
    return std::size(side);
  } else {
    return side.size();
  }
}

/// How many bytes some ordinary memory has.
template <class Ordinary>
std::size_t ordinary_bytes(const Ordinary& side) noexcept {
  return in_bytes(std::size(side), sizeof(*std::data(side)));
}

inline void check_lengths(std::size_t source, std::size_t destination) {
  if (source != destination) {
    fail(PINLANE_STATUS_LENGTH_MISMATCH, std::to_string(source) + " elements do not fit " +
                                             std::to_string(destination) +
                                             ": take slices of equal length");
  }
}

} // namespace detail

} // namespace pinlane

#endif // PINLANE_CPP_SIDES_HPP
