/// @file
/// Counts live objects, and reports losses that no call can return.

#ifndef PINLANE_CPP_DIAGNOSTICS_HPP
#define PINLANE_CPP_DIAGNOSTICS_HPP

#include "error.hpp"

#include <cstddef>
#include <cstdint>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The number of objects of a kind, one of `PINLANE_KIND_*`, that exist, with any owner. A program
/// that has destroyed everything gets 0.
[[nodiscard]] inline std::size_t live_count(std::int32_t kind) {
  std::size_t count = 0;
  detail::check(pinlane_live_count(kind, &count));
  return count;
}

/// Sets the function that logs lost memory, and destructors that could not free their objects,
/// because they cannot throw. It is called with `user`, one of `PINLANE_LOG_*`, and a message, on
/// any thread. It must neither throw nor call pinlane. NULL ends the log. When this returns, the
/// former function has ended.
inline void set_log(pinlane_log_callback function, void* user = nullptr) {
  detail::check(pinlane_set_log_callback(function, user));
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_DIAGNOSTICS_HPP
