/// @file
/// Tickets. They tell when an operation is complete.

#ifndef PINLANE_CPP_TICKET_HPP
#define PINLANE_CPP_TICKET_HPP

#include "error.hpp"

#include <cstdint>
#include <new>

namespace pinlane {

/// Tells when one asynchronous operation is complete. Destroying it does not change the operation.
class ticket : public detail::owner<pinlane_ticket, pinlane_ticket_free> {
public:
  using owner::owner;

  /// Blocks until the operation is complete. Its effects are then visible to the calling thread.
  /// Throws the error of an operation that failed.
  void wait() const { detail::check(wait(std::nothrow)); }
  [[nodiscard]] pinlane_status wait(std::nothrow_t) const noexcept {
    return pinlane_ticket_wait(get());
  }

  /// Whether the operation is complete. Does not block. Throws the error of an operation that
  /// failed.
  [[nodiscard]] bool is_done() const {
    std::int32_t done = 0;
    detail::check(pinlane_ticket_is_done(get(), &done));
    return done != 0;
  }
};

namespace detail {

/// The ticket of what `enqueue` enqueues. It is called with the place for the handle.
template <class Enqueue>
ticket with_ticket(Enqueue enqueue) {
  pinlane_ticket* handle = nullptr;
  check(enqueue(&handle));
  return ticket(handle);
}

} // namespace detail

} // namespace pinlane

#endif // PINLANE_CPP_TICKET_HPP
