/// @file
/// Tickets, which show when an operation is complete.

#ifndef PINLANE_CPP_TICKET_HPP
#define PINLANE_CPP_TICKET_HPP

#include "request.hpp"

#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <utility>

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// Shows when one asynchronous operation is complete. Destroying it does not change the operation.
/// In C++20 a coroutine can `co_await` it: see `awaitable`.
class ticket : public detail::owner<pinlane_ticket, pinlane_ticket_free> {
public:
  using owner::owner;

  /// Blocks until the operation is complete. Its effects are then visible to the calling thread.
  /// Throws the error of an operation that failed.
  void wait() const { detail::check(wait(std::nothrow)); }
  [[nodiscard]] pinlane_status wait(std::nothrow_t) const noexcept {
    return pinlane_ticket_wait(get());
  }

  /// As `wait`, but blocks for at most `timeout`. Returns whether the operation is complete then.
  template <class Rep, class Period>
  [[nodiscard]] bool wait_timeout(std::chrono::duration<Rep, Period> timeout) const {
    return in_time(wait_timeout(std::nothrow, timeout));
  }
  template <class Rep, class Period>
  [[nodiscard]] pinlane_status
  wait_timeout(std::nothrow_t, std::chrono::duration<Rep, Period> timeout) const noexcept {
    return pinlane_ticket_wait_timeout(get(), detail::in_microseconds(timeout));
  }

  /// As `wait_timeout`, until a point in time of any clock.
  template <class Clock, class Duration>
  [[nodiscard]] bool wait_until(std::chrono::time_point<Clock, Duration> deadline) const {
    return in_time(wait_until(std::nothrow, deadline));
  }
  template <class Clock, class Duration>
  [[nodiscard]] pinlane_status
  wait_until(std::nothrow_t, std::chrono::time_point<Clock, Duration> deadline) const {
    return detail::wait_until(deadline, [this](std::uint64_t microseconds) {
      return pinlane_ticket_wait_timeout(get(), microseconds);
    });
  }

  /// Calls `completed` with a status when the operation is complete or has failed. Does not block;
  /// see `request`.
  template <class Completed>
  request on_complete(Completed&& completed) const {
    return detail::requested<pinlane_status>(
        std::forward<Completed>(completed),
        [this](auto... call) { return pinlane_ticket_on_complete(get(), call...); });
  }

  /// Whether the operation is complete. Does not block. Throws the error of an operation that
  /// failed.
  [[nodiscard]] bool is_done() const {
    std::int32_t done = 0;
    detail::check(pinlane_ticket_is_done(get(), &done));
    return done != 0;
  }

private:
  static bool in_time(pinlane_status status) {
    if (status != PINLANE_STATUS_TIMED_OUT) {
      detail::check(status);
    }
    return status == PINLANE_STATUS_OK;
  }
};

namespace detail {

/// Waits for each ticket, which `ticket_of` returns, and then throws the first error.
template <class Tickets, class TicketOf>
void wait_for_each(const Tickets& tickets, TicketOf ticket_of) {
  std::optional<error> failure;
  for (const auto& each : tickets) {
    const pinlane_status status = ticket_of(each).wait(std::nothrow);
    if (status != PINLANE_STATUS_OK && !failure) {
      failure.emplace(status);
    }
  }
  if (failure) {
    fail(*failure);
  }
}

} // namespace detail

/// Blocks until the operations of all tickets of a container are complete, even if some of them
/// fail. Then throws the error of the first that failed.
template <class Tickets>
void wait_all(const Tickets& tickets) {
  detail::wait_for_each(tickets, [](const ticket& each) -> const ticket& { return each; });
}
/// The same for single tickets.
template <class... More>
void wait_all(const ticket& first, const More&... more) {
  const ticket* const all[] = {&first, &more...};
  detail::wait_for_each(all, [](const ticket* each) -> const ticket& { return *each; });
}

namespace detail {

/// The ticket of the work that `enqueue` enqueues. `enqueue` gets the place for the handle.
template <class Enqueue>
ticket with_ticket(Enqueue enqueue) {
  pinlane_ticket* handle = nullptr;
  check(enqueue(&handle));
  return ticket(handle);
}

} // namespace detail

#if defined(PINLANE_CPP_COROUTINES)

namespace detail {

struct ticket_call {
  using outcome = std::optional<error>;

  pinlane_ticket* ticket;

  [[nodiscard]] bool is_done() const noexcept {
    std::int32_t done = 0;
    return pinlane_ticket_is_done(ticket, &done) == PINLANE_STATUS_OK && done != 0;
  }

  template <class Tell>
  pinlane_status start(Tell tell, pinlane_request** request) const {
    return detail::start<pinlane_status>(
        [tell = std::move(tell)](pinlane_status status) mutable { tell(failure_of(status)); },
        request, [this](auto... call) { return pinlane_ticket_on_complete(ticket, call...); });
  }

  static void result(const outcome& failure) {
    if (failure) {
      fail(*failure);
    }
  }
};

} // namespace detail

/// Waits until the operation is complete. Throws the error of an operation that failed.
inline awaitable<detail::ticket_call> operator co_await(const ticket& ticket) {
  return awaitable(detail::ticket_call{ticket.get()});
}

/// As for other awaited calls.
template <class Executor>
[[nodiscard]] auto resume_on(Executor executor, const ticket& ticket) {
  return resume_on(std::move(executor), operator co_await(ticket));
}

#endif // PINLANE_CPP_COROUTINES

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_TICKET_HPP
