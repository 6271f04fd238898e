/// @file
/// Batches that other threads make and copy to a device ahead of their use.

#ifndef PINLANE_CPP_PREFETCH_HPP
#define PINLANE_CPP_PREFETCH_HPP

#include "host_batch.hpp"
#include "stream.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// A batch on the device. Work on the stream of its `prefetch` is ordered after the copy. Work on
/// other streams is ordered if it uses the slices. Destroying it does not wait: its memory is
/// reused for a later batch, after all work that is on the stream by then.
class device_batch : public detail::owner<pinlane_device_buffer, pinlane_device_buffer_free> {
public:
  device_batch() noexcept = default;
  /// Takes over a batch of the C interface.
  explicit device_batch(pinlane_device_buffer* handle) noexcept : owner(handle) {
#if defined(PINLANE_CPP_EXCEPTIONS)
    try {
      learn();
    } catch (...) { // no memory for it
      m_slices.clear();
    }
#else
    learn();
#endif
  }

  /// The number of the batch in the producer's order, from 0.
  [[nodiscard]] std::uint64_t index() const {
    std::uint64_t index = 0;
    detail::check(pinlane_device_batch_index(get(), &index));
    return index;
  }

  /// Complete when the batch is on the device. The stream of the `prefetch` waits for it anyway.
  [[nodiscard]] pinlane::ticket ticket() const {
    pinlane_ticket* handle = nullptr;
    detail::check(pinlane_device_batch_ticket(get(), &handle));
    return pinlane::ticket(handle);
  }

  /// The names of the slices, in the order in which the producer's batch named them.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const part& slice : m_slices) {
      names.push_back(slice.name);
    }
    return names;
  }

  /// The slice with this name, for copies. `T` is its type in the producer's batch.
  template <class T>
  [[nodiscard]] device_slice<T> slice(const std::string& name = "0") {
    return find<T>(name);
  }
  template <class T>
  [[nodiscard]] device_slice<const T> slice(const std::string& name = "0") const {
    return find<const T>(name);
  }

  /// The device address of the first element of a slice, for your own kernels in `stream::foreign`.
  template <class T>
  [[nodiscard]] T* address(const std::string& name = "0") const& {
    void* first = nullptr;
    detail::check(pinlane_device_buffer_address(get(), &first));
    return reinterpret_cast<T*>(static_cast<char*>(first) + find<T>(name).offset_bytes());
  }
  /// Not of a temporary, whose memory would be freed.
  template <class T>
  T* address(const std::string& name = "0") const&& = delete;

private:
  struct part {
    std::string name;
    std::size_t offset, bytes;
  };

  /// Reads all slices, before `stream::foreign` can have borrowed the batch. Makes no call for an
  /// empty object, so that the last error stays.
  void learn() {
    std::size_t count = 0;
    if (get() != nullptr) {
      detail::check(pinlane_device_batch_count(get(), &count));
    }
    m_slices.reserve(count);
    for (std::size_t number = 0; number < count; ++number) {
      std::size_t needed = 0, offset = 0, bytes = 0;
      detail::check(pinlane_device_batch_name(get(), number, nullptr, 0, &needed));
      std::string name(needed, '\0');
      detail::check(pinlane_device_batch_name(get(), number, name.data(), needed, nullptr));
      name.resize(needed - 1); // without the NUL
      detail::check(pinlane_device_batch_slice(get(), name.c_str(), &offset, &bytes));
      m_slices.push_back({std::move(name), offset, bytes});
    }
  }

  template <class T>
  [[nodiscard]] device_slice<T> find(const std::string& name) const {
    for (const part& slice : m_slices) {
      if (slice.name == name && slice.offset % sizeof(T) == 0 && slice.bytes % sizeof(T) == 0) {
        return device_slice<T>(get(), slice.offset / sizeof(T), slice.bytes / sizeof(T));
      }
    }
    detail::fail(PINLANE_STATUS_INVALID_VALUE,
                 "device_batch::slice: no elements of " + std::to_string(sizeof(T)) +
                     " bytes are in \"" + name + "\": use the name and type of the producer");
  }

  std::vector<part> m_slices;
};

/// Options of a pipeline.
struct prefetch_options {
  /// How many batches may be ready or in progress: 1 to 65536. Batches that the consumer holds do
  /// not count.
  std::uint32_t depth = 3;
  /// How many threads pull, fill and copy: 1 to 256.
  std::uint32_t workers = 2;
  /// Whether batches come in the producer's order, or each as soon as it is ready.
  bool ordered = true;
  /// Whether the last batch is dropped if it has fewer bytes than the first.
  bool drop_last = false;
};

/// The progress of a pipeline. pinlane.h documents the members.
using prefetch_progress = pinlane_prefetch_progress;

