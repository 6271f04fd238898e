// Calls whose outcome a callback gets, and the callbacks.
//
// The program uses a callback's result only after it has waited for the callback. So a program does
// the same in another run, whenever the callback is called. A callback makes its own calls while
// the program waits for it, or while several threads make calls.

#pragma once

#include "buffers.hpp"

#include <chrono>

/// A call whose outcome a callback gets.
struct promise {
  promise(world& of, const char* of_call, kind what) : w(of), name(of_call), gives(what) {}

  world& w;
  const char* name;
  /// The kind of the callback's result. A ticket's callback has none.
  kind gives;
  /// The size of a buffer, and the producer of a batch.
  std::size_t bytes = 0;
  std::shared_ptr<producer> source;
  /// The calls that the callback makes.
  input in{nullptr, 0};
  /// The call has failed: the callback is never called.
  bool refused = false;
  std::atomic<bool> withdrawn{false};

  std::mutex lock;
  std::condition_variable changed;
  bool told = false, let_in = false, over = false;
  pinlane_status status = PINLANE_STATUS_OK;
  std::int32_t code = 0;
  void* handle = nullptr;
};

/// Makes a few calls on a thread of the library.
void calls_of_guest(world& w, input& in);

/// The model's object of a batch that the program got.
object object_of(const std::shared_ptr<producer>& source, pinlane_device_buffer* batch);
/// Checks the outcome of a batch.
void check_outcome(world& w, producer& source, pinlane_status status, std::int32_t code);
void came(world& w, producer& source, pinlane_status status, std::int32_t code,
          const std::uint64_t* index, bool in_turn);

inline void tell(void* user, pinlane_status status, void* handle) {
  promise& p = *static_cast<promise*>(user);
  const char* const outer = std::exchange(current_call, p.name);
  const bool ok = status == PINLANE_STATUS_OK;
  require(ok == (handle != nullptr) || p.gives == kind::ticket, "a callback got the wrong handle");
  if (!ok) {
    const char* const message = pinlane_last_error();
    require(std::strncmp(message, p.name, std::strlen(p.name)) == 0,
            "the message of a callback does not begin with the call");
  }
  std::unique_lock<std::mutex> guard(p.lock);
  require(!p.told, "a callback was called twice");
  p.told = true;
  p.status = status;
  p.handle = handle;
  p.code = ok ? 0 : pinlane_last_producer_error();
  if (!p.in.is_empty()) {
    guard.unlock();
    const bool is_guest = p.w.guests.enter();
    guard.lock();
    p.changed.wait(guard, [&] { return is_guest || p.let_in; });
    guard.unlock();
    calls_of_guest(p.w, p.in);
    if (is_guest) {
      p.w.guests.leave();
    }
    guard.lock();
  }
  p.over = true;
  current_call = outer;
  p.changed.notify_all();
}

inline void allocated(void* user, pinlane_status status, pinlane_buffer* buffer) {
  tell(user, status, buffer);
}
inline void completed(void* user, pinlane_status status) { tell(user, status, nullptr); }
inline void prefetched(void* user, pinlane_status status, pinlane_device_buffer* batch) {
  tell(user, status, batch);
}

/// Makes `call(promise, request)`. A NULL callback is refused.
template <class Call>
pinlane_status start(frame& f, const std::shared_ptr<promise>& told, Call call) {
  const bool is_guest = f.in.rarely(64);
  told->in = f.in.split(is_guest ? 2 + f.in.below(24) : 0);
  const bool called = !f.in.rarely(8);
  f.must_fail |= !called;
  object about;
  about.told = told;
  auto** const request = f.request(std::move(about));
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    f.w.promises.push_back(told);
  }
  const pinlane_status status = call(called, request);
  told->refused = status != PINLANE_STATUS_OK;
  return status;
}

/// Whether so many calls are pending that the program should first end one.
inline bool is_busy(frame& f) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  return f.w.promises.size() >= 24;
}

inline pinlane_status buffer_alloc_async(frame& f) {
  if (is_busy(f)) {
    return PINLANE_STATUS_OK;
  }
  const argument pool = f.any(kind::pool);
  const auto told = std::make_shared<promise>(f.w, current_call, kind::buffer);
  told->bytes = f.size();
  return start(f, told, [&](bool called, pinlane_request** request) {
    return pinlane_buffer_alloc_async(pool, told->bytes, called ? allocated : nullptr, told.get(),
                                      request);
  });
}

