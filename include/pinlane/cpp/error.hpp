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
#include <system_error>
#include <type_traits>

namespace pinlane {

/// The statuses of pinlane.h as a `std::error_code`: one type in files of every mode. They compare
/// equal to `std::errc` values of the same meaning: `code == std::errc::timed_out`.
///
/// @code
///   std::error_code code = pinlane::code_of(stream.synchronize(std::nothrow));
///   try { ... } catch (const std::system_error& error) {
///     if (error.code() == pinlane::errc::budget_exhausted) ...
///   }
/// @endcode
enum class errc : pinlane_status {
  invalid_value = PINLANE_STATUS_INVALID_VALUE,
  length_mismatch = PINLANE_STATUS_LENGTH_MISMATCH,
  out_of_range = PINLANE_STATUS_OUT_OF_RANGE,
  not_ready = PINLANE_STATUS_NOT_READY,
  budget_exhausted = PINLANE_STATUS_BUDGET_EXHAUSTED,
  out_of_host_memory = PINLANE_STATUS_OUT_OF_HOST_MEMORY,
  out_of_device_memory = PINLANE_STATUS_OUT_OF_DEVICE_MEMORY,
  no_device = PINLANE_STATUS_NO_DEVICE,
  unsupported = PINLANE_STATUS_UNSUPPORTED,
  wrong_device = PINLANE_STATUS_WRONG_DEVICE,
  wrong_thread = PINLANE_STATUS_WRONG_THREAD,
  stream_capturing = PINLANE_STATUS_STREAM_CAPTURING,
  forked_process = PINLANE_STATUS_FORKED_PROCESS,
  device_lost = PINLANE_STATUS_DEVICE_LOST,
  busy = PINLANE_STATUS_BUSY,
  invalid_handle = PINLANE_STATUS_INVALID_HANDLE,
  panic = PINLANE_STATUS_PANIC,
  cuda = PINLANE_STATUS_CUDA,
  timed_out = PINLANE_STATUS_TIMED_OUT,
  io = PINLANE_STATUS_IO,
  end = PINLANE_STATUS_END,
  producer = PINLANE_STATUS_PRODUCER,
  cancelled = PINLANE_STATUS_CANCELLED,
};

namespace any_mode {

class status_category final : public std::error_category {
public:
  [[nodiscard]] const char* name() const noexcept override { return "pinlane"; }
  [[nodiscard]] std::string message(int status) const override {
    return pinlane_status_name(static_cast<pinlane_status>(status));
  }
  [[nodiscard]] std::error_condition default_error_condition(int status) const noexcept override {
    switch (status) {
    case PINLANE_STATUS_INVALID_VALUE:
      return std::errc::invalid_argument;
    case PINLANE_STATUS_NOT_READY:
      return std::errc::resource_unavailable_try_again;
    case PINLANE_STATUS_BUDGET_EXHAUSTED:
    case PINLANE_STATUS_OUT_OF_HOST_MEMORY:
    case PINLANE_STATUS_OUT_OF_DEVICE_MEMORY:
      return std::errc::not_enough_memory;
    case PINLANE_STATUS_NO_DEVICE:
      return std::errc::no_such_device;
    case PINLANE_STATUS_UNSUPPORTED:
      return std::errc::not_supported;
    case PINLANE_STATUS_BUSY:
      return std::errc::device_or_resource_busy;
    case PINLANE_STATUS_TIMED_OUT:
      return std::errc::timed_out;
    case PINLANE_STATUS_IO:
      return std::errc::io_error;
    case PINLANE_STATUS_CANCELLED:
      return std::errc::operation_canceled;
    default:
      return {status, *this};
    }
  }
};

} // namespace any_mode

/// The category of `errc`. Lives as long as the process.
[[nodiscard]] inline const std::error_category& status_category() noexcept {
  static const auto* const category = new any_mode::status_category();
  return *category;
}

/// For `std::error_code`.
[[nodiscard]] inline std::error_code make_error_code(errc status) noexcept {
  return {static_cast<int>(status), status_category()};
}

/// The code for the result of a call with `std::nothrow`. As a condition it is false for
/// `PINLANE_STATUS_OK`.
[[nodiscard]] inline std::error_code code_of(pinlane_status status) noexcept {
  return {static_cast<int>(status), status_category()};
}

} // namespace pinlane

/// An `errc` converts to a `std::error_code`.
template <>
struct std::is_error_code_enum<pinlane::errc> : std::true_type {};

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Why a call failed. `what()` names the call, what was found, and what to do; `code()` is an
/// `errc`.
class error : public std::system_error {
public:
  /// The error of this thread's last pinlane call, which returned `status`.
  explicit error(pinlane_status status)
      : std::system_error(code_of(status)), m_message(pinlane_last_error()),
        m_cuda_error(pinlane_last_cuda_error()), m_producer_error(pinlane_last_producer_error()) {}

  /// The error of a check in these headers.
  error(pinlane_status status, const std::string& message)
      : std::system_error(code_of(status)), m_message(message) {}

  /// The message.
  [[nodiscard]] const char* what() const noexcept override { return m_message.what(); }

  /// One of `PINLANE_STATUS_*`.
  [[nodiscard]] pinlane_status status() const noexcept { return code().value(); }

  /// The `cudaError_t` that caused it; 0 if the CUDA runtime was not the cause.
  [[nodiscard]] int cuda_error() const noexcept { return m_cuda_error; }

  /// The result of the function of a `pinlane_producer` that caused it; 0 if none was the cause.
  [[nodiscard]] int producer_error() const noexcept { return m_producer_error; }

private:
  std::runtime_error m_message; // as a string whose copies do not throw
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

/// Whether a `cudaError_t` means a corrupted context: then the process must end.
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

/// Sets this thread's last error after a failed check in these headers, as the library does.
inline pinlane_status set_error(pinlane_status status, const char* message) noexcept {
  return pinlane_set_last_error(status, message);
}

inline void check(pinlane_status status) {
  if (status != PINLANE_STATUS_OK) {
    fail(status);
  }
}

/// Whether a `try_` function succeeded. `NOT_READY` is not an error.
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
  while (needed > text.size()) { // again if it has grown
    text.resize(needed);
    check(write(text.data(), text.size(), &needed));
  }
  text.resize(needed - 1);
  return text;
}

/// An overflow becomes a size that no buffer has, so the C call refuses it.
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

/// Calls `wait` with the microseconds that are left until `deadline`, and again if the clock was
/// set back.
template <class Clock, class Duration, class Wait>
pinlane_status wait_until(const std::chrono::time_point<Clock, Duration>& deadline, Wait wait) {
  while (true) {
    const auto now = Clock::now();
    const bool over = deadline <= now; // also keeps the difference from overflowing
    const pinlane_status status = wait(over ? 0 : in_microseconds(deadline - now));
    if (over || status != PINLANE_STATUS_TIMED_OUT || deadline <= Clock::now()) {
      return status;
    }
  }
}

/// Refuses a negative time if 0 has a special meaning, or if there is nothing to wait for.
template <class Rep, class Period>
void check_not_negative(std::chrono::duration<Rep, Period> time, const char* name) {
  if (time < time.zero()) {
    char text[128];
    std::snprintf(text, sizeof(text), "%s is negative: pass at least 0", name);
    fail(set_error(PINLANE_STATUS_INVALID_VALUE, text));
  }
}

/// Calls `function` when the scope ends, also by an exception.
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
