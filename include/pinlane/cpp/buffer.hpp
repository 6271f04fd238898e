/// @file
/// Buffers in page-locked and in device memory, and slices of them.

#ifndef PINLANE_CPP_BUFFER_HPP
#define PINLANE_CPP_BUFFER_HPP

#include "error.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

template <class T>
class span;

namespace detail {

template <class Container>
inline constexpr bool is_span = false;
template <class T>
inline constexpr bool is_span<span<T>> = true;
template <class Container>
inline constexpr bool is_std_span = false;
#if defined(__cpp_lib_span)
template <class T, std::size_t Size>
inline constexpr bool is_std_span<std::span<T, Size>> = true;
#endif

/// Whether a span of `T` may name the elements of `Container`, as passed: contiguous, of that type,
/// and not a temporary unless `T` is const, as for `std::span`.
template <class Container, class T, class = void>
inline constexpr bool has_elements = false;
template <class Container, class T>
inline constexpr bool
    has_elements<Container, T,
                 std::void_t<decltype(std::data(std::declval<Container&>())),
                             decltype(std::size(std::declval<Container&>()))>> =
        std::is_convertible_v<
            std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))> (*)[],
            T (*)[]> &&
        !is_span<std::remove_cv_t<std::remove_reference_t<Container>>> &&
        (std::is_lvalue_reference_v<Container> || std::is_const_v<T> ||
         is_std_span<std::remove_cv_t<Container>>);
template <class Container, class T>
using if_elements_of = std::enable_if_t<has_elements<Container, T>, int>;

} // namespace detail

/// A view of `size()` elements from `data()` on. Converts to `std::span` if the standard library
/// has it.
template <class T>
class span {
public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr span() noexcept = default;
  constexpr span(T* data, std::size_t size) noexcept : m_data(data), m_size(size) {}
  /// From a span of elements that may be written.
  template <class Element, class = std::enable_if_t<std::is_same_v<const Element, T>>>
  constexpr span(span<Element> elements) noexcept
      : m_data(elements.data()), m_size(elements.size()) {}
  /// From a contiguous container that outlives the span, such as a vector, an array, or a
  /// `std::span`. A temporary container may become a span of const elements, for an argument.
  template <class Container, detail::if_elements_of<Container, T> = 0>
  constexpr span(Container&& container) noexcept
      : m_data(std::data(container)), m_size(std::size(container)) {}

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

template <class Container>
span(Container&&)
    -> span<std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>>;

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#if defined(__cpp_lib_span)
// The elements outlive the span: it does not own them.
template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<pinlane::span<T>> = true;
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Names a part of a buffer, for a copy. Neither owns nor accesses the elements. `slice(offset,
/// count)` of a buffer makes one; the call that takes it checks that it lies in the buffer.
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

/// The common part of the two kinds of buffers.
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

  /// Gives up the handle: now the caller must free it.
  [[nodiscard]] Handle* release() noexcept {
    m_size = 0;
    return owner<Handle, Free>::release();
  }

protected:
  buffer(Handle* handle, std::size_t size) noexcept : owner<Handle, Free>(handle), m_size(size) {}

  static std::size_t whole_elements(std::size_t bytes, const void* first) {
    if (bytes % sizeof(T) != 0) {
      fail(PINLANE_STATUS_LENGTH_MISMATCH, "adopt: a buffer of " + std::to_string(bytes) +
                                               " bytes holds no whole number of elements of " +
                                               std::to_string(sizeof(T)));
    }
    if (bytes > 0 && reinterpret_cast<std::uintptr_t>(first) % alignof(T) != 0) {
      fail(PINLANE_STATUS_INVALID_VALUE,
           "adopt: the buffer's memory is not aligned to " + std::to_string(alignof(T)) + " bytes");
    }
    return bytes / sizeof(T);
  }

private:
  std::size_t m_size = 0;
};

} // namespace detail

class pinned_pool;

/// `size()` elements in page-locked host memory, from a `pinned_pool`, or your own memory, from
/// `device::register_memory`. The buffer tracks the asynchronous work that uses it. It may be
/// destroyed in the middle of a copy.
template <class T>
class pinned_buffer : public detail::buffer<T, pinlane_buffer, pinlane_buffer_free> {
  using base = detail::buffer<T, pinlane_buffer, pinlane_buffer_free>;

public:
  pinned_buffer() noexcept = default;

  /// Takes over a handle of the C interface. Its bytes must be a whole number of elements, and
  /// aligned for them. If it throws, you keep the handle.
  [[nodiscard]] static pinned_buffer adopt(pinlane_buffer* handle) {
    std::size_t bytes = 0;
    void* first = nullptr;
    detail::check(pinlane_buffer_size(handle, &bytes));
    detail::check(pinlane_buffer_address(handle, &first));
    return pinned_buffer(handle, base::whole_elements(bytes, first));
  }

  /// The elements, for reading. Blocks until every pending device write to the buffer is complete.
  /// They may be read until the next call that lets the device write to the buffer.
  [[nodiscard]] span<const T> read() const& {
    span<const T> elements;
    detail::check(read(std::nothrow, elements));
    return elements;
  }
  [[nodiscard]] pinlane_status read(std::nothrow_t, span<const T>& elements) const& noexcept {
    return access(pinlane_buffer_read, elements);
  }
  /// Not of a temporary, whose elements would be destroyed. The same holds below.
  span<const T> read() const&& = delete;
  pinlane_status read(std::nothrow_t, span<const T>& elements) const&& noexcept = delete;

