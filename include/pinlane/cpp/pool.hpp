/// @file
/// Pools of page-locked memory.

#ifndef PINLANE_CPP_POOL_HPP
#define PINLANE_CPP_POOL_HPP

#include "buffer.hpp"
#include "device.hpp"
#include "request.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Statistics of a pool. pinlane.h documents the members.
using pool_stats = pinlane_pool_stats;

/// Statistics of one block size of a pool. pinlane.h documents the members. A separate type,
/// because nvcc 13.0 does not compile a vector of the C struct as C++20.
struct class_stats : pinlane_class_stats {};
static_assert(sizeof(class_stats) == sizeof(pinlane_class_stats),
              "an array of one is an array of the other");

/// How memory is page-locked.
enum class page_locking : std::int32_t {
  /// Taken from the system in huge pages, touched by several threads, and registered with CUDA. An
  /// emulated machine with `watch_host` allocates instead, because it sees no other memory.
  registered = PINLANE_PAGE_LOCKING_REGISTER,
  /// Allocated by the CUDA runtime.
  allocated = PINLANE_PAGE_LOCKING_ALLOCATE,
};

/// Options of a pool. 0 means the default.
struct pool_options {
  /// The budget: the most that the pool may page-lock at a time. By default half of the memory.
  std::size_t max_bytes = 0;
  /// The most that one thread caches, in free blocks. By default 16 MiB.
  std::size_t thread_cache_bytes = 0;
  /// Whether threads cache blocks at all. If not, every allocation takes the pool's lock.
  bool thread_caches = true;
  /// When more than `high_watermark_bytes` are free, the pool gives memory back to the system until
  /// `low_watermark_bytes` are left. By default it does not.
  std::size_t low_watermark_bytes = 0, high_watermark_bytes = 0;
  /// Memory that has been free for this long goes back to the system. By default it does not.
  std::chrono::microseconds idle_age{0};
  /// How memory is page-locked.
  page_locking locking = page_locking::registered;
  /// The most threads that touch new memory. By default one for each core, at most 16.
  std::uint32_t growth_threads = 0;
  /// Maps the memory into the address space of the devices. With unified addressing it always is.
  bool mapped = false;
  /// Makes the memory write-combined. The CPU reads such memory many times slower, so use it for
  /// buffers that the host only writes, front to back.
  bool write_combined = false;
};

/// A pool of page-locked host memory. Its buffers stay valid after it is destroyed. The last of
/// them, or the pool, waits for the device and gives the memory back to the system.
class pinned_pool : public detail::owner<pinlane_pool, pinlane_pool_free> {
public:
  using owner::owner;

  /// A pool for copies from and to `device`. Does not page-lock memory yet.
  explicit pinned_pool(const device& device, pool_options options = {}) {
    pinlane_pool_options raw = PINLANE_POOL_OPTIONS_INIT;
    raw.max_bytes = options.max_bytes;
    raw.thread_cache_bytes = options.thread_cache_bytes;
    raw.low_watermark_bytes = options.low_watermark_bytes;
    raw.high_watermark_bytes = options.high_watermark_bytes;
    detail::check_not_negative(options.idle_age, "pool_options::idle_age");
    raw.idle_age_us = detail::in_microseconds(options.idle_age);
    raw.page_locking = static_cast<std::int32_t>(options.locking);
    raw.growth_threads = options.growth_threads;
    raw.flags = (options.mapped ? PINLANE_POOL_MAPPED : 0u) |
                (options.write_combined ? PINLANE_POOL_WRITE_COMBINED : 0u) |
                (options.thread_caches ? 0u : PINLANE_POOL_NO_THREAD_CACHES);
    pinlane_pool* handle = nullptr;
    detail::check(pinlane_pool_create(device.get(), &raw, &handle));
    *this = pinned_pool(handle);
  }

  /// Page-locked memory for `count` elements, of unspecified contents. Blocks while it page-locks
  /// new memory and, when the budget is spent, until the device is done with a freed buffer.
  template <class T>
  [[nodiscard]] pinned_buffer<T> alloc(std::size_t count) const {
    pinned_buffer<T> buffer;
    detail::check(alloc(std::nothrow, count, buffer));
    return buffer;
  }
  template <class T>
  [[nodiscard]] pinlane_status alloc(std::nothrow_t, std::size_t count,
                                     pinned_buffer<T>& buffer) const noexcept {
    return alloc_by(pinlane_buffer_alloc, count, buffer);
  }

