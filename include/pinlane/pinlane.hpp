/// @file
/// pinlane for C++17 and later: owning types, elements instead of bytes, exceptions instead of statuses.
/// Header-only, over pinlane.h; needs no header of CUDA.
///
/// @code
///   pinlane::device device = pinlane::device::open_or_emulated();
///   pinlane::pinned_pool pool(device);
///   pinlane::stream stream(device);
///
///   auto host = pool.alloc<float>(n);                  // page-locked
///   std::copy(data, data + n, host.write().begin());   // waits, if the device still uses the block
///   auto gpu = device.alloc<float>(n);
///   stream.upload(host, gpu);                          // returns at once
///   stream.download(gpu.slice(0, 8), host.slice(8, 8));
///   float first = host.read()[8];                      // waits for that copy, and no longer
/// @endcode
///
/// - **Ownership.** The types that own are move-only and free in their destructor, which neither blocks
///   nor throws; a buffer may be destroyed in the middle of a copy. Objects keep alive what they are
///   made from, so the order of destruction is free. `get()` lends the handle of the C interface,
///   `release()` gives it up, and an explicit constructor takes one over.
/// - **Empty objects.** A default-constructed or moved-from object is empty: `get()` is NULL, and calls
///   on it fail with `PINLANE_STATUS_INVALID_HANDLE`.
/// - **Errors.** A call that fails throws `pinlane::error`. The calls of a hot path have a form whose
///   first argument is `std::nothrow`, which returns the status instead and never throws. With
///   `-fno-exceptions` a failure of a throwing form prints its message and aborts.
/// - **Threads.** As in pinlane.h: any thread may call anything; a buffer is used by one thread at a time.
///
/// Sizes and offsets are in elements unless a name says bytes. What a function does is told here; all
/// the statuses it can give are listed in pinlane.h, by the C function of the same name.

#ifndef PINLANE_PINLANE_HPP
#define PINLANE_PINLANE_HPP

#include "pinlane.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__cpp_lib_span) || (__cplusplus >= 202002L && __has_include(<span>))
#include <span>
#endif

namespace pinlane {

/// Why a call failed. `what()` names the call, what was found, and what to do.
class error : public std::runtime_error {
public:
  /// Of this thread's last pinlane call, which returned `status`.
  explicit error(pinlane_status status)
      : std::runtime_error(pinlane_last_error()),
        m_status(status),
        m_cuda_error(pinlane_last_cuda_error()) {}

  /// Of a check that this header made itself.
  error(pinlane_status status, const std::string& message)
      : std::runtime_error(message), m_status(status) {}

  /// One of `PINLANE_STATUS_*`.
  [[nodiscard]] pinlane_status status() const noexcept { return m_status; }

  /// The `cudaError_t` behind it; 0 if the CUDA runtime was not the cause.
  [[nodiscard]] int cuda_error() const noexcept { return m_cuda_error; }

private:
  pinlane_status m_status;
  int m_cuda_error = 0;
};

namespace detail {

template <class... Arguments>
[[noreturn]] inline void fail(const Arguments&... arguments) {
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
  throw error(arguments...);
#else
  std::fprintf(stderr, "%s\n", error(arguments...).what());
  std::abort();
#endif
}

inline void check(pinlane_status status) {
  if (status != PINLANE_STATUS_OK) {
    fail(status);
  }
}

/// An overflow becomes a size that no buffer has, so that the call it goes to refuses it.
constexpr std::size_t in_bytes(std::size_t count, std::size_t element) noexcept {
  return count > SIZE_MAX / element ? SIZE_MAX : count * element;
}

/// A handle, and the duty to free it.
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
  /// The handle, which the caller must free from now on.
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

/// `size()` elements from `data()` on, owned by somebody else. Converts to `std::span` where there is one.
template <class T>
class span {
public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr span() noexcept = default;
  constexpr span(T* data, std::size_t size) noexcept : m_data(data), m_size(size) {}
  /// From a `std::vector`, `std::array`, `std::span`, ...
  template <class Container,
            class = std::enable_if_t<std::is_convertible_v<
                std::remove_pointer_t<decltype(std::declval<Container&>().data())> (*)[], T (*)[]>>>
  constexpr span(Container& elements) noexcept : m_data(elements.data()), m_size(elements.size()) {}

  [[nodiscard]] constexpr T* data() const noexcept { return m_data; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return m_size * sizeof(T); }
  [[nodiscard]] constexpr bool empty() const noexcept { return m_size == 0; }
  [[nodiscard]] constexpr T* begin() const noexcept { return m_data; }
  [[nodiscard]] constexpr T* end() const noexcept { return m_data + m_size; }
  /// Unchecked.
  [[nodiscard]] constexpr T& operator[](std::size_t index) const noexcept { return m_data[index]; }

private:
  T* m_data = nullptr;
  std::size_t m_size = 0;
};

/// Some of the elements of a buffer, to name in a copy: no access and no ownership. `slice(offset,
/// count)` of a buffer makes one; whether it lies in the buffer is checked by the call that it goes to.
template <class T, class Handle>
class basic_slice {
public:
  using element_type = T;
  using handle_type = Handle;

  constexpr basic_slice(Handle* handle, std::size_t offset, std::size_t size) noexcept
      : m_handle(handle), m_offset(offset), m_size(size) {}