  /// The elements, for writing. Blocks until every pending device use of the buffer is complete.
  /// They may be written until the next call that lets the device use the buffer.
  [[nodiscard]] span<T> write() & {
    span<T> elements;
    detail::check(write(std::nothrow, elements));
    return elements;
  }
  [[nodiscard]] pinlane_status write(std::nothrow_t, span<T>& elements) & noexcept {
    return access(pinlane_buffer_write, elements);
  }
  span<T> write() && = delete;
  pinlane_status write(std::nothrow_t, span<T>& elements) && noexcept = delete;

  /// As `read`, but does not block: no value if it would have to wait.
  [[nodiscard]] std::optional<span<const T>> try_read() const& {
    span<const T> elements;
    return detail::ready(try_read(std::nothrow, elements)) ? std::optional(elements) : std::nullopt;
  }
  [[nodiscard]] pinlane_status try_read(std::nothrow_t, span<const T>& elements) const& noexcept {
    return access(pinlane_buffer_try_read, elements);
  }
  std::optional<span<const T>> try_read() const&& = delete;
  pinlane_status try_read(std::nothrow_t, span<const T>& elements) const&& noexcept = delete;

  /// As `write`, but does not block: no value if it would have to wait.
  [[nodiscard]] std::optional<span<T>> try_write() & {
    span<T> elements;
    return detail::ready(try_write(std::nothrow, elements)) ? std::optional(elements)
                                                            : std::nullopt;
  }
  [[nodiscard]] pinlane_status try_write(std::nothrow_t, span<T>& elements) & noexcept {
    return access(pinlane_buffer_try_write, elements);
  }
  std::optional<span<T>> try_write() && = delete;
  pinlane_status try_write(std::nothrow_t, span<T>& elements) && noexcept = delete;

  /// The address of the first element, for your own CUDA calls in `stream::foreign`. The host must
  /// not access the elements through it, but through `read` and `write`.
  [[nodiscard]] T* address() const& {
    void* data = nullptr;
    detail::check(pinlane_buffer_address(this->get(), &data));
    return static_cast<T*>(data);
  }
  T* address() const&& = delete;

  /// The pool that the buffer came from, as another owner of it. Throws
  /// `PINLANE_STATUS_INVALID_VALUE` for your own memory, and if the pool has no owner any more.
  [[nodiscard]] pinned_pool pool() const;

private:
  friend class device;
  friend class pinned_pool;
  pinned_buffer(pinlane_buffer* handle, std::size_t size) noexcept : base(handle, size) {}

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

/// `size()` elements of memory that nothing changes, from `device::register_read_only` or
/// `from_dlpack_read_only`: a source of uploads, and of nothing else.
template <class T>
class read_only_buffer : public detail::buffer<T, pinlane_buffer, pinlane_buffer_free> {
  using base = detail::buffer<T, pinlane_buffer, pinlane_buffer_free>;

public:
  read_only_buffer() noexcept = default;

  /// Takes over a handle of the C interface, as `pinned_buffer::adopt`.
  [[nodiscard]] static read_only_buffer adopt(pinlane_buffer* handle) {
    std::size_t bytes = 0;
    void* first = nullptr;
    detail::check(pinlane_buffer_size(handle, &bytes));
    detail::check(pinlane_buffer_address(handle, &first));
    return read_only_buffer(handle, base::whole_elements(bytes, first));
  }

  /// All elements, or `count` from `offset` on, as a source of copies.
  [[nodiscard]] auto slice() const noexcept { return base::slice(); }
  [[nodiscard]] auto slice(std::size_t offset, std::size_t count) const noexcept {
    return base::slice(offset, count);
  }

  /// The elements. Waits for nothing: uploads only read them too.
  [[nodiscard]] span<const T> read() const& {
    const void* data = nullptr;
    detail::check(pinlane_buffer_read(this->get(), &data));
    return {static_cast<const T*>(data), this->size()};
  }
  /// Not of a temporary, whose elements would be destroyed.
  span<const T> read() const&& = delete;

private:
  friend class device;
  read_only_buffer(pinlane_buffer* handle, std::size_t size) noexcept : base(handle, size) {}
};

/// `size()` elements in the memory of a device. It may be destroyed in the middle of a copy: the
/// memory is freed after its last use.
template <class T>
class device_buffer : public detail::buffer<T, pinlane_device_buffer, pinlane_device_buffer_free> {
  using base = detail::buffer<T, pinlane_device_buffer, pinlane_device_buffer_free>;

public:
  device_buffer() noexcept = default;

  /// Takes over a handle of the C interface. Its bytes must be a whole number of elements, and
  /// aligned for them. If it throws, you keep the handle.
  [[nodiscard]] static device_buffer adopt(pinlane_device_buffer* handle) {
    std::size_t bytes = 0;
    void* first = nullptr;
    detail::check(pinlane_device_buffer_size(handle, &bytes));
    detail::check(pinlane_device_buffer_address(handle, &first));
    return device_buffer(handle, base::whole_elements(bytes, first));
  }

  /// The device address of the first element, for your own kernels in `stream::foreign`. NULL if
  /// the buffer is empty.
  [[nodiscard]] T* address() const& {
    void* pointer = nullptr;
    detail::check(pinlane_device_buffer_address(this->get(), &pointer));
    return static_cast<T*>(pointer);
  }
  /// Not of a temporary, whose memory would be freed.
  T* address() const&& = delete;

private:
  friend class device;
  device_buffer(pinlane_device_buffer* handle, std::size_t size) noexcept : base(handle, size) {}
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_BUFFER_HPP
