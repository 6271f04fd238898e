// Host functions, and what they may do.

#pragma once

#include "pinned.hpp"

#include <chrono>
#include <thread>

/// The argument of a host function. It is never freed: after an error of the device the function
/// may be called at any time, or never.
struct host_call {
  /// Handles that the function frees. Only it has them.
  pinlane_ticket* ticket = nullptr;
  pinlane_buffer* buffer = nullptr;
  /// Handles that it queries. Others may free them.
  const pinlane_stream* stream = nullptr;
  const pinlane_pool* pool = nullptr;
  /// It was launched on a machine that lives until the program's end, so it is called.
  bool is_started = false, is_certain = false;
  std::atomic<int> called{0};
  std::atomic<bool> returned{false};
};
inline std::vector<std::unique_ptr<host_call>> host_calls;
inline std::mutex host_calls_lock;

/// The call is refused where CUDA calls are forbidden. Others may have freed the handle in the
/// meantime.
inline void require_forbidden(pinlane_status status) {
  require(status == PINLANE_STATUS_UNSUPPORTED || status == PINLANE_STATUS_INVALID_HANDLE ||
              status == PINLANE_STATUS_WRONG_THREAD || status == PINLANE_STATUS_STREAM_CAPTURING ||
              status == PINLANE_STATUS_DEVICE_LOST,
          "a host function could call CUDA");
}

inline void in_stream(void* user) {
  host_call& call = *static_cast<host_call*>(user);
  const char* const outer = std::exchange(current_call, "a host function");
  require(call.called++ == 0, "a host function was called twice");
  require_forbidden(pinlane_stream_synchronize(call.stream));
  require_forbidden(pinlane_stream_record(call.stream, nullptr));
  require_forbidden(pinlane_pool_trim(call.pool, 0, nullptr));
  require_ok(pinlane_ticket_free(call.ticket), "a host function cannot free a ticket");
  require_ok(pinlane_buffer_free(call.buffer), "a host function cannot free a buffer");
  current_call = outer;
  call.returned = true;
}

inline pinlane_status stream_launch_host(frame& f) {
  const argument stream = f.any(kind::stream);
  const bool failed = f.must_fail;
  const argument pool = f.any(kind::pool);
  f.must_fail = failed; // the function only asks the pool
  auto own = std::make_unique<host_call>();
  host_call& call = *own;
  call.stream = stream;
  call.pool = pool;
  const bool none = f.in.rarely(8);
  f.must_fail |= none;
  auto** const ticket = f.ticket();
  // A machine does not call functions after its last handle was freed.
  const int device = f.w.device_of(kind::stream, stream);
  const bool stays = device >= 0 && machine_of(device) < first_unknown_machine;
  if (f.w.calm && !stays) { // the function's argument would be lost
    f.must_fail = false;
    f.made_nothing();
    return PINLANE_STATUS_OK;
  }
  if (f.in.byte() % 2 == 0 && stays) {
    static_cast<void>(pinlane_stream_record(stream, &call.ticket));
    static_cast<void>(pinlane_buffer_try_alloc(pool, 300, &call.buffer));
  }
  const pinlane_status status =
      pinlane_stream_launch_host(stream, none ? nullptr : in_stream, &call, ticket);
  if (status != PINLANE_STATUS_OK) {
    require(call.called == 0, "a host function was called that was refused");
    require_ok(pinlane_ticket_free(call.ticket), "a ticket cannot be freed");
    require_ok(pinlane_buffer_free(call.buffer), "a buffer cannot be freed");
  }
  const std::lock_guard<std::mutex> guard(host_calls_lock);
  call.is_started = status == PINLANE_STATUS_OK;
  call.is_certain = status == PINLANE_STATUS_OK && stays;
  host_calls.push_back(std::move(own));
  return status;
}

/// At the end, when nothing is stalled.
inline void check_host_calls(const world& w) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::vector<std::unique_ptr<host_call>> kept;
  for (std::unique_ptr<host_call>& each : host_calls) {
    while (each->is_certain && !each->returned && !w.faulty && !w.may_keep) {
      require(std::chrono::steady_clock::now() < limit, "a host function was not called");
      std::this_thread::yield();
    }
    if (each->is_started && !each->returned) {
      each->is_certain = false;
      kept.push_back(std::move(each));
    }
  }
  host_calls.swap(kept);
}
