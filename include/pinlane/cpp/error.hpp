/// @file
/// Errors, and the owner of a handle. The other headers use both.

#ifndef PINLANE_CPP_ERROR_HPP
#define PINLANE_CPP_ERROR_HPP

#include "../pinlane.h"
#include "mode.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Why a call failed. `what()` names the call, what was found, and what to do.
class error : public std::runtime_error {
public:
  /// The error of this thread's last pinlane call, which returned `status`.
  explicit error(pinlane_status status)
      : std::runtime_error(pinlane_last_error()), m_status(status),
        m_cuda_error(pinlane_last_cuda_error()), m_producer_error(pinlane_last_producer_error()) {}

  /// The error of a check in these headers.
  error(pinlane_status status, const std::string& message)
      : std::runtime_error(message), m_status(status) {}

  /// One of `PINLANE_STATUS_*`.
  [[nodiscard]] pinlane_status status() const noexcept { return m_status; }

  /// The `cudaError_t` behind it; 0 if the CUDA runtime was not the cause.
  [[nodiscard]] int cuda_error() const noexcept { return m_cuda_error; }

  /// What a function of a `pinlane_producer` returned; 0 if none was the cause.
  [[nodiscard]] int producer_error() const noexcept { return m_producer_error; }

private:
  pinlane_status m_status;
  int m_cuda_error = 0;
  int m_producer_error = 0;
};

/// The name of a status, such as "PINLANE_STATUS_BUSY".
[[nodiscard]] inline const char* status_name(pinlane_status status) noexcept {
  return pinlane_status_name(status);
}

/// The CUDA runtime's own name of a `cudaError_t`, such as "cudaErrorMemoryAllocation".
[[nodiscard]] inline const char* cuda_error_name(int cuda_error) noexcept {
  return pinlane_cuda_error_name(cuda_error);
}

/// Whether a `cudaError_t` tells of a corrupted context: then the process must end.
[[nodiscard]] inline bool cuda_error_is_sticky(int cuda_error) noexcept {
  return pinlane_cuda_error_is_sticky(cuda_error) != 0;
}

namespace detail {

template <class... Arguments>
[[noreturn]] inline void fail(const Arguments&... arguments) {
#if defined(PINLANE_CPP_EXCEPTIONS)
  throw error(arguments...);
#else
  std::fprintf(stderr, "%s\n", error(arguments...).what());
  std::abort();
#endif
}

/// Makes the failure of a check in these headers this thread's last error, as in the library.
inline pinlane_status set_error(pinlane_status status, const char* message) noexcept {
  return pinlane_set_last_error(status, message);
}

inline void check(pinlane_status status) {
  if (status != PINLANE_STATUS_OK) {
    fail(status);
  }
}

/// Whether a `try_` function succeeded: `NOT_READY` is no error.
inline bool ready(pinlane_status status) {
  if (status != PINLANE_STATUS_NOT_READY) {
    check(status);
  }
  return status == PINLANE_STATUS_OK;
}

/// The text that `write(buffer, capacity, needed)` writes.
template <class Write>
std::string text_of(Write write) {
  std::string text;
  std::size_t needed = 1;
  while (needed > text.size()) { // again if it has grown meanwhile
    text.resize(needed);
    check(write(text.data(), text.size(), &needed));
  }
  text.resize(needed - 1);
  return text;
}

/// An overflow becomes a size that no buffer has, so the call that gets it refuses it.
constexpr std::size_t in_bytes(std::size_t count, std::size_t element) noexcept {
  return count > SIZE_MAX / element ? SIZE_MAX : count * element;
}

/// A time for the C interface: rounded up, and not negative.
template <class Rep, class Period>
std::uint64_t in_microseconds(std::chrono::duration<Rep, Period> time) noexcept {
  using microseconds = std::chrono::duration<double, std::micro>;
  const double count = std::chrono::duration_cast<microseconds>(time).count();
  if (!(count > 0)) {
    return 0;
  }
  if (count > 9e18) {
    return UINT64_MAX;
  }
  const auto whole = static_cast<std::uint64_t>(count);
  return whole + (static_cast<double>(whole) < count);
}

/// Calls `function` when the scope ends, however it ends.
template <class Function>
struct at_exit {
  Function function;
  ~at_exit() { function(); }
};
template <class Function>
at_exit(Function) -> at_exit<Function>;

/// Owns a handle: frees it when destroyed.
template <class Handle, pinlane_status (*Free)(Handle*)>
class owner {
public:
  owner() noexcept = default;
  /// Takes over a handle of the C interface.
  explicit owner(Handle* handle) noexcept : m_handle(handle) {}
  owner(std::nullptr_t) = delete;
  owner(int) = delete;

  /// The handle, still owned by this object.
  [[nodiscard]] Handle* get() const noexcept { return m_handle.get(); }
  /// Gives up the handle: now the caller must free it.
  [[nodiscard]] Handle* release() noexcept { return m_handle.release(); }
  /// Whether the object is not empty.
  [[nodiscard]] explicit operator bool() const noexcept { return m_handle != nullptr; }

private:
  struct freer {
    void operator()(Handle* handle) const noexcept { static_cast<void>(Free(handle)); }
  };
  std::unique_ptr<Handle, freer> m_handle;
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_ERROR_HPP