inline pinlane_status ticket_on_complete(frame& f) {
  if (is_busy(f)) {
    return PINLANE_STATUS_OK;
  }
  const argument ticket = f.any(kind::ticket);
  const auto told = std::make_shared<promise>(f.w, current_call, kind::ticket);
  return start(f, told, [&](bool called, pinlane_request** request) {
    return pinlane_ticket_on_complete(ticket, called ? completed : nullptr, told.get(), request);
  });
}

inline pinlane_status request_cancel(frame& f) {
  const argument request = f.any(kind::request);
  {
    const std::lock_guard<std::mutex> guard(f.w.lock);
    const object* const found = f.w.find(kind::request, request);
    if (found != nullptr) {
      found->told->withdrawn = true;
    }
  }
  return pinlane_request_cancel(request);
}

/// Waits for a callback, and lets it make its calls. Its result then belongs to the program.
inline void await(world& w, const std::shared_ptr<promise>& told) {
  promise& p = *told;
  const char* const outer = std::exchange(current_call, p.name);
  {
    std::unique_lock<std::mutex> guard(p.lock);
    p.let_in = true;
    p.changed.notify_all();
    const bool over = p.changed.wait_for(guard, std::chrono::seconds(30), [&] { return p.over; });
    require(over, "a callback was not called");
  }
  {
    const std::lock_guard<std::mutex> guard(w.lock);
    w.promises.erase(std::find(w.promises.begin(), w.promises.end(), told));
  }
  const bool ok = p.status == PINLANE_STATUS_OK;
  const bool is_batch = p.gives == kind::gpu;
  require(p.status != PINLANE_STATUS_PANIC, "a callback got a panic");
  if (is_batch) {
    check_outcome(w, *p.source, p.status, p.code);
    came(w, *p.source, p.status, p.code, nullptr, false);
  } else {
    require(p.code == 0, "the code of a producer that there was not");
    const bool of_memory = p.gives == kind::buffer &&
                           (p.status == PINLANE_STATUS_BUDGET_EXHAUSTED ||
                            p.status == PINLANE_STATUS_OUT_OF_HOST_MEMORY ||
                            (p.status == PINLANE_STATUS_INVALID_VALUE && p.bytes > 1UL << 47));
    const bool was_cancelled = p.status == PINLANE_STATUS_CANCELLED && p.withdrawn;
    require(ok || was_cancelled || of_memory || w.faulty, "a callback got a failure");
  }
  if (p.handle != nullptr) {
    object about;
    if (is_batch) {
      about = object_of(p.source, static_cast<pinlane_device_buffer*>(p.handle));
    } else {
      about.bytes.assign(p.bytes, unknown);
    }
    about.handle = p.handle;
    w.adopt(p.gives, std::move(about));
  }
  current_call = outer;
}

/// A callback that was started, or none.
inline std::shared_ptr<promise> some_promise(frame& f) {
  const std::lock_guard<std::mutex> guard(f.w.lock);
  std::vector<std::shared_ptr<promise>> all;
  for (const std::shared_ptr<promise>& each : f.w.promises) {
    if (!each->refused) {
      all.push_back(each);
    }
  }
  return all.empty() ? nullptr : all[f.in.below(all.size())];
}

/// Waits for one of the callbacks that are certain to be called, perhaps after withdrawing it.
inline pinlane_status await_one(frame& f) {
  const std::shared_ptr<promise> told = some_promise(f);
  if (told == nullptr) {
    return PINLANE_STATUS_OK;
  }
  if (f.in.byte() % 2 == 0) {
    for (const object& each : f.w.live(kind::request)) {
      if (each.told == told) {
        told->withdrawn = true;
        require_ok(pinlane_request_cancel(static_cast<pinlane_request*>(each.handle)),
                   "a request cannot be cancelled");
        break;
      }
    }
  }
  // Memory comes only when there is room.
  if (told->gives != kind::buffer || told->withdrawn) {
    await(f.w, told);
  }
  return PINLANE_STATUS_OK;
}