/// A pipeline: threads of pinlane call a producer, and copy its batches to a device.
///
/// @code
///   pinlane::prefetch batches(pool, stream, [&]() -> std::optional<std::vector<float>> {
///     return loader.has_more() ? std::optional(loader.load()) : std::nullopt;
///   });
///   for (pinlane::device_batch& batch : batches) {
///     stream.foreign(pinlane::reading(batch),
///                    [&](auto s) { launch(s, batch.address<float>()); });
///   }
/// @endcode
///
/// - **The producer** is a function object that returns a `std::optional` of a batch, empty at the
///   end. One thread at a time calls it. `host_batch.hpp` says what a batch may be. The producer
///   and its batches are destroyed by threads of pinlane or by this object.
/// - **Errors.** An exception of the producer or of a batch is thrown by the call that would have
///   returned the batch. The next call returns the next batch.
/// - **The end.** The destructor waits until the producer and all batches' functions have returned.
///   So they may refer to objects that outlive this one. Device batches stay valid.
/// - **Threads.** One thread at a time takes batches.
class prefetch : public detail::owner<pinlane_prefetch, pinlane_prefetch_free> {
  using base = detail::owner<pinlane_prefetch, pinlane_prefetch_free>;

public:
  prefetch() noexcept = default;

  /// Starts threads that copy the batches of `producer` to the device of `stream`, for work on that
  /// stream. Batches that are filled, and small ones, go through blocks of `pool`.
  template <class Producer>
  prefetch(const pinned_pool& pool, stream_ref stream, Producer producer,
           prefetch_options options = {}) {
    pinlane_prefetch_options raw = PINLANE_PREFETCH_OPTIONS_INIT;
    raw.depth = options.depth;
    raw.workers = options.workers;
    raw.flags = (options.ordered ? 0u : PINLANE_PREFETCH_UNORDERED) |
                (options.drop_last ? PINLANE_PREFETCH_DROP_LAST : 0u);
    if (options.depth == 0 || options.workers == 0) {
      detail::fail(PINLANE_STATUS_INVALID_VALUE,
                   "prefetch: a depth or number of workers of 0: use at least 1");
    }
    m_failures = std::make_shared<detail::producer_failures>();
    auto source = std::make_shared<batch_source<Producer>>(std::move(producer), m_failures);
    const pinlane_producer functions = source->functions();
    m_source = std::move(source);
    pinlane_prefetch* handle = nullptr;
    detail::check(pinlane_prefetch_create(pool.get(), stream.get(), &functions, &raw, &handle));
    base::operator=(base(handle));
  }

  prefetch(prefetch&& other) noexcept = default;
  prefetch& operator=(prefetch&& other) noexcept {
    stop();
    base::operator=(std::move(other));
    m_source = std::move(other.m_source);
    m_failures = std::move(other.m_failures);
    m_current = std::move(other.m_current);
    return *this;
  }
  ~prefetch() { stop(); }

  /// The handle calls the producer, which this object owns.
  pinlane_prefetch* release() = delete;

  /// The next batch, or none at the end. Blocks until its copy is enqueued, and makes the stream
  /// wait, on the device, until it is complete.
  [[nodiscard]] std::optional<device_batch> next() {
    device_batch batch;
    const pinlane_status status = next_by(batch, pinlane_prefetch_next);
    return given(detail::failure_of(status), std::move(batch), m_failures);
  }
  /// `PINLANE_STATUS_END` at the end. Exceptions of the producer are dropped.
  [[nodiscard]] pinlane_status next(std::nothrow_t, device_batch& batch) noexcept {
    return without_exception(next_by(batch, pinlane_prefetch_next));
  }

  /// As `next`, but blocks for at most `timeout`. Throws `PINLANE_STATUS_TIMED_OUT`; the batch
  /// stays for a later call.
  template <class Rep, class Period>
  [[nodiscard]] std::optional<device_batch>
  next_timeout(std::chrono::duration<Rep, Period> timeout) {
    device_batch batch;
    const pinlane_status status =
        next_by(batch, pinlane_prefetch_next_timeout, detail::in_microseconds(timeout));
    return given(detail::failure_of(status), std::move(batch), m_failures);
  }
  template <class Rep, class Period>
  [[nodiscard]] pinlane_status next_timeout(std::nothrow_t,
                                            std::chrono::duration<Rep, Period> timeout,
                                            device_batch& batch) noexcept {
    return without_exception(
        next_by(batch, pinlane_prefetch_next_timeout, detail::in_microseconds(timeout)));
  }

  /// As `next_timeout`, until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] std::optional<device_batch>
  next_until(std::chrono::time_point<Clock, Duration> deadline) {
    device_batch batch;
    const pinlane_status status =
        detail::wait_until(deadline, [&](std::uint64_t microseconds) {
          return next_by(batch, pinlane_prefetch_next_timeout, microseconds);
        });
    return given(detail::failure_of(status), std::move(batch), m_failures);
  }

