/// @file
/// Your own work on pinlane's buffers, ordered as pinlane's work.

#ifndef PINLANE_CPP_FOREIGN_HPP
#define PINLANE_CPP_FOREIGN_HPP

#include "sides.hpp"
#include "ticket.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

/// Declared as in the CUDA runtime: a `cudaStream_t` is a `CUstream_st*`.
struct CUstream_st;

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// A buffer that your own work uses, and its access, from `reading` or `writing`. It names the
/// buffer and does not own it.
struct use : pinlane_use {};
static_assert(sizeof(use) == sizeof(pinlane_use), "an array of one is an array of the other");

namespace detail {

/// Ends the program's own work without a ticket.
inline pinlane_status end_foreign(pinlane_foreign* work) noexcept {
  return pinlane_foreign_end(work, nullptr);
}

} // namespace detail

/// Your own work between its begin and its end, from `stream::begin_foreign`. Everything that is on
/// the stream when it ends counts as a use of the buffers. Destroying it ends it, on any thread.
class foreign_work : detail::owner<pinlane_foreign, detail::end_foreign> {
  using base = detail::owner<pinlane_foreign, detail::end_foreign>;

public:
  foreign_work() noexcept = default;
  foreign_work(pinlane_foreign* handle, CUstream_st* stream) noexcept
      : base(handle), m_stream(stream) {}
  using base::operator bool;

  /// The stream's `cudaStream_t`, on which the work is enqueued.
  [[nodiscard]] CUstream_st* native_handle() const noexcept { return m_stream; }

  /// Ends the work, and returns its ticket. This object is then empty, even if this throws.
  ticket finish() {
    pinlane_ticket* done = nullptr;
    detail::check(pinlane_foreign_end(base::release(), &done));
    return ticket(done);
  }

private:
  CUstream_st* m_stream = nullptr;
};

/// Some uses, from `reading` or `writing`. One of them converts to a `use`.
template <std::size_t Count>
class use_list {
public:
  explicit use_list(const std::array<use, Count>& uses) noexcept : m_uses(uses) {}

  [[nodiscard]] const use* data() const noexcept { return m_uses.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return Count; }

  template <std::size_t Only = Count, std::enable_if_t<Only == 1, int> = 0>
  operator use() const noexcept {
    return m_uses[0];
  }

private:
  std::array<use, Count> m_uses;
};

namespace detail {

inline use use_of(pinlane_buffer* buffer, std::int32_t access) noexcept {
  return {{buffer, nullptr, access, 0, 0}};
}
inline use use_of(pinlane_device_buffer* buffer, std::int32_t access) noexcept {
  return {{nullptr, buffer, access, 0, 0}};
}

template <class... Uses>
use_list<sizeof...(Uses)> list_of(const Uses&... uses) noexcept {
  return use_list<sizeof...(Uses)>(std::array<use, sizeof...(Uses)>{{uses...}});
}

} // namespace detail

/// Your work only reads these buffers. Any number of threads and streams may do so at once.
template <class... Buffers>
[[nodiscard]] use_list<sizeof...(Buffers)> reading(const Buffers&... buffers) noexcept {
  return detail::list_of(detail::use_of(buffers.get(), PINLANE_ACCESS_READ)...);
}

/// Your work writes these buffers, and may read them.
template <class... Buffers>
[[nodiscard]] use_list<sizeof...(Buffers)> writing(Buffers&&... buffers) noexcept {
  (detail::check_writable<decltype(buffers.slice())>(), ...);
  return detail::list_of(detail::use_of(buffers.get(), PINLANE_ACCESS_WRITE)...);
}