  /// As `alloc`, with all bytes zero.
  template <class T>
  [[nodiscard]] pinned_buffer<T> alloc_zeroed(std::size_t count) const {
    pinned_buffer<T> buffer;
    detail::check(alloc_by(pinlane_buffer_alloc_zeroed, count, buffer));
    return buffer;
  }

  /// As `alloc`, but only from memory that is page-locked already: it does not page-lock memory and
  /// does not wait. No value if no block of that size is free.
  template <class T>
  [[nodiscard]] std::optional<pinned_buffer<T>> try_alloc(std::size_t count) const {
    pinned_buffer<T> buffer;
    const bool found = detail::ready(alloc_by(pinlane_buffer_try_alloc, count, buffer));
    return found ? std::optional(std::move(buffer)) : std::nullopt;
  }

  /// As `alloc`, with the first element at a multiple of `alignment` bytes: a power of two, at most
  /// 2 MiB.
  template <class T>
  [[nodiscard]] pinned_buffer<T> alloc_aligned(std::size_t count, std::size_t alignment) const {
    pinned_buffer<T> buffer;
    detail::check(alloc_by(pinlane_buffer_alloc_aligned, count, buffer, alignment));
    return buffer;
  }

  /// As `alloc`, but when the budget is spent it waits, for at most `timeout`, until there is room,
  /// even for buffers that other threads destroy. Throws `PINLANE_STATUS_TIMED_OUT`.
  template <class T, class Rep, class Period>
  [[nodiscard]] pinned_buffer<T> alloc_timeout(std::size_t count,
                                               std::chrono::duration<Rep, Period> timeout) const {
    pinned_buffer<T> buffer;
    detail::check(alloc_timeout(std::nothrow, count, timeout, buffer));
    return buffer;
  }
  template <class T, class Rep, class Period>
  [[nodiscard]] pinlane_status alloc_timeout(std::nothrow_t, std::size_t count,
                                             std::chrono::duration<Rep, Period> timeout,
                                             pinned_buffer<T>& buffer) const noexcept {
    return alloc_by(pinlane_buffer_alloc_timeout, count, buffer, detail::in_microseconds(timeout));
  }

  /// As `alloc_timeout`, until a point in time of any clock.
  template <class T, class Clock, class Duration>
  [[nodiscard]] pinned_buffer<T>
  alloc_until(std::size_t count, std::chrono::time_point<Clock, Duration> deadline) const {
    pinned_buffer<T> buffer;
    detail::check(alloc_until(std::nothrow, count, deadline, buffer));
    return buffer;
  }
  template <class T, class Clock, class Duration>
  [[nodiscard]] pinlane_status alloc_until(std::nothrow_t, std::size_t count,
                                           std::chrono::time_point<Clock, Duration> deadline,
                                           pinned_buffer<T>& buffer) const {
    return detail::wait_until(deadline, [&](std::uint64_t microseconds) {
      return alloc_by(pinlane_buffer_alloc_timeout, count, buffer, microseconds);
    });
  }

  /// As `alloc_timeout` without a limit, but does not block: calls `allocated` with a status and a
  /// `pinned_buffer<T>`, which is empty unless the status is `PINLANE_STATUS_OK`. See `request`.
  template <class T, class Allocated>
  request alloc_async(std::size_t count, Allocated allocated) const {
    pinlane_request* made = nullptr;
    detail::check(start_alloc<T>(get(), count, std::move(allocated), &made));
    return request(made);
  }

#if defined(PINLANE_CPP_COROUTINES)
  /// The same for `co_await`, which returns the `pinned_buffer<T>`. The pool must be alive when it
  /// is awaited.
  template <class T>
  [[nodiscard]] auto alloc_async(std::size_t count) const {
    return awaitable(alloc_call<T>{get(), count});
  }
#endif

  /// Gives free memory back to the system until `keep_bytes` of it are left. Returns the number of
  /// bytes given back. Blocks while the CUDA runtime releases the memory; the runtime may wait for
  /// devices.
  std::size_t trim(std::size_t keep_bytes = 0) const {
    std::size_t released = 0;
    detail::check(pinlane_pool_trim(get(), keep_bytes, &released));
    return released;
  }

  /// The pool's statistics.
  [[nodiscard]] pool_stats stats() const {
    pool_stats stats = PINLANE_POOL_STATS_INIT;
    detail::check(pinlane_pool_get_stats(get(), &stats));
    return stats;
  }

  /// The statistics of each block size, the smallest first.
  [[nodiscard]] std::vector<class_stats> classes() const {
    std::vector<class_stats> found;
    std::size_t count = 0;
    do { // again if other threads added sizes
      found.resize(count);
      detail::check(pinlane_pool_get_class_stats(get(), found.data(), found.size(), &count));
    } while (count > found.size());
    found.resize(count);
    return found;
  }