  /// As `next`, but does not block: calls `prefetched` with a status and a `device_batch`, which is
  /// empty unless the status is `PINLANE_STATUS_OK`. Until then other calls for a batch get `BUSY`.
  /// See `request`.
  template <class Prefetched>
  request next_async(Prefetched prefetched) {
    pinlane_request* made = nullptr;
    detail::check(start_next(get(), std::move(prefetched), &made));
    return request(made);
  }

#if defined(PINLANE_CPP_COROUTINES)
  /// The same for `co_await`, which returns the `std::optional<device_batch>`, or throws.
  [[nodiscard]] auto next_async() { return awaitable(next_call{get(), m_failures}); }
#endif

  /// Iterates over the batches, from the next one on. The reference is to a batch that lives until
  /// the next one is taken; move it out to keep it.
  class iterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = device_batch;
    using difference_type = std::ptrdiff_t;
    using pointer = device_batch*;
    using reference = device_batch&;

    iterator() noexcept = default;
    [[nodiscard]] device_batch& operator*() const noexcept { return *m_of->m_current; }
    [[nodiscard]] device_batch* operator->() const noexcept { return &*m_of->m_current; }
    iterator& operator++() {
      m_of->m_current.reset(); // its memory can be reused
      m_of->m_current = m_of->next();
      m_of = m_of->m_current ? m_of : nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    [[nodiscard]] friend bool operator==(iterator one, iterator other) noexcept {
      return one.m_of == other.m_of;
    }
    [[nodiscard]] friend bool operator!=(iterator one, iterator other) noexcept {
      return one.m_of != other.m_of;
    }

  private:
    friend class prefetch;
    explicit iterator(prefetch& of) : m_of(&of) { ++*this; }
    prefetch* m_of = nullptr;
  };

  [[nodiscard]] iterator begin() { return iterator(*this); }
  [[nodiscard]] iterator end() noexcept { return {}; }

  /// The counters. Any thread may read them.
  [[nodiscard]] prefetch_progress progress() const {
    prefetch_progress progress = PINLANE_PREFETCH_PROGRESS_INIT;
    detail::check(pinlane_prefetch_get_progress(get(), &progress));
    return progress;
  }

private:
  using failures = std::shared_ptr<detail::producer_failures>;

  /// Converts the result of a call for the program.
  static std::optional<device_batch> given(const std::optional<error>& failure, device_batch batch,
                                           const failures& failures) {
    if (!failure) {
      return batch;
    }
    if (failure->status() == PINLANE_STATUS_END) {
      return std::nullopt;
    }
    if (failure->status() == PINLANE_STATUS_PRODUCER) {
      if (const std::exception_ptr thrown = failures->take(failure->producer_error())) {
        std::rethrow_exception(thrown);
      }
    }
    detail::fail(*failure);
  }

  template <class Function, class... Options>
  pinlane_status next_by(device_batch& batch, Function function, Options... options) noexcept {
    pinlane_device_buffer* handle = nullptr;
    const pinlane_status status = function(get(), options..., &handle);
    if (status == PINLANE_STATUS_OK) {
      batch = device_batch(handle);
    }
    return status;
  }

  pinlane_status without_exception(pinlane_status status) noexcept {
    if (status == PINLANE_STATUS_PRODUCER) {
      static_cast<void>(m_failures->take(pinlane_last_producer_error()));
    }
    return status;
  }

  template <class Prefetched>
  static pinlane_status start_next(pinlane_prefetch* from, Prefetched prefetched,
                                   pinlane_request** request) {
    return detail::start<pinlane_status, pinlane_device_buffer*>(
        [prefetched = std::move(prefetched)](pinlane_status status,
                                             pinlane_device_buffer* handle) mutable {
          prefetched(status, device_batch(handle));
        },
        request, [&](auto... call) { return pinlane_prefetch_next_async(from, call...); });
  }

#if defined(PINLANE_CPP_COROUTINES)
  struct next_call {
    using outcome = std::pair<std::optional<error>, device_batch>;

    pinlane_prefetch* from;
    failures thrown;

    [[nodiscard]] static bool is_done() noexcept { return false; }

    template <class Tell>
    pinlane_status start(Tell tell, pinlane_request** request) const {
      auto told = [tell = std::move(tell)](pinlane_status status, device_batch batch) mutable {
        tell(outcome(detail::failure_of(status), std::move(batch)));
      };
      return start_next(from, std::move(told), request);
    }

    std::optional<device_batch> result(outcome told) const {
      return given(told.first, std::move(told.second), thrown);
    }
  };
#endif

  /// Waits until the producer is no longer called.
  void stop() noexcept {
    m_current.reset();
    if (pinlane_prefetch_free(base::release()) != PINLANE_STATUS_OK && m_source) {
      // Fails only inside the producer itself, or a host function: the producer may still be
      // called, so it leaks.
      static_cast<void>(new (std::nothrow) std::shared_ptr<void>(m_source));
    }
    m_source.reset();
  }

  std::shared_ptr<void> m_source;
  failures m_failures;
  std::optional<device_batch> m_current;
};

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_PREFETCH_HPP
