/// @file
/// Calls that report their outcome to a function object, and their form for `co_await`.

#ifndef PINLANE_CPP_REQUEST_HPP
#define PINLANE_CPP_REQUEST_HPP

#include "error.hpp"

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#if defined(__cpp_impl_coroutine) && __has_include(<coroutine>)
#include <coroutine>
#define PINLANE_CPP_COROUTINES 1
#endif

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

/// A call that reports its outcome to a function object. Destroying it does not change the call.
///
/// The function object is called once, by a thread of pinlane, with a status first. If that is not
/// `PINLANE_STATUS_OK`, `pinlane::error(status)` is the error, as long as the function object makes
/// no call of pinlane. It may call pinlane and may block. It must not throw.
class request : public detail::owner<pinlane_request, pinlane_request_free> {
public:
  using owner::owner;

  /// Withdraws the call: its function object gets `PINLANE_STATUS_CANCELLED`, unless it is or has
  /// been called with another status. Does not block.
  void cancel() const { detail::check(pinlane_request_cancel(get())); }
};

namespace detail {

/// The error that a callback gets; none for `PINLANE_STATUS_OK`.
inline std::optional<error> failure_of(pinlane_status status) {
  return status == PINLANE_STATUS_OK ? std::nullopt : std::optional<error>(status);
}

/// Calls a function object from C, and destroys it.
template <class Function, class... Told>
void call_once(void* user, Told... told) noexcept {
  const std::unique_ptr<Function> function(static_cast<Function*>(user));
  (*function)(told...);
}

/// Starts a call of the C interface that reports its outcome, a `Told...`, to `function`. `start`
/// gets the callback, the callback's first argument, and the place for the request.
template <class... Told, class Function, class Start>
pinlane_status start(Function&& function, pinlane_request** request, Start start) {
  using object = std::decay_t<Function>;
  auto owned = std::make_unique<object>(std::forward<Function>(function));
  const pinlane_status status = start(call_once<object, Told...>, owned.get(), request);
  if (status == PINLANE_STATUS_OK) {
    static_cast<void>(owned.release()); // `call_once` has it, and may have destroyed it already
  }
  return status;
}

/// As `start`, for callers that want the request.
template <class... Told, class Function, class Start>
request requested(Function&& function, Start start_call) {
  pinlane_request* made = nullptr;
  check(start<Told...>(std::forward<Function>(function), &made, start_call));
  return request(made);
}

} // namespace detail

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#if defined(PINLANE_CPP_COROUTINES)

namespace pinlane {
inline namespace PINLANE_CPP_MODE {

namespace detail {

/// The state that a coroutine and the callback share.
///
/// - Either the callback resumes the coroutine, or the coroutine was destroyed before that.
/// - It lives until both have released it.
template <class Outcome>
class rendezvous {
public:
  explicit rendezvous(std::coroutine_handle<> coroutine) noexcept : m_coroutine(coroutine) {}

  /// For the callback: stores the outcome, and returns the coroutine if it still waits.
  [[nodiscard]] std::coroutine_handle<> tell(Outcome outcome) noexcept {
    const std::lock_guard<std::mutex> hold(m_lock);
    m_outcome.emplace(std::move(outcome));
    return std::exchange(m_coroutine, nullptr);
  }

  /// For the coroutine, when it is resumed.
  [[nodiscard]] Outcome take() {
    const std::lock_guard<std::mutex> hold(m_lock);
    return std::move(*m_outcome);
  }

  /// For a coroutine that is destroyed while it waits. Returns the request, for the caller to
  /// withdraw.
  [[nodiscard]] request leave() noexcept {
    const std::lock_guard<std::mutex> hold(m_lock);
    m_coroutine = nullptr;
    return std::move(m_request);
  }

  void keep(request made) noexcept {
    const std::lock_guard<std::mutex> hold(m_lock);
    m_request = std::move(made);
  }

private:
  std::mutex m_lock;
  std::coroutine_handle<> m_coroutine;
  std::optional<Outcome> m_outcome;
  request m_request;
};

/// Resumes on the thread of the callback: a helper thread of pinlane.
struct resume_here {
  void operator()(std::coroutine_handle<> coroutine) const { coroutine.resume(); }
};

} // namespace detail

/// The operand of `co_await`: a call that is made when a coroutine awaits it.
///
/// A helper thread of pinlane resumes the coroutine, or an executor does: see `resume_on`. The
/// coroutine may block the helper: others take over. The coroutine may be destroyed while it waits,
/// which withdraws the call, but not while it is being resumed.
template <class Call, class Executor = detail::resume_here>
class awaitable {
  using outcome = typename Call::outcome;

public:
  explicit awaitable(Call call, Executor executor = {})
      : m_call(std::move(call)), m_executor(std::move(executor)) {}
  awaitable(awaitable&&) = default;
  awaitable& operator=(awaitable&&) = delete;
  ~awaitable() {
    if (m_shared) {
      const request withdrawn = m_shared->leave();
      static_cast<void>(withdrawn && pinlane_request_cancel(withdrawn.get()));
    }
  }

  [[nodiscard]] bool await_ready() const noexcept { return m_call.is_done(); }

  void await_suspend(std::coroutine_handle<> coroutine) {
    // After the call is made, another thread may resume the coroutine and destroy this object at
    // any time.
    const auto shared = std::make_shared<detail::rendezvous<outcome>>(coroutine);
    m_shared = shared;
    auto tell = [shared, executor = m_executor](outcome told) mutable noexcept {
      if (const std::coroutine_handle<> waits = shared->tell(std::move(told))) {
        executor(waits);
      }
    };
    pinlane_request* made = nullptr;
    detail::check(m_call.start(std::move(tell), &made)); // an exception goes to the coroutine
    shared->keep(request(made));
  }

  auto await_resume() {
    const auto shared = std::exchange(m_shared, nullptr);
    return m_call.result(shared ? shared->take() : outcome{});
  }

  /// The call, for `resume_on`.
  [[nodiscard]] const Call& call() const noexcept { return m_call; }

private:
  Call m_call;
  Executor m_executor;
  std::shared_ptr<detail::rendezvous<outcome>> m_shared;
};

/// The same call, after which `executor` gets the coroutine: a function object that takes a
/// `std::coroutine_handle<>` and resumes it, on any thread. A helper thread of pinlane calls it. It
/// must not throw.
///
/// @code
///   co_await pinlane::resume_on(loop, stream.download(gpu, host));
/// @endcode
template <class Executor, class Call>
[[nodiscard]] auto resume_on(Executor executor, const awaitable<Call>& awaited) {
  return awaitable<Call, Executor>(awaited.call(), std::move(executor));
}

} // inline namespace PINLANE_CPP_MODE
} // namespace pinlane

#endif // PINLANE_CPP_COROUTINES

#endif // PINLANE_CPP_REQUEST_HPP
