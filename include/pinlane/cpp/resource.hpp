/// @file
/// A pool as a `std::pmr::memory_resource`, for containers in page-locked memory. Empty if the
/// standard library has no memory resources.

#ifndef PINLANE_CPP_RESOURCE_HPP
#define PINLANE_CPP_RESOURCE_HPP

#include "stream.hpp"

#if __has_include(<memory_resource>)

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <new>
#include <optional>

namespace pinlane {
namespace any_mode {

/// A memory resource of a pool. One class for files of every mode, so that their resources
/// recognise each other. A resource of a file without RTTI has no type information, and
/// `dynamic_cast` of it crashes. So resources are recognised by their virtual tables.
class pool_resource : public std::pmr::memory_resource {
public:
  pool_resource(const pool_resource&) = delete;
  pool_resource& operator=(const pool_resource&) = delete;

protected:
  pool_resource() noexcept = default;

  /// For the constructor of a final class, which owns the pool.
  void introduce(pinlane_pool* pool) noexcept {
    m_pool = pool;
    const void* const own = table_of(*this);
    for (std::atomic<const void*>& known : s_tables) {
      const void* seen = nullptr;
      if (known.compare_exchange_strong(seen, own) || seen == own) {
        return;
      }
    }
  }

  /// Whether another resource has the same pool.
  [[nodiscard]] bool has_pool_of(const std::pmr::memory_resource& other) const noexcept {
    const void* const table = table_of(other);
    for (const std::atomic<const void*>& known : s_tables) {
      if (known.load() == table) {
        std::int32_t same = 0;
        const auto& resource = static_cast<const pool_resource&>(other);
        return pinlane_pool_is_same(m_pool, resource.m_pool, &same) == PINLANE_STATUS_OK &&
               same != 0;
      }
    }
    return false;
  }

private:
  /// The address of the virtual table, with which every such object begins.
  static const void* table_of(const std::pmr::memory_resource& resource) noexcept {
    const void* table = nullptr;
    std::memcpy(&table, static_cast<const void*>(&resource), sizeof(table));
    return table;
  }

  /// One for each mode, and more where libraries have their own.
  inline static std::atomic<const void*> s_tables[16]{};

  pinlane_pool* m_pool = nullptr;
};

} // namespace any_mode
} // namespace pinlane

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// The pool has no memory, or not in time. Containers, and programs that use them, expect a
/// `std::bad_alloc`, so this is one, and `cause()` is the `pinlane::error` with the reason.
///
/// It is not derived from `pinlane::error` as well: it would then have two bases `std::exception`,
/// and `catch (const std::exception&)` would not catch it.
class bad_alloc : public std::bad_alloc {
public:
  /// The error of this thread's last pinlane call, which returned `status`.
  explicit bad_alloc(pinlane_status status) : m_cause(status) {}

  /// What a `pinned_pool` would have thrown.
  [[nodiscard]] const error& cause() const noexcept { return m_cause; }
  [[nodiscard]] const char* what() const noexcept override { return m_cause.what(); }

private:
  error m_cause;
};

namespace detail {

// The common functions of the memory resources.

/// `timeout` is in microseconds.
inline void* allocate(const pinned_pool& pool, std::size_t bytes, std::size_t alignment,
                      std::optional<std::uint64_t> timeout = std::nullopt) {
  void* memory = nullptr;
  const pinlane_status status =
      timeout ? pinlane_pool_allocate_timeout(pool.get(), bytes, alignment, *timeout, &memory)
              : pinlane_pool_allocate(pool.get(), bytes, alignment, &memory);
  if (status != PINLANE_STATUS_OK) {
#if defined(PINLANE_CPP_EXCEPTIONS)
    throw bad_alloc(status);
#else
    fail(status);
#endif
  }
  return memory;
}

/// Succeeds even while another thread records a use. Ignores memory that is not from the pool,
/// because a container cannot handle an error.
inline void deallocate(const pinned_pool& pool, void* memory) noexcept {
  static_cast<void>(pinlane_pool_deallocate(pool.get(), memory));
}

inline bool is_same(const pinned_pool& pool, const pinned_pool& other) noexcept {
  std::int32_t same = 0;
  return pinlane_pool_is_same(pool.get(), other.get(), &same) == PINLANE_STATUS_OK && same != 0;
}

} // namespace detail

/// Page-locked memory for the containers of `std::pmr`.
///
/// @code
///   pinlane::pinned_resource resource(pool);
///   std::pmr::vector<float> samples(1000, &resource);
/// @endcode
///
/// - **Copies** recognise the memory: `stream.upload(samples, gpu)` runs at the full speed of the
///   link, and returns when the elements may be changed. `stream.upload(pinned_span(samples), gpu)`
///   returns at once.
/// - It is **plain memory**: unlike a `pinned_buffer`, it does not wait for a device that still
///   uses it. Copies of a `pinned_span`, and your own CUDA calls, must be complete before the host
///   accesses it. Your own CUDA calls must also be complete, or recorded with `record_use`, before
///   the container frees it.
/// - Throws `pinlane::bad_alloc`; with `-fno-exceptions`, prints its message and aborts. Blocks as
///   `pinned_pool::alloc` or, with a timeout, as `pinned_pool::alloc_timeout`.
/// - Each allocation takes a block of at least 256 bytes. For many small nodes put a
///   `std::pmr::unsynchronized_pool_resource` between this and the container.
/// - Keeps the pool alive, and must outlive all memory allocated with it. Resources of one pool are
///   equal, even with different timeouts.
/// - A forked child does not have the memory, and must not touch it; freeing it there does nothing.
class pinned_resource final : public any_mode::pool_resource {
public:
  explicit pinned_resource(const pinned_pool& pool) : m_pool(pool.clone()) {
    introduce(m_pool.get());
  }
  /// An allocation waits for room, for at most `timeout`, when the budget is spent.
  template <class Rep, class Period>
  pinned_resource(const pinned_pool& pool, std::chrono::duration<Rep, Period> timeout)
      : m_pool(pool.clone()), m_timeout(detail::in_microseconds(timeout)) {
    introduce(m_pool.get());
  }

  /// The pool that provides the memory.
  [[nodiscard]] const pinned_pool& pool() const noexcept { return m_pool; }

  /// Records everything on `stream` now as a use of the allocation that contains `memory`: after it
  /// is freed, the pool reuses it only when that work is complete. Call it after your own work is
  /// enqueued. Does not block.
  void record_use(const void* memory, stream_ref stream) const {
    detail::check(pinlane_pool_record_use(m_pool.get(), memory, stream.get()));
  }

  /// `allocate` and `deallocate` under the names that newer versions of libcu++ use.
  [[nodiscard]] void* allocate_sync(std::size_t bytes,
                                    std::size_t alignment = alignof(std::max_align_t)) {
    return allocate(bytes, alignment);
  }
  void deallocate_sync(void* memory, std::size_t bytes,
                       std::size_t alignment = alignof(std::max_align_t)) noexcept {
    deallocate(memory, bytes, alignment);
  }

private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate(m_pool, bytes, alignment, m_timeout);
  }

  void do_deallocate(void* memory, std::size_t, std::size_t) override {
    detail::deallocate(m_pool, memory);
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return has_pool_of(other);
  }

  pinned_pool m_pool;
  std::optional<std::uint64_t> m_timeout; // in microseconds
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // __has_include(<memory_resource>)

#endif // PINLANE_CPP_RESOURCE_HPP