namespace detail {

template <class Container>
using data_of = decltype(std::data(std::declval<const Container&>()));

/// Whether `Uses` is a use_list, or another contiguous container of uses.
template <class Uses, class = const use*>
inline constexpr bool are_uses = false;
template <class Uses>
inline constexpr bool are_uses<Uses, data_of<Uses>> = true;

template <std::size_t Reads, std::size_t Writes>
use_list<Reads + Writes> joined(const use_list<Reads>& reads, const use_list<Writes>& writes) {
  std::array<use, Reads + Writes> uses{};
  auto* const behind = std::copy(reads.data(), reads.data() + Reads, uses.data());
  std::copy(writes.data(), writes.data() + Writes, behind);
  return use_list<Reads + Writes>(uses);
}
template <class Reads, class Writes>
std::vector<use> joined(const Reads& reads, const Writes& writes) {
  std::vector<use> uses(std::data(reads), std::data(reads) + std::size(reads));
  uses.insert(uses.end(), std::data(writes), std::data(writes) + std::size(writes));
  return uses;
}

/// Your own work on a stream. `Self` is `stream` or `stream_ref`.
template <class Self>
class foreign_operations {
public:
  /// Lets `launch` enqueue your own work (a kernel, cuBLAS, NCCL, ...), which reads and writes the
  /// buffers that `reads` and `writes` name:
  ///
  /// @code
  ///   stream.foreign(pinlane::reading(weights, x), pinlane::writing(y), [&](auto native) {
  ///     kernel<<<grid, block, 0, native>>>(weights.address(), x.address(), y.address());
  ///   });
  /// @endcode
  ///
  /// `launch` gets the stream's `cudaStream_t`, which is a `void*` too. It enqueues all of the work
  /// on that stream, or orders it into that stream, before it returns. The work waits for every
  /// pending use of the buffers that conflicts, and later uses, by the host too, wait for the work.
  /// Does not block, unless `launch` does.
  ///
  /// The buffers are borrowed from before `launch` until the use is recorded: conflicting calls of
  /// other threads, or of `launch` itself, get `BUSY`. Readers do not conflict: any number of
  /// threads launch work on shared weights at once, and their work runs at once. `launch` may move
  /// or destroy the buffers.
  ///
  /// If `launch` throws, or its thread ends in it (`pthread_exit`, cancellation), what it enqueued
  /// so far counts as a use. Then the exception continues, or the thread ends. With
  /// `-fno-exceptions` a thread must not end in it, because nothing would give the buffers back.
  template <class Reads, class Writes, class Launch>
  ticket foreign(const Reads& reads, const Writes& writes, Launch&& launch) const {
    check_uses<Reads>();
    check_uses<Writes>();
    return foreign(joined(reads, writes), std::forward<Launch>(launch));
  }

  /// The same, with one list of uses: of `reading` or `writing` alone, or a vector of uses that is
  /// known only at run time.
  ///
  /// @code
  ///   std::vector<pinlane::use> uses{pinlane::writing(out)};
  ///   for (const auto& layer : layers) uses.push_back(pinlane::reading(layer));
  ///   stream.foreign(uses, launch);
  /// @endcode
  template <class Uses, class Launch>
  ticket foreign(const Uses& uses, Launch&& launch) const {
    foreign_work work = begin_foreign(uses);
    std::forward<Launch>(launch)(work.native_handle());
    return work.finish();
  }

  /// The same without a function object: the buffers are borrowed until the result is destroyed, or
  /// its `finish` has returned the ticket. So a coroutine may wait between the parts of its work.
  ///
  /// @code
  ///   pinlane::foreign_work work = stream.begin_foreign(pinlane::reading(x), pinlane::writing(y));
  ///   first_part<<<grid, block, 0, work.native_handle()>>>(x.address(), y.address());
  ///   co_await something;
  ///   second_part<<<grid, block, 0, work.native_handle()>>>(x.address(), y.address());
  ///   co_await work.finish();
  /// @endcode
  ///
  /// Work on a per-thread default stream must end on that thread.
  template <class Reads, class Writes>
  [[nodiscard]] foreign_work begin_foreign(const Reads& reads, const Writes& writes) const {
    check_uses<Reads>();
    check_uses<Writes>();
    return begin_foreign(joined(reads, writes));
  }
  template <class Uses>
  [[nodiscard]] foreign_work begin_foreign(const Uses& uses) const {
    check_uses<Uses>();
    auto& self = static_cast<const Self&>(*this);
    auto* const native = static_cast<CUstream_st*>(self.native_handle());
    pinlane_foreign* work = nullptr;
    check(pinlane_foreign_begin(self.get(), std::data(uses), std::size(uses), &work));
    return foreign_work(work, native);
  }

private:
  template <class Uses>
  static constexpr void check_uses() noexcept {
    static_assert(are_uses<Uses>, "foreign(reading(a), writing(b), launch): the buffers first");
  }
};

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_FOREIGN_HPP