  /// The statistics as text, for people.
  [[nodiscard]] std::string stats_text() const { return stats_as(PINLANE_STATS_TEXT, ""); }

  /// The statistics as one JSON object, also by block size. Times are in nanoseconds.
  [[nodiscard]] std::string stats_json() const { return stats_as(PINLANE_STATS_JSON, ""); }

  /// The statistics for Prometheus, as the body of a response. The label `pool` has the value
  /// `name`. For several pools use `prometheus`.
  [[nodiscard]] std::string stats_prometheus(const std::string& name) const {
    return stats_as(PINLANE_STATS_PROMETHEUS, name.c_str());
  }

  /// The size of the block that a request of `bytes` bytes gets. At most an eighth of it is waste.
  [[nodiscard]] static std::size_t block_bytes(std::size_t bytes) {
    std::size_t block = 0;
    detail::check(pinlane_pool_block_bytes(bytes, &block));
    return block;
  }

  /// Another owner of the same pool.
  [[nodiscard]] pinned_pool clone() const {
    pinlane_pool* handle = nullptr;
    detail::check(pinlane_pool_clone(get(), &handle));
    return pinned_pool(handle);
  }

private:
  std::string stats_as(std::int32_t format, const char* name) const {
    return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* needed) {
      return pinlane_pool_stats_text(get(), format, name, buffer, capacity, needed);
    });
  }

  template <class T, class Allocated>
  static pinlane_status start_alloc(pinlane_pool* pool, std::size_t count, Allocated allocated,
                                    pinlane_request** request) {
    return detail::start<pinlane_status, pinlane_buffer*>(
        [count, allocated = std::move(allocated)](pinlane_status status,
                                                  pinlane_buffer* handle) mutable {
          allocated(status, pinned_buffer<T>(handle, handle != nullptr ? count : 0));
        },
        request,
        [&](auto... call) {
          return pinlane_buffer_alloc_async(pool, detail::in_bytes(count, sizeof(T)), call...);
        });
  }

#if defined(PINLANE_CPP_COROUTINES)
  template <class T>
  struct alloc_call {
    using outcome = std::pair<std::optional<error>, pinned_buffer<T>>;

    pinlane_pool* pool;
    std::size_t count;

    [[nodiscard]] static bool is_done() noexcept { return false; }

    template <class Tell>
    pinlane_status start(Tell tell, pinlane_request** request) const {
      auto told = [tell = std::move(tell)](pinlane_status status, pinned_buffer<T> buffer) mutable {
        tell(outcome(detail::failure_of(status), std::move(buffer)));
      };
      return start_alloc<T>(pool, count, std::move(told), request);
    }

    static pinned_buffer<T> result(outcome told) {
      if (told.first) {
        detail::fail(*told.first);
      }
      return std::move(told.second);
    }
  };
#endif

  template <class Alloc, class T, class... Options>
  pinlane_status alloc_by(Alloc function, std::size_t count, pinned_buffer<T>& buffer,
                          Options... options) const noexcept {
    pinlane_buffer* handle = nullptr;
    const pinlane_status status =
        function(get(), detail::in_bytes(count, sizeof(T)), options..., &handle);
    if (status == PINLANE_STATUS_OK) {
      buffer = pinned_buffer<T>(handle, count);
    }
    return status;
  }
};

template <class T>
pinned_pool pinned_buffer<T>::pool() const {
  pinlane_pool* handle = nullptr;
  detail::check(pinlane_buffer_pool(this->get(), &handle));
  return pinned_pool(handle);
}

/// A pool, and the name of its metrics. It refers to the pool and does not own it.
struct named_pool {
  named_pool(std::string called, const pinned_pool& of) : name(std::move(called)), pool(of.get()) {}

  std::string name;
  const pinlane_pool* pool;
};

/// The statistics of several pools for Prometheus, as the body of one response:
/// `prometheus({{"uploads", uploads}, {"downloads", downloads}})`. The names differ.
[[nodiscard]] inline std::string prometheus(const std::vector<named_pool>& pools) {
  std::vector<const pinlane_pool*> handles;
  std::vector<const char*> names;
  for (const named_pool& each : pools) {
    handles.push_back(each.pool);
    names.push_back(each.name.c_str());
  }
  return detail::text_of([&](char* buffer, std::size_t capacity, std::size_t* needed) {
    return pinlane_pools_prometheus(handles.data(), names.data(), pools.size(), buffer, capacity,
                                    needed);
  });
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_POOL_HPP