  [[nodiscard]] constexpr Handle* get() const noexcept { return m_handle; }
  [[nodiscard]] constexpr std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept {
    return detail::in_bytes(m_size, sizeof(T));
  }
  [[nodiscard]] constexpr std::size_t offset_bytes() const noexcept {
    return detail::in_bytes(m_offset, sizeof(T));
  }
  /// Itself, so that a copy takes buffers and slices alike.
  [[nodiscard]] constexpr basic_slice slice() const noexcept { return *this; }

private:
  Handle* m_handle;
  std::size_t m_offset;
  std::size_t m_size;
};

/// Some of the elements of a `pinned_buffer`.
template <class T>
using pinned_slice = basic_slice<T, pinlane_buffer>;

/// Some of the elements of a `device_buffer`.
template <class T>
using device_slice = basic_slice<T, pinlane_device_buffer>;

namespace detail {

/// What the two kinds of buffers share.
template <class T, class Handle, pinlane_status (*Free)(Handle*)>
class buffer : public owner<Handle, Free> {
  static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");
  static_assert(!std::is_const_v<T>, "a buffer's elements are written");
  static_assert(alignof(T) <= 256, "buffers are aligned to 256 bytes at least");

public:
  using element_type = T;

  buffer() noexcept = default;
  buffer(buffer&& other) noexcept
      : owner<Handle, Free>(std::move(other)), m_size(std::exchange(other.m_size, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    owner<Handle, Free>::operator=(std::move(other));
    m_size = std::exchange(other.m_size, 0);
    return *this;
  }

  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return m_size; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return m_size * sizeof(T); }
  [[nodiscard]] bool empty() const noexcept { return m_size == 0; }

  /// All elements.
  [[nodiscard]] basic_slice<T, Handle> slice() noexcept { return slice(0, m_size); }
  [[nodiscard]] basic_slice<const T, Handle> slice() const noexcept { return slice(0, m_size); }
  /// `count` elements from `offset` on.
  [[nodiscard]] basic_slice<T, Handle> slice(std::size_t offset, std::size_t count) noexcept {
    return {this->get(), offset, count};
  }
  [[nodiscard]] basic_slice<const T, Handle> slice(std::size_t offset,
                                                   std::size_t count) const noexcept {
    return {this->get(), offset, count};
  }

  /// The handle, which the caller must free from now on.
  [[nodiscard]] Handle* release() noexcept {
    m_size = 0;
    return owner<Handle, Free>::release();
  }

protected:
  buffer(Handle* handle, std::size_t size) noexcept : owner<Handle, Free>(handle), m_size(size) {}

private:
  std::size_t m_size = 0;
};

} // namespace detail

/// `size()` elements in page-locked host memory, from a `pinned_pool`. The buffer knows which
/// asynchronous work still uses it; destroying it in the middle of a copy is fine.
template <class T>
class [[nodiscard]] pinned_buffer
    : public detail::buffer<T, pinlane_buffer, pinlane_buffer_free> {
  using base = detail::buffer<T, pinlane_buffer, pinlane_buffer_free>;

public:
  pinned_buffer() noexcept = default;

  /// Takes over a handle of the C interface, whose bytes must be a whole number of elements.
  [[nodiscard]] static pinned_buffer adopt(pinlane_buffer* handle) {
    std::size_t bytes = 0;
    detail::check(pinlane_buffer_size(handle, &bytes));
    if (bytes % sizeof(T) != 0) {
      detail::fail(PINLANE_STATUS_LENGTH_MISMATCH,
                   "pinned_buffer::adopt: " + std::to_string(bytes) +
                       " bytes are no whole number of elements of " + std::to_string(sizeof(T)));
    }
    return pinned_buffer(handle, bytes / sizeof(T));
  }

  /// The elements, to read. Blocks until every pending device write to the buffer is complete. They may
  /// be read until the next call that lets the device write the buffer.
  [[nodiscard]] span<const T> read() const { return checked(&pinned_buffer::read, *this); }
  [[nodiscard]] pinlane_status read(std::nothrow_t, span<const T>& elements) const noexcept {
    return access(pinlane_buffer_read, elements);
  }

  /// The elements, to write. Blocks until every pending device use of the buffer is complete. They may
  /// be written until the next call that lets the device use the buffer.
  [[nodiscard]] span<T> write() { return checked(&pinned_buffer::write, *this); }
  [[nodiscard]] pinlane_status write(std::nothrow_t, span<T>& elements) noexcept {
    return access(pinlane_buffer_write, elements);
  }

  /// As `read`, but does not block: empty where that would wait.
  [[nodiscard]] std::optional<span<const T>> try_read() const {
    return unless_pending(&pinned_buffer::try_read, *this);
  }
  [[nodiscard]] pinlane_status try_read(std::nothrow_t, span<const T>& elements) const noexcept {
    return access(pinlane_buffer_try_read, elements);
  }

  /// As `write`, but does not block: empty where that would wait.
  [[nodiscard]] std::optional<span<T>> try_write() {
    return unless_pending(&pinned_buffer::try_write, *this);
  }
  [[nodiscard]] pinlane_status try_write(std::nothrow_t, span<T>& elements) noexcept {
    return access(pinlane_buffer_try_write, elements);
  }

  /// The address of the first element, for your own CUDA calls inside `stream::foreign`. The host must
  /// not touch the elements through it: use `read` and `write`.
  [[nodiscard]] T* address() const {
    void* data = nullptr;
    detail::check(pinlane_buffer_address(this->get(), &data));
    return static_cast<T*>(data);
  }

private:
  friend class pinned_pool;
  using base::base;

  template <class Element>
  using access_form = pinlane_status (*)(std::nothrow_t, Element);

  template <class Access, class Element>
  pinlane_status access(Access function, span<Element>& elements) const noexcept {
    std::conditional_t<std::is_const_v<Element>, const void*, void*> data = nullptr;
    const pinlane_status status = function(this->get(), &data);
    if (status == PINLANE_STATUS_OK) {
      elements = {static_cast<Element*>(data), this->size()};
    }
    return status;
  }
};
